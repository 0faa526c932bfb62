"""Cloud in a directory: hosts that outlive every process, and a journal of everything done to them.

The journal is the state: one line per event, appended and synced before the answer, under a lock that several processes
share. If a process is killed, the last line is either complete or torn; a torn line counts as a call that was never
made.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remuda.kube import clock
from remuda.lab.simulator.cloud import CloudHost, CloudLedger, HostRequest, JournalEntry

JOURNAL = "journal.jsonl"

_decode = msgspec.json.Decoder(JournalEntry).decode
_encode = msgspec.json.Encoder().encode


class FileCloud:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._ledger = CloudLedger()
        self._read_to = 0

    def close(self) -> None:
        os.close(self._file)

    async def create(self, request: HostRequest) -> CloudHost:
        with self._locked():
            entry = self._ledger.attempt(request)
            if entry is not None:
                self._record(entry)
                entry.raise_failure()
            return self._ledger.hosts[request.name, request.tag]

    async def remove(self, name: str, tag: str) -> None:
        with self._locked():
            if (name, tag) in self._ledger.hosts:
                self._record(JournalEntry(event="remove", name=name, tag=tag, at=clock.time()))

    async def find(self, name: str, tag: str) -> CloudHost | None:
        with self._locked():
            return self._ledger.hosts.get((name, tag))

    async def hosts(self) -> list[CloudHost]:
        with self._locked():
            return sorted(self._ledger.hosts.values(), key=lambda host: host.number)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file lock, so that no other process reads or writes, and first read everything the others wrote."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._catch_up()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._read_to:
            return
        fresh = os.pread(self._file, size - self._read_to, self._read_to)
        whole = fresh.rfind(b"\n") + 1
        for line in fresh[:whole].splitlines():
            self._ledger.apply(_decode(line))
        self._read_to += whole
        if whole < len(fresh):
            os.ftruncate(self._file, self._read_to)

    def _record(self, entry: JournalEntry) -> None:
        line = _encode(entry) + b"\n"
        os.write(self._file, line)
        os.fsync(self._file)
        self._read_to += len(line)
        self._ledger.apply(entry)


def read_journal(directory: Path) -> list[JournalEntry]:
    """Return every event in the cloud of a directory, in order."""
    content = (directory / JOURNAL).read_bytes()
    return [_decode(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
