"""Atomic files: written beside their place, synced to disk, then renamed. A reader never sees part of one."""

from __future__ import annotations

import os


def write(path: str, content: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace a file atomically. Unless `durable`, a power cut may lose the old and the new content: syncing takes
    milliseconds, for which the start of a plan would wait."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:200]}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            if durable:
                # Sync before the rename: after a power cut the name could otherwise refer to an empty file.
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if durable:
        sync_folder(folder or ".")


def sync_folder(path: str) -> None:
    """Sync a folder, so that renames in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_tree(path: str) -> None:
    """Remove a folder with everything below it. Links are removed, not followed."""
    with os.scandir(path) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            remove(entry.path)
    os.rmdir(path)


def read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
