"""Exclusive lock on a folder that several Jobs share. If it is deleted while others wait, they recreate it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_LOCK = "lock"


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[None]:
    """Hold the lock on the folder, creating it if needed, until the context or the process ends."""
    while (descriptor := _lock(folder)) is None:  # noqa: ASYNC110 - it is another process that holds it
        await asyncio.sleep(0.05)
    try:
        yield
    finally:
        os.close(descriptor)


def delete_locked_folder(folder: Path) -> None:
    """Delete the folder. The caller must hold its lock and have emptied it."""
    (folder / _LOCK).unlink()
    folder.rmdir()


def folder_entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != _LOCK]


def _lock(folder: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if another process holds or has deleted it."""
    path = folder / _LOCK
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have deleted the file between open and flock: then this lock is on a file that nobody
        # else can open, and excludes nobody.
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
