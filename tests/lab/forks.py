"""Start programs of ours as forks of one process that has already imported them.

Starting Python and importing `remuda up` takes as long as everything that a short life does then. Suites that kill a
program hundreds of times start it here. What runs is the program's own `__main__`, with its own arguments, environment,
working directory and output; only the imports are shared. End-to-end tests start programs as users do.

The fork server is a process per test process (`python -m tests.lab.forks`). It gets one message per start: a JSON
request and three file descriptors. It writes the exit code of each program to that program's status pipe. Its programs
end with it, and it ends with the tests.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from tests.lab.children import die_with_parent

_ROOT = Path(__file__).parents[2]
_LARGEST_REQUEST = 1 << 20
_IMPORTED = (
    "remuda.app.apiserver",
    "remuda.app.manager",
    "remuda.app.up",
    "remuda.cli.apiserver",
    "remuda.cli.manager",
    "remuda.cli.up",
    "remuda.lab.simulator.setup",
    "tests.lab.access_manager",
    "uvloop",
)


class Request(msgspec.Struct):
    arguments: list[str]  # "-m", a module, and its arguments
    environment: dict[str, str]
    folder: str


class Forked:
    """A forked program, in the form of an asyncio.subprocess.Process."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, status: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(status))

    async def _end(self, status: asyncio.StreamReader) -> int:
        text = await status.read()
        self.returncode = int(text) if text else -signal.SIGKILL  # nothing: the fork server was killed, and all with it
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)


class ForkServer:
    """The test's end of a fork server."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._requests, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST_REQUEST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,
            )

    async def start(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Forked:
        out, into = os.pipe()
        ended, end = os.pipe()
        try:
            request = msgspec.json.encode(Request([*arguments], {**environment}, str(Path.cwd())))
            socket.send_fds(self._requests, [request], [into, stderr.fileno(), end])
        finally:
            os.close(into)
            os.close(end)
        status = await _reader(ended)
        pid = int(await status.readline())
        return Forked(pid, await _reader(out), status)

    def stop(self) -> None:
        self._requests.close()
        self._process.wait()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


_server: ForkServer | None = None


def fork_server() -> ForkServer:
    """Return the fork server of this process; start it if there is none."""
    global _server
    if _server is None:
        _server = ForkServer()
        atexit.register(_server.stop)
    return _server


# ---- in the fork server ----------------------------------------------------------------------------------------------


def main() -> None:
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def serve(requests: socket.socket) -> list[str]:
    """Serve until the test process closes its end. In each program it returns the arguments that it has to run."""
    wakeup, wake = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    status_of: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            _report_ends(status_of)
        if requests in ready:
            content, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 3)
            if not content:
                return []
            request = msgspec.json.decode(content, type=Request)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (wakeup, wake, descriptors[2], *status_of.values()):
                    os.close(descriptor)
                requests.close()
                _become(request, *descriptors[:2])
                return request.arguments
            os.write(descriptors[2], f"{pid}\n".encode())
            status_of[pid] = descriptors[2]
            for descriptor in descriptors[:2]:
                os.close(descriptor)


def _report_ends(status_of: dict[int, int]) -> None:
    for pid in list(status_of):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            descriptor = status_of.pop(pid)
            try:
                os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            except BrokenPipeError:
                pass  # the test does not want to know any more
            os.close(descriptor)


def _become(request: Request, stdout: int, stderr: int) -> None:
    from remuda.runtime import steps

    die_with_parent()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    steps.crash_at(os.environ.get(steps.VARIABLE, ""), os.environ.get(steps.ONCE_VARIABLE, ""))


if __name__ == "__main__":
    main()
