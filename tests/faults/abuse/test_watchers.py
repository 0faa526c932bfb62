"""Watchers by the thousand, and watchers that never read."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from typing import Any

import uvloop

from tests.faults.abuse.conftest import Bounded
from tests.faults.abuse.victim import CONFIGMAPS, Victim

IDLE = 2000  # twice as many as the server takes for a crowd
_AT_ONCE = 16  # more would make each handshake slower
_MOST_REFUSED = 1000


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


class Crowd:
    """Watches in one process, opened a few at a time."""

    def __init__(self, victim: Victim) -> None:
        self.host, self.port = victim._address
        self.context: ssl.SSLContext = victim._admin
        self.refused = 0
        self.open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def gather(self, count: int, path: str) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

        async def watch() -> None:
            async with turn:
                self.open.append(await self._watch(request))

        await asyncio.gather(*(watch() for _ in range(count)))

    async def _watch(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    self.host, self.port, ssl=self.context, server_hostname=self.host, limit=2**14
                )
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
            except (OSError, asyncio.IncompleteReadError):
                # The server ends a handshake that takes ten seconds, and on a slow machine some do.
                self.refused += 1
                assert self.refused < _MOST_REFUSED
                continue
            assert head.startswith(b"HTTP/1.1 200"), head
            return reader, writer

    def leave(self) -> None:
        for _, writer in self.open:
            writer.transport.abort()


def test_thousands_of_idle_watches_stay_within_memory_limit(victim: Victim, bounded: Bounded) -> None:
    """Each costs under 80 KB, the server answers others as before, and all of them hear of a change. Later crowds
    find the room the first one left; if three of them stayed they would cost 250 MB."""

    async def crowd() -> None:
        before = victim.rss()
        watchers = Crowd(victim)
        await watchers.gather(IDLE, "/api/v1/namespaces/kube-public/configmaps?watch=1")
        each = (victim.rss() - before) * 1024 / IDLE
        print(f"{each:.0f} KB per idle watch")
        assert each < 80
        await asyncio.to_thread(victim.is_well)
        path = "/api/v1/namespaces/kube-public/configmaps"
        with victim.needs_at_most(5):
            made = await asyncio.to_thread(victim.http, "POST", path, {"metadata": {"generateName": "news-"}})
            assert made.code == 201
            await asyncio.gather(*(_next_line(reader) for reader, _ in watchers.open))
        watchers.leave()
        # Else the next crowd would be sent this one first, and not the news of its own.
        gone = await asyncio.to_thread(victim.http, "DELETE", f"{path}/{made.body['metadata']['name']}")
        assert gone.code == 200

    with bounded(150):
        for _ in range(3):
            run(crowd())


async def _next_line(reader: asyncio.StreamReader) -> None:
    await reader.readline()  # the size of the chunk
    assert (await reader.readline()).startswith(b'{"type":"ADDED"')


def test_watchers_that_never_read_stay_within_memory_limit(victim: Victim, bounded: Bounded) -> None:
    """What they have not taken is shared and bounded; whoever writes does not wait for them. Sent one by one it would
    be 3 GB: 100 watchers of 30 MB."""

    async def crowd() -> None:
        watchers = Crowd(victim)
        await watchers.gather(100, f"{CONFIGMAPS}?watch=1")
        for _, writer in watchers.open:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.to_thread(_write_much, victim)
        await asyncio.to_thread(victim.is_well)
        watchers.leave()

    with bounded(150):
        run(crowd())


def _write_much(victim: Victim) -> None:
    made = victim.http("POST", CONFIGMAPS, {"metadata": {"generateName": "loud-"}})
    path = f"{CONFIGMAPS}/{made.body['metadata']['name']}"
    with victim.needs_at_most(30):
        for number in range(150):
            patch = {"data": {"text": f"{number}" + "x" * 200_000}}
            reply = victim.http("PATCH", path, patch, {"Content-Type": "application/merge-patch+json"})
            assert reply.code == 200, reply
    assert victim.http("DELETE", path).code == 200
