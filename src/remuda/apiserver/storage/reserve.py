"""Reserved disk space: a file that is deleted when the disk is full, so that objects can still be deleted.

While the disk is full, the server accepts only writes that free space: deletes, and changes of objects that are being
deleted. The disk counts as full until twice the reserve is free.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from remuda.apiserver.storage.types import StoreEntry

_log = logging.getLogger(__name__)

FILE = "reserve"
BYTES = 16 << 20  # room to copy a whole WAL into the database, and for deletes after that

_FULL = (errno.ENOSPC, errno.EDQUOT)


def free_bytes(home: Path) -> int:
    """Return how many bytes a process may still write there."""
    found = os.statvfs(home)
    return found.f_bavail * found.f_frsize


class Reserve:
    def __init__(self, home: Path, size: int = 0, free: Callable[[Path], int] = free_bytes) -> None:
        """Manage the reserve in a directory. `size` 0: no reserve, but the disk still counts as full if almost nothing
        is free.
        """
        self.home = home
        self._path = home / FILE
        self._size = size
        self._free = free
        self.is_full = False  # the disk, at the last check

    def take(self) -> bool:
        """Create the reserve and return True if there is room; else delete it and return False."""
        if self._has_room():
            self.is_full = False
        else:
            self.release()
        return not self.is_full

    def release(self) -> None:
        self.is_full = True
        self._path.unlink(missing_ok=True)

    def _has_room(self) -> bool:
        if self._path.exists() and self._path.stat().st_size >= self._size:
            return self._free(self.home) >= self._size // 4
        if self._free(self.home) < 2 * self._size:
            return False
        return not self._size or self._make()

    def _make(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # Allocated, because a sparse file would reserve nothing.
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._path.unlink(missing_ok=True)
            if error.errno in _FULL:
                return False
            # Other errors, such as a file system that cannot allocate, do not mean that the disk is full.
            _log.warning("cannot reserve disk space in %s: %s", self._path, error.strerror)
        return True

    def complaint(self) -> str:
        return (
            f"the disk of {self.home.absolute()} is full ({self._free(self.home):,} bytes are free): free space there. "
            "Until then objects can be deleted, and nothing else is written"
        )


class _Metadata(msgspec.Struct):
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_decode = msgspec.json.Decoder(_Object).decode


def leads_to_delete(kind: str, entry: StoreEntry) -> bool:
    """Return True if a change is a delete, or a step towards one: finalizers are removed one by one."""
    if kind == "DELETED":
        return True
    try:
        return kind == "MODIFIED" and _decode(entry.value).metadata.deletion is not None
    except msgspec.MsgspecError:
        return False
