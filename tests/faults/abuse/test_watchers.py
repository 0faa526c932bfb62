"""Watchers by the thousand, and watchers that never read."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Coroutine
from typing import Any

import uvloop

from tests.faults.abuse.conftest import Bounded
from tests.faults.abuse.victim import CONFIGMAPS, Victim

IDLE = 5000
_AT_ONCE = 64


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


class Crowd:
    """Watches in one process, opened a few at a time."""

    def __init__(self, victim: Victim) -> None:
        self.host, self.port = victim._address
        self.context: ssl.SSLContext = victim._admin
        self.open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def gather(self, count: int, path: str) -> None:
        turn = asyncio.Semaphore(_AT_ONCE)
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

        async def watch() -> None:
            async with turn:
                reader, writer = await asyncio.open_connection(
                    self.host, self.port, ssl=self.context, server_hostname=self.host, limit=2**14
                )
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), head
                self.open.append((reader, writer))

        await asyncio.gather(*(watch() for _ in range(count)))

    def leave(self) -> None:
        for _, writer in self.open:
            writer.transport.abort()


def test_thousands_of_idle_watches(victim: Victim, bounded: Bounded) -> None:
    """Each costs under 80 KB, the server answers others as before, and all of them hear of a change. A second crowd
    finds the room the first one left; connections that stayed would cost 200 MB."""

    async def crowd() -> None:
        before = victim.rss()
        watchers = Crowd(victim)
        await watchers.gather(IDLE, "/api/v1/namespaces/kube-public/configmaps?watch=1")
        each = (victim.rss() - before) * 1024 / IDLE
        print(f"{each:.0f} KB per idle watch")
        assert each < 80
        await asyncio.to_thread(victim.is_well)
        started = time.monotonic()
        path = "/api/v1/namespaces/kube-public/configmaps"
        made = await asyncio.to_thread(victim.http, "POST", path, {"metadata": {"generateName": "news-"}})
        assert made.code == 201
        await asyncio.gather(*(_next_line(reader) for reader, _ in watchers.open))
        took = time.monotonic() - started
        print(f"all {IDLE} heard after {took:.2f} s")
        assert took < 15
        watchers.leave()

    for most in (150, 150):  # of 230 MB while they were there
        with bounded(most):
            run(crowd())


async def _next_line(reader: asyncio.StreamReader) -> None:
    await reader.readline()  # the size of the chunk
    assert (await reader.readline()).startswith(b'{"type":"ADDED"')


def test_watchers_that_never_read(victim: Victim, bounded: Bounded) -> None:
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
    started = time.monotonic()
    for number in range(150):
        patch = {"data": {"text": f"{number}" + "x" * 200_000}}
        reply = victim.http("PATCH", path, patch, {"Content-Type": "application/merge-patch+json"})
        assert reply.code == 200, reply
    print(f"150 writes of 200 KB in {time.monotonic() - started:.1f} s")
    assert victim.http("DELETE", path).code == 200
