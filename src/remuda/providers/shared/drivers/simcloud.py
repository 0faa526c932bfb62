"""The cloud behind `sim`: a table of servers and a count of what was tried, in memory or in a file.

What must hold, as in any cloud worth provisioning on: a server made twice for the same name and uid is one, removing
what is gone is fine, a server has one number and one address for life, and no number is used twice.

The file is a journal, one line per event, written and synced under a lock before the answer is given: a process killed
at any moment leaves a whole line, or a torn last one, which is as if it had never asked.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from remuda.kube import clock
from remuda.providers import ProviderError
from remuda.providers.shared.drivers.spi import TAG_OWNER, TAG_UID


class CloudRefused(ProviderError):
    """The cloud refused a request, temporarily or permanently."""


class ServerRequest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tags: Mapping[str, str]
    user_data: bytes = b""
    zone: str = ""
    boot_seconds: float | None = 0.0  # None: never
    failures: int = 0
    answers_lost: int = 0
    refuses: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.tags[TAG_UID]


class SimServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tags: Mapping[str, str]
    number: int
    created_at: float
    runs_at: float | None  # None: never
    zone: str = ""
    user_data: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.tags[TAG_UID]

    @property
    def owner(self) -> str:
        return self.tags[TAG_OWNER]

    @property
    def runs(self) -> bool:
        return self.runs_at is not None and clock.time() >= self.runs_at

    @property
    def address(self) -> str:
        """Return a loopback address: a client of a server that does not exist must not reach another user's machine."""
        number = self.number
        return f"127.{96 + (number >> 16 & 31)}.{number >> 8 & 255}.{number & 255}"


class Cloud(Protocol):
    """Interface of a simulated cloud. Its methods raise CloudRefused."""

    async def create(self, wish: ServerRequest) -> SimServer: ...

    async def find(self, name: str, uid: str) -> SimServer | None: ...

    async def remove(self, name: str, uid: str, failures: int = 0) -> None: ...

    async def servers(self) -> list[SimServer]: ...


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event, and all that is remembered of it."""

    event: Literal["made", "failed", "removed", "kept"]
    name: str
    uid: str
    server: SimServer | None = None  # that was made
    answer: str = ""  # error instead of a successful answer


_decode = msgspec.json.Decoder(CloudEvent).decode
_encode = msgspec.json.Encoder().encode


class ServerTable:
    """Existing servers and past attempts: decides how an attempt ends, and applies entries. Accesses no file."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, str], SimServer] = {}
        self._attempts: dict[tuple[str, str, str], int] = {}
        self._last_number = 0

    def create(self, wish: ServerRequest) -> CloudEvent | None:
        """Return the entry to record; None if the server already exists."""
        if wish.refuses:
            return self._failed(wish, wish.refuses)
        if wish.key in self.servers:
            return None
        attempts = self._attempts.get(("create", *wish.key), 0)
        if attempts < wish.failures:
            return self._failed(wish, f"attempt {attempts + 1} of {wish.failures} that fail")
        now = clock.time()
        server = SimServer(
            name=wish.name,
            tags=wish.tags,
            number=self._last_number + 1,
            created_at=now,
            runs_at=None if wish.boot_seconds is None else now + wish.boot_seconds,
            zone=wish.zone,
            user_data=wish.user_data,
        )
        lost = attempts < wish.failures + wish.answers_lost
        answer = "the connection was lost before the answer" if lost else ""
        return CloudEvent(event="made", name=wish.name, uid=wish.key[1], server=server, answer=answer)

    def remove(self, name: str, uid: str, failures: int) -> CloudEvent | None:
        """Return the entry to record; None if there is nothing to remove."""
        if (name, uid) not in self.servers:
            return None
        attempts = self._attempts.get(("remove", name, uid), 0)
        if attempts < failures:
            return CloudEvent(
                event="kept", name=name, uid=uid, answer=f"attempt {attempts + 1} of {failures} that fail"
            )
        return CloudEvent(event="removed", name=name, uid=uid)

    def follow(self, entry: CloudEvent) -> None:
        key = (entry.name, entry.uid)
        if entry.event in ("made", "failed"):
            self._count("create", key)
        if entry.event == "kept":
            self._count("remove", key)
        if entry.server is not None:
            self.servers[key] = entry.server
            self._last_number = max(self._last_number, entry.server.number)
        if entry.event == "removed":
            self.servers.pop(key, None)
            for what in ("create", "remove"):
                self._attempts.pop((what, *key), None)

    def _count(self, what: str, key: tuple[str, str]) -> None:
        self._attempts[what, *key] = self._attempts.get((what, *key), 0) + 1

    def _failed(self, wish: ServerRequest, answer: str) -> CloudEvent:
        return CloudEvent(event="failed", name=wish.name, uid=wish.key[1], answer=answer)


class Listener(Protocol):
    """Interface of the component that runs the servers' agents. Called in the event loop: start tasks for slow work."""

    def booted(self, server: SimServer) -> None:
        """React to a server that now runs, with the user data it was created with."""

    def removed(self, server: SimServer) -> None:
        """React to the removal of a server, which may never have booted."""


class SimCloud:
    """In memory. Boots by the running loop's time, so virtual time serves. Of a server that has booted the user data is
    forgotten unless it is to be kept: thousands of scripts are tens of megabytes."""

    def __init__(self, *, keeps_user_data: bool = True) -> None:
        self._table = ServerTable()
        self._keeps_user_data = keeps_user_data
        self._listeners: list[Listener] = []
        self._booting: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def listen(self, listener: Listener) -> None:
        """Call a listener for every server that boots or is removed from now on."""
        self._listeners.append(listener)

    def close(self) -> None:
        for timer in self._booting.values():
            timer.cancel()
        self._booting.clear()

    async def create(self, wish: ServerRequest) -> SimServer:
        entry = self._table.create(wish)
        if entry is not None:
            self._table.follow(entry)
            if entry.server is not None and wish.boot_seconds is not None:
                timer = asyncio.get_running_loop().call_later(wish.boot_seconds, self._boot, entry.server.key)
                self._booting[wish.key] = timer
            _raise(entry)
        return self._table.servers[wish.key]

    async def find(self, name: str, uid: str) -> SimServer | None:
        return self._table.servers.get((name, uid))

    async def remove(self, name: str, uid: str, failures: int = 0) -> None:
        entry = self._table.remove(name, uid, failures)
        if entry is None:
            return
        server = self._table.servers[name, uid]
        self._table.follow(entry)
        _raise(entry)
        timer = self._booting.pop((name, uid), None)
        if timer is not None:
            timer.cancel()
        for listener in self._listeners:
            listener.removed(server)

    async def servers(self) -> list[SimServer]:
        return list(self._table.servers.values())

    def _boot(self, key: tuple[str, str]) -> None:
        del self._booting[key]
        server = self._table.servers[key]
        if not self._keeps_user_data:
            self._table.servers[key] = msgspec.structs.replace(server, user_data=b"")
        for listener in self._listeners:
            listener.booted(server)


class FileCloud:
    """Cloud in a journal file that several processes share. It has no listeners."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def create(self, wish: ServerRequest) -> SimServer:
        return await asyncio.to_thread(self._create, wish)

    async def find(self, name: str, uid: str) -> SimServer | None:
        return (await asyncio.to_thread(self._read)).get((name, uid))

    async def remove(self, name: str, uid: str, failures: int = 0) -> None:
        await asyncio.to_thread(self._remove, name, uid, failures)

    async def servers(self) -> list[SimServer]:
        return list((await asyncio.to_thread(self._read)).values())

    def _create(self, wish: ServerRequest) -> SimServer:
        with self._opened() as journal:
            entry = journal.table.create(wish)
            if entry is not None:
                journal.write(entry)
                _raise(entry)
            return journal.table.servers[wish.key]

    def _remove(self, name: str, uid: str, failures: int) -> None:
        with self._opened() as journal:
            entry = journal.table.remove(name, uid, failures)
            if entry is not None:
                journal.write(entry)
                _raise(entry)

    def _read(self) -> dict[tuple[str, str], SimServer]:
        if not self._path.exists():
            return {}
        with self._opened() as journal:
            return journal.table.servers

    @contextmanager
    def _opened(self) -> Iterator[_Journal]:
        """Open, lock and read the journal."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield _Journal(file)
        finally:
            os.close(file)


class _Journal:
    """A journal that is open and locked."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.table = ServerTable()
        content = os.pread(file, os.fstat(file).st_size, 0)
        whole = content.rfind(b"\n") + 1
        for line in content[:whole].splitlines():
            self.table.follow(_decode(line))
        if whole < len(content):
            os.ftruncate(file, whole)

    def write(self, entry: CloudEvent) -> None:
        os.write(self._file, _encode(entry) + b"\n")
        os.fsync(self._file)
        self.table.follow(entry)


def _raise(entry: CloudEvent) -> None:
    if entry.answer:
        raise CloudRefused(entry.answer)
