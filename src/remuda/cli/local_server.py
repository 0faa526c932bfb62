"""The server of a data directory of this machine, for commands that start, use, show or stop it."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import click

from remuda.app import DATA_DIR
from remuda.cli import exit_codes
from remuda.cli.text_wrap import print_note

ADMIN = "admin.kubeconfig"  # of the administrator, in a data directory

_WAIT_SECONDS = 60.0  # for a server that starts; a busy machine may take that long
_POLL_SECONDS = 0.05
_CONNECT_SECONDS = 1.0
_SERVERS = ("up", "apiserver")


class NoManagementPlane(click.ClickException):
    exit_code = exit_codes.UNREACHABLE


def flag(data_dir: Path) -> str:
    """Return the option that names a data directory in a command to paste; empty for the default."""
    return "" if data_dir == DATA_DIR else f" --data-dir {data_dir}"


def is_running(data_dir: Path) -> bool:
    from remuda.app import server_record

    return server_record.find(data_dir).state != "stopped"


def is_starting(data_dir: Path) -> bool:
    """Return whether a server of the data directory runs that is not ready yet."""
    from remuda.app import server_record

    server = server_record.find(data_dir)
    if server.pid and server.record is None:
        # It has not come so far as to write its record, or it writes none: an earlier release, a full disk, an engine
        # inside another program. One that accepts connections needs no waiting.
        return not _accepts_connections(data_dir)
    return server.state == "starting" or (server.state == "stopped" and _process_of(data_dir) != 0)


def _accepts_connections(data_dir: Path) -> bool:
    import socket
    from urllib.parse import urlsplit

    from remuda.kube import kubeconfig

    try:
        url = urlsplit(kubeconfig.load(data_dir / ADMIN).server)
        with socket.create_connection((url.hostname or "", url.port or 443), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, ValueError, kubeconfig.KubeconfigError):
        return False


def wait_while_starting(data_dir: Path) -> None:
    """Return when the server of the data directory is ready, or none is starting, or after a minute.

    The caller then tries to connect: a server with a full disk cannot report that it is ready, but answers.
    """
    if not is_starting(data_dir):
        return
    print_note(f"waiting for the server of {data_dir}, which is starting")
    deadline = time.monotonic() + _WAIT_SECONDS
    while is_starting(data_dir):
        if time.monotonic() > deadline:
            print_note(f"the server of {data_dir} is not ready after {_WAIT_SECONDS:.0f} s{log_advice(data_dir)}")
            return
        time.sleep(_POLL_SECONDS)


def log_advice(data_dir: Path) -> str:
    from remuda.app.log_setup import SERVER_FILE

    log = data_dir / SERVER_FILE
    return f"; its log is {log}" if log.exists() else ""


def not_running(data_dir: Path) -> str:
    return f"no server is running on the data directory {data_dir}. Start it with: remuda up --detach{flag(data_dir)}"


def _process_of(data_dir: Path) -> int:
    """Return the process of a server that has not locked its data directory yet, as right after `remuda up &`; or 0."""
    wanted = data_dir.absolute().resolve()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if place.stat().st_uid != os.geteuid() or int(place.name) == os.getpid() or not _is_server(words):
                continue
            if (Path(os.readlink(place / "cwd")) / _data_dir_in(words)).resolve() == wanted and not _has_lock(place):
                return int(place.name)
        except OSError:  # it has ended
            continue
    return 0


def _has_lock(process: Path) -> bool:
    """Return whether a server has locked a data directory: then it is not the one that is looked for."""
    from remuda.apiserver.storage.directory import LOCK

    return any(os.readlink(file).rpartition("/")[2] == LOCK for file in (process / "fd").iterdir())


def _is_server(words: list[str]) -> bool:
    """Return whether a command line is `[python] remuda up …` or `python -m remuda.cli.main up …`."""
    for name, command in itertools.pairwise(words[:4]):
        if command in _SERVERS and (name.rpartition("/")[2] == "remuda" or name == "remuda.cli.main"):
            return True
    return False


def _data_dir_in(words: list[str]) -> Path:
    from remuda.cli.server_config import data_dir

    for number, word in enumerate(words):
        if word == "--data-dir" and number + 1 < len(words):
            return Path(words[number + 1])
        if word.startswith("--data-dir="):
            return Path(word.partition("=")[2])
    return data_dir()
