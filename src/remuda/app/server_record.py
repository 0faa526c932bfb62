"""Facts about the server that uses a data directory, for commands on the same machine.

A server writes `DATA_DIR/server.json` when it listens, again when it is ready, and removes it when it stops. After a
crash the file remains, so readers never trust it alone: the lock of the data directory must be held by the process that
the file names. In a container the next server often has the same process id, so its start time must match as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from remuda.apiserver.storage import directory

log = logging.getLogger(__name__)

FILE = "server.json"

State = Literal["stopped", "starting", "ready"]


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    url: str
    version: str
    since: str  # time of its start, as RFC 3339
    ticks: int = 0  # start time of the process, in ticks since the machine started
    ready: bool = False
    log_file: str = ""  # absolute; empty: it logs to the terminal or service that started it


class LocalServer(msgspec.Struct, frozen=True, kw_only=True):
    """The server of a data directory at one moment."""

    pid: int = 0
    record: ServerRecord | None = None

    @property
    def state(self) -> State:
        if not self.pid:
            return "stopped"
        return "ready" if self.record is not None and self.record.ready else "starting"


def write(data_dir: Path, record: ServerRecord) -> None:
    """Write the record of this process. A reader sees the old file or the whole new one.

    A failure is only logged: on a full disk the server must still serve deletes.
    """
    record = msgspec.structs.replace(record, ticks=_start_ticks(record.pid))
    try:
        _replace(data_dir / FILE, msgspec.json.encode(record) + b"\n")
    except OSError as error:
        log.warning("cannot write %s: %s; commands on this machine wait longer for it", data_dir / FILE, error.strerror)


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove(data_dir: Path) -> None:
    """Remove the record. The caller still holds the lock of the data directory."""
    with contextlib.suppress(OSError):
        (data_dir / FILE).unlink()


def find(data_dir: Path) -> LocalServer:
    """Return the server that uses the data directory now."""
    pid = directory.holder(data_dir)
    if pid is None:
        return LocalServer()
    try:
        record = msgspec.json.decode((data_dir / FILE).read_bytes(), type=ServerRecord)
    except (OSError, msgspec.DecodeError):
        return LocalServer(pid=pid)
    known = record.pid == pid and record.ticks == _start_ticks(pid)
    return LocalServer(pid=pid, record=record if known else None)


def _start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 if that cannot be read."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[19])
    except (OSError, ValueError, IndexError):
        return 0
