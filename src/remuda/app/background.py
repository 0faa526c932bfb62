"""A server in the background: a child process with its own session, which logs to a file.

The child is a fork of the command that the user typed, so it has exactly the options of that command. The parent
returns when the server is ready, or has exited.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from remuda.apiserver.storage import directory
from remuda.apiserver.storage.types import StoreUnusable
from remuda.app import AppError, server_record
from remuda.app.log_setup import private
from remuda.app.server_record import ServerRecord

_POLL_SECONDS = 0.05
_NOTE_SECONDS = 4.0
_LONGEST_SECONDS = 600.0
_MOST_LINES = 20


class StartFailed(AppError):
    """The server has exited, or is not ready; the text ends with the last lines of its log."""


def start(data_dir: Path, log: Path, serve: Callable[[], int], note: Callable[[str], None]) -> ServerRecord:
    """Run `serve` in the background and return its record when it is ready. Raises StartFailed.

    `note` is called every few seconds. Ctrl-C stops the server as well.
    """
    try:
        directory.prepare(data_dir)
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with open(log, "ab", opener=private) as file:
            written = file.tell()
            pid = _fork(file.fileno(), serve)
    except StoreUnusable as error:
        raise StartFailed(str(error)) from None
    except OSError as error:
        raise StartFailed(f"cannot write the log {log}: {error.strerror}") from None
    try:
        return _until_ready(data_dir, pid, log, written, note)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def _until_ready(data_dir: Path, pid: int, log: Path, written: int, note: Callable[[str], None]) -> ServerRecord:
    began = noted = time.monotonic()
    while True:
        exited, status = os.waitpid(pid, os.WNOHANG)
        server = server_record.find(data_dir)
        if server.pid == pid and server.record is not None and server.record.ready:
            return server.record
        if exited:
            code = os.waitstatus_to_exitcode(status)
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            raise StartFailed(f"the server {how} before it was ready:\n{_tail(log, written)}")
        now = time.monotonic()
        if now - began > _LONGEST_SECONDS:
            raise StartFailed(f"the server (pid {pid}) is not ready after {_LONGEST_SECONDS:.0f} s; its log is {log}")
        if now - noted > _NOTE_SECONDS:
            noted = now
            note(f"the server (pid {pid}) is starting, since {now - began:.0f} s; its log is {log}")
        time.sleep(_POLL_SECONDS)


def _fork(log: int, serve: Callable[[], int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nothing)
        code = serve()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # never back into the command of the parent


def _tail(log: Path, written: int) -> str:
    with log.open("rb") as file:
        file.seek(written)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_MOST_LINES:]) or f"  nothing was logged to {log}"
