"""What is sent through a pair of ends, and what comes of it."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.report import Broken
from bench.tunnel.ends import Pair
from bench.tunnel.service import MEBIBYTE, ask, give, take

UP, DOWN = "S", "R"  # from the client to the server, and to the client: what the service is asked for
FILLING_SECONDS = 0.5  # for which a stream takes nothing before it counts as full
_REQUEST = bytes(100)


@dataclass(frozen=True)
class Flow:
    megabytes_per_second: float
    processor: float  # milliseconds of both ends per megabyte


def flow(pair: Pair, direction: str, streams: int, mebibytes: int) -> Flow:
    """So much in all, over so many streams at once."""
    each = max(1, mebibytes // streams)
    before, started = pair.processor_seconds(), time.monotonic()
    _together(streams, lambda: _transfer(pair.address, direction, each))
    took, used = time.monotonic() - started, pair.processor_seconds() - before
    megabytes = each * streams * MEBIBYTE / 1e6
    return Flow(megabytes / took, used * 1000 / megabytes)


def _transfer(address: tuple[str, int], direction: str, mebibytes: int) -> None:
    with ask(address, direction, mebibytes) as connection:
        if direction == UP:
            take(connection, mebibytes)
            connection.sendall(b".")
        else:
            give(connection, mebibytes)
            if connection.recv(1) != b".":
                raise EOFError("the stream ended before all had arrived")


def _together(count: int, work: Callable[[], None]) -> None:
    errors: list[Exception] = []

    def one() -> None:
        try:
            work()
        except (OSError, EOFError) as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise Broken(f"{len(errors)} of {count} streams failed: {errors[0]!r}")


def latencies(pair: Pair, times: int) -> list[float]:
    """Of a small request and its answer on an open stream, in milliseconds."""
    with ask(pair.address, "E") as connection:
        for _ in range(20):
            _round_trip(connection)
        return [_round_trip(connection) for _ in range(times)]


def _round_trip(connection: socket.socket) -> float:
    started = time.perf_counter()
    connection.sendall(_REQUEST)
    if len(connection.recv(len(_REQUEST), socket.MSG_WAITALL)) < len(_REQUEST):
        raise Broken("the stream ended while a small answer was waited for")
    return (time.perf_counter() - started) * 1000


@contextmanager
def bulk(pair: Pair) -> Iterator[None]:
    """One stream from the client that always has more, read as fast as it comes."""
    connection = ask(pair.address, UP, 9_999_999)
    buffer = bytearray(MEBIBYTE)

    def read() -> None:
        try:
            while connection.recv_into(buffer):
                pass
        except OSError:
            pass  # closed below

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        connection.shutdown(socket.SHUT_RDWR)
        reader.join(30)
        connection.close()


@contextmanager
def slow_consumers(pair: Pair) -> Iterator[None]:
    """A stream in each direction whose reader has stopped, full to the brim."""
    up = ask(pair.address, UP, 1000)
    down = ask(pair.address, "E")
    down.setblocking(False)
    quiet_since = time.monotonic()
    while time.monotonic() < quiet_since + FILLING_SECONDS:
        try:
            down.send(bytes(65536))
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    try:
        yield
    finally:
        up.close()
        down.close()


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so great a share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
