"""Facts about the server that uses a data directory, for commands on the same machine.

A server writes `DATA_DIR/server.json` when it listens, again when it is ready, and removes it when it stops. After a
crash the file remains, so readers never trust it alone: the lock of the data directory must be held by the process that
the file names.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from remuda.apiserver.storage import directory

FILE = "server.json"

State = Literal["stopped", "starting", "ready"]


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    url: str
    version: str
    since: str  # time of its start, as RFC 3339
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
    """Write the record. A reader sees the old file or the whole new one."""
    descriptor, temporary = tempfile.mkstemp(dir=data_dir, prefix=f".{FILE}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        Path(temporary).replace(data_dir / FILE)
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
    return LocalServer(pid=pid, record=record if record.pid == pid else None)
