"""Discovery and termination of a host's processes: found in /proc, never by a recorded process id.

A process is the host's when its environment names the host's root, which everything the bootstrap script starts
inherits. Its children also belong to the host, and so do the remaining processes of a session whose first process was
the host's. A user's shell in the host's directory does not. Signals go through a pidfd taken before the last check, so
a process that has been given the same id in the meantime is never hit.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import msgspec

ROOT_VARIABLE = "REMUDA_HOST_ROOT"

_PROC = Path("/proc")
_ENDED = (b"Z", b"X")


class _Process(msgspec.Struct, frozen=True):
    pid: int
    parent: int
    session: int
    started: str  # in ticks since the machine did
    ours: bool  # its environment names the root

    @property
    def identity(self) -> tuple[int, str]:
        return self.pid, self.started


def available() -> bool:
    return (_PROC / "self" / "environ").exists()


def is_locked(lock: Path) -> bool:
    """Return whether a living process holds the lock: the kernel releases it when the process ends."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def members(root: Path) -> list[int]:
    return HostProcesses(root).look()


class HostProcesses:
    """Processes of one host while they are terminated. A process that was once recognised stays a member, even if the
    parent or session leader by which it was recognised has ended."""

    def __init__(self, root: Path) -> None:
        self._mark = f"{ROOT_VARIABLE}={root}".encode()
        self._known: set[tuple[int, str]] = set()
        self._asked: set[tuple[int, str]] = set()

    def look(self) -> list[int]:
        """Return the ids of the host's living processes."""
        return [process.pid for process in self._look()]

    def end(self, *, hard: bool) -> list[int]:
        """Send SIGTERM to each process once, or SIGKILL; return those that were alive."""
        found = self._look()
        for process in found:
            if hard:
                _signal(process, signal.SIGKILL)
            elif process.identity not in self._asked:
                _signal(process, signal.SIGTERM)
                self._asked.add(process.identity)
        return [process.pid for process in found]

    def _look(self) -> list[_Process]:
        processes = {process.pid: process for process in _all(self._mark)}
        found = {pid for pid, process in processes.items() if process.ours or process.identity in self._known}
        sessions = {processes[pid].session for pid in found}
        # A session belongs to the host if its leader does, or has ended. Session 0 is that of processes outside of
        # this PID namespace.
        sessions = {session for session in sessions if session and (session in found or _gone(session))}
        grown = True
        while grown:
            fresh = {
                pid
                for pid, process in processes.items()
                if pid not in found and (process.parent in found or process.session in sessions)
            }
            found |= fresh
            grown = bool(fresh)
        found.discard(os.getpid())
        self._known |= {processes[pid].identity for pid in found}
        return [processes[pid] for pid in sorted(found)]


def _all(mark: bytes) -> list[_Process]:
    """Return every living process of this user."""
    mine = os.geteuid()
    found: list[_Process] = []
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == mine:
                process = _read(int(entry.name), mark)
                if process is not None:
                    found.append(process)
        except OSError:
            continue  # ended meanwhile, or not readable
    return found


def _read(pid: int, mark: bytes) -> _Process | None:
    fields = _fields(pid)
    if fields[0] in _ENDED:
        return None
    environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return _Process(pid, int(fields[1]), int(fields[3]), fields[19].decode(), mark in environment)


def _gone(pid: int) -> bool:
    try:
        return _fields(pid)[0] in _ENDED
    except OSError:
        return True


def _fields(pid: int) -> list[bytes]:
    """Return the fields of the process's stat after its name: the name, in brackets, may contain any character."""
    return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def _signal(process: _Process, number: signal.Signals) -> None:
    try:
        # Open the handle before the check: it keeps referring to this process even if its id is used again.
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        again = _read(process.pid, b"")
        if again is not None and again.identity == process.identity:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has just ended
    finally:
        os.close(handle)
