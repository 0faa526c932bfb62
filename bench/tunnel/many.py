"""What many tunnels cost a server while nothing goes through them, and how they come back when it was away."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Broken
from bench.tunnel.ends import Process, Server

_PROCESSES = 4
_ALL_THERE_SECONDS = 180.0
_SETTLE_SECONDS = 4.0


@contextmanager
def herd(server: Server, count: int, folder: Path) -> Iterator[None]:
    """So many tunnels to the server, all open."""
    processes = []
    before = len(server.sessions())
    try:
        for number in range(_PROCESSES):
            share = count * (number + 1) // _PROCESSES - count * number // _PROCESSES
            arguments = [server.url, str(server.authority), f"{server.kind}-herd-{number}", str(share)]
            log = folder / f"{server.kind}-herd-{number}.log"
            processes.append(Process([sys.executable, "-m", "bench.tunnel.herd", *arguments], log))
        _wait_for(server, before + count)
        yield
    finally:
        for process in processes:
            process.kill()


def kilobytes_per_tunnel(server: Server, count: int, folder: Path) -> float:
    before = server.process.megabytes()
    with herd(server, count, folder):
        time.sleep(_SETTLE_SECONDS)
        return (server.process.megabytes() - before) * 1024 / count


def seconds_until_all_are_back(server: Server, count: int, folder: Path) -> float:
    """From the moment the server listens again, after it was killed."""
    with herd(server, count, folder):
        everyone = len(server.sessions())
        server.process.kill()
        server.start()
        started = time.monotonic()
        _wait_for(server, everyone)
        return time.monotonic() - started


def _wait_for(server: Server, count: int) -> None:
    until = time.monotonic() + _ALL_THERE_SECONDS
    while (there := len(server.sessions())) < count:
        if time.monotonic() > until:
            raise Broken(f"of {count} tunnels only {there} are there after {_ALL_THERE_SECONDS:g} s")
        time.sleep(0.05)
