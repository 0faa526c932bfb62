"""Model hosts behind a small protocol, as a driver of a real cloud would offer it.

As in any usable cloud, `create` with an existing name and tag returns the existing host, `remove` of a missing host
succeeds, and a host keeps its address for life. Its providerID is known before it is created, as in clouds where the
caller chooses the names. A host boots by itself: `ready_at` is the time when it will be ready, so callers need not
poll.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from remuda.kube import clock
from remuda.lab import LabError

HostState = Literal["booting", "running"]


class CloudError(LabError):
    """Failed request to the cloud, which may succeed when it is repeated."""


def provider_id(name: str, tag: str) -> str:
    return f"simulator:///{tag}/{name}"


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a host. `refusals`: so many attempts fail first, without creating the host. `answers_lost`: so many
    more create it and then fail, as when a connection breaks.
    """

    name: str
    tag: str
    failure_domain: str = ""
    boot_seconds: float = 0.0
    refusals: int = 0
    answers_lost: int = 0


class CloudHost(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tag: str
    number: int  # never used twice in one cloud
    created_at: float
    ready_at: float
    failure_domain: str = ""

    @property
    def state(self) -> HostState:
        return "running" if clock.time() >= self.ready_at else "booting"

    @property
    def provider_id(self) -> str:
        return provider_id(self.name, self.tag)

    @property
    def address(self) -> str:
        number = self.number
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


class Cloud(Protocol):
    async def create(self, request: HostRequest) -> CloudHost:
        """Return the host of this name and tag; create it if it does not exist. Raise CloudError."""

    async def remove(self, name: str, tag: str) -> None:
        """Remove a host. Raise CloudError."""

    async def find(self, name: str, tag: str) -> CloudHost | None: ...

    async def hosts(self) -> list[CloudHost]:
        """Return all hosts, by number."""


class CloudLedger:
    """Ledger that both clouds share: hosts by name and tag, and the number of attempts to create each. Pure: the caller
    records a decision (`attempt`) and applies it (`apply`), now or after a restart."""

    def __init__(self) -> None:
        self.hosts: dict[tuple[str, str], CloudHost] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._last = 0

    def attempt(self, request: HostRequest) -> JournalEntry | None:
        """Return the result of a create request; None if the host exists and the answer is not lost."""
        place = (request.name, request.tag)
        attempts = self._attempts.get(place, 0)
        lost = attempts < request.refusals + request.answers_lost
        if attempts < request.refusals:
            return JournalEntry(event="refuse", name=request.name, tag=request.tag, at=clock.time())
        if place in self.hosts:
            return (
                JournalEntry(event="lose-answer", name=request.name, tag=request.tag, at=clock.time()) if lost else None
            )
        now = clock.time()
        host = CloudHost(
            name=request.name,
            tag=request.tag,
            number=self._last + 1,
            created_at=now,
            ready_at=now + request.boot_seconds,
            failure_domain=request.failure_domain,
        )
        return JournalEntry(event="create", name=request.name, tag=request.tag, at=now, host=host, answered=not lost)

    def apply(self, entry: JournalEntry) -> None:
        place = (entry.name, entry.tag)
        if entry.event == "remove":
            self.hosts.pop(place, None)
            self._attempts.pop(place, None)
            return
        self._attempts[place] = self._attempts.get(place, 0) + 1
        if entry.host is not None:
            self.hosts[place] = entry.host
            self._last = max(self._last, entry.host.number)


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Line of a cloud's journal. A create whose answer is lost has still created the host."""

    event: Literal["create", "remove", "refuse", "lose-answer"]
    name: str
    tag: str
    at: float
    host: CloudHost | None = None
    answered: bool = True

    def raise_failure(self) -> None:
        if self.event == "refuse":
            raise CloudError(f"the cloud has no capacity for {self.name} right now")
        if self.event == "lose-answer" or not self.answered:
            raise CloudError(f"the connection broke while {self.name} was being made")


class MemoryCloud:
    """Hosts of this process. `journal` contains every event."""

    def __init__(self) -> None:
        self._ledger = CloudLedger()
        self.journal: list[JournalEntry] = []

    async def create(self, request: HostRequest) -> CloudHost:
        entry = self._ledger.attempt(request)
        if entry is not None:
            self._record(entry)
            entry.raise_failure()
        return self._ledger.hosts[request.name, request.tag]

    async def remove(self, name: str, tag: str) -> None:
        if (name, tag) in self._ledger.hosts:
            self._record(JournalEntry(event="remove", name=name, tag=tag, at=clock.time()))

    async def find(self, name: str, tag: str) -> CloudHost | None:
        return self._ledger.hosts.get((name, tag))

    async def hosts(self) -> list[CloudHost]:
        return sorted(self._ledger.hosts.values(), key=lambda host: host.number)

    def _record(self, entry: JournalEntry) -> None:
        self.journal.append(entry)
        self._ledger.apply(entry)


def made_twice(journal: list[JournalEntry]) -> list[str]:
    """Return the names that a journal shows as created more than once, which no provider may cause."""
    seen: set[tuple[str, str]] = set()
    twice = []
    for entry in journal:
        if entry.event == "create":
            if (entry.name, entry.tag) in seen:
                twice.append(entry.name)
            seen.add((entry.name, entry.tag))
    return twice
