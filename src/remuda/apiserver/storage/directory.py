"""Data directory: private, and locked by one server at a time.

The lock is a `flock` on `DIR/lock`, held for the life of the server. The kernel releases it when the process ends, for
whatever reason. If a server is killed while it starts a child process, the child holds the lock until it executes its
own program: the next server waits for that. The file's content names the holder.

Other programs ask for the holder (`holder`) with a shared lock that they release at once. A server that starts at that
moment recognises a shared lock, and tries again.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from remuda.apiserver.storage.types import StoreLocked, StoreUnusable

DATABASE = "state.db"
LOCK = "lock"

_ORPHAN_SECONDS = 10.0  # a child process on a busy machine may take that long to execute its program
_LOOK_SECONDS = 0.02
_HOLDER_ATTEMPTS = 5


def prepare(path: Path) -> None:
    """Create the directory (0700) if it is missing. An existing one keeps its mode: it may be shared."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise StoreUnusable(f"{path} is not a directory") from None
    except OSError as error:
        raise StoreUnusable(f"cannot create the data directory {path}: {error.strerror}") from error
    else:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make files that were created in or renamed into a directory durable across a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryLock:
    def __init__(self, path: Path) -> None:
        """Take the lock of a data directory. Raises StoreLocked while the process that holds it is alive."""
        try:
            self._descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnusable(f"cannot use the data directory {path}: {error.strerror}") from error
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while not self._is_taken():
            holder = _named(self._descriptor)
            # If that process has ended, a child that it was starting holds the lock, and releases it soon.
            passing = _is_free(self._descriptor) or _has_ended(holder)
            if time.monotonic() > deadline or not passing:
                os.close(self._descriptor)
                who = f"process {holder}" if holder else "another process"
                raise StoreLocked(f"{path} is in use by {who}; two servers cannot share one data directory")
            time.sleep(_LOOK_SECONDS)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _is_taken(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def holder(path: Path) -> int | None:
    """Return the process id of the server that uses a data directory; None if there is none, or it cannot be seen.

    A recorded process id proves nothing: the lock must be held, and the named process must have the file open.
    """
    try:
        descriptor = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        for attempt in range(_HOLDER_ATTEMPTS):  # a new holder writes its id right after it has taken the lock
            if attempt:
                time.sleep(_LOOK_SECONDS)
            if _is_free(descriptor):
                return None
            named = _named(descriptor)
            if named.isdigit() and _has_open(int(named), descriptor):
                return int(named)
        return None
    finally:
        os.close(descriptor)


def _named(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip()


def _is_free(descriptor: int) -> bool:
    """Return whether no server holds the lock. Other programs that ask the same do not count."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _has_open(pid: int, descriptor: int) -> bool:
    wanted = os.fstat(descriptor)
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = file.stat()
            except OSError:  # closed since
                continue
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except PermissionError:  # another user's process: it lives, and the lock is held
        return True
    except OSError:
        pass
    return False


def _has_ended(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OSError):
        return False
    return False
