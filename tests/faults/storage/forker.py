"""Makes processes that live on a store until they are killed: one helper imports everything once and forks each life.

The helper (`python -m tests.faults.storage.forker`) reads one request per line and answers with the child's process
id. Children write their records, one JSON line each, to the same pipe, where they survive the kill. When a child is
gone the helper writes a line of its own; a record that the kill cut short stands right before it and is dropped.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.faults.storage.checker import Record
from tests.faults.storage.load import live

_ROOT = Path(__file__).parents[3]
_GONE = b"GONE"


class Request(msgspec.Struct):
    home: str
    seed: int
    positions: dict[str, int]


_decode = msgspec.json.Decoder(Record).decode
_decode_request = msgspec.json.Decoder(Request).decode


class Forker:
    """The driver's end."""

    def __enter__(self) -> Forker:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)
        assert self._process.stdout
        self._process.stdout.close()

    def fork(self, home: Path, seed: int, positions: dict[str, int]) -> Life:
        assert self._process.stdin
        assert self._process.stdout
        request = msgspec.json.encode(Request(str(home), seed, positions))
        self._process.stdin.write(request + b"\n")
        return Life(self._process.stdout.fileno())


class Life:
    """One process on the store, from fork to kill."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self._gone = False
        lines: list[bytes] = []
        while not lines:
            lines = self._lines(10.0)
        self._pid = int(lines[0])
        self._early = lines[1:]

    def read(self, timeout: float) -> list[Record]:
        """The records that have arrived; waits up to `timeout` seconds for the first."""
        early, self._early = self._early, []
        lines = early or self._lines(timeout)
        if _GONE in lines:
            raise RuntimeError("the process ended before it was killed")
        return [_decode(line) for line in lines]

    def kill(self) -> list[Record]:
        """Ends the process and returns what it had still reported."""
        os.kill(self._pid, signal.SIGKILL)
        lines, self._early = self._early, []
        deadline = time.monotonic() + 10
        while _GONE not in lines:
            if time.monotonic() > deadline:
                raise TimeoutError("a killed process does not end")
            lines += self._lines(1.0)
        records = lines[: lines.index(_GONE)]
        if records and not _is_whole(records[-1]):
            records.pop()
        return [_decode(line) for line in records]

    def _lines(self, timeout: float) -> list[bytes]:
        if not select.select([self._pipe], [], [], max(timeout, 0))[0]:
            return []
        *lines, self._rest = (self._rest + os.read(self._pipe, 1 << 20)).split(b"\n")
        return [line for line in lines if line]


def _is_whole(line: bytes) -> bool:
    try:
        _decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _serve() -> None:
    for line in sys.stdin.buffer:
        request = _decode_request(line)
        pid = os.fork()
        if pid == 0:
            _be_a_life(request)
        os.waitpid(pid, 0)
        os.write(1, b"\n" + _GONE + b"\n")


def _be_a_life(request: Request) -> None:
    os.write(1, b"%d\n" % os.getpid())

    def report(record: Record) -> None:
        os.write(1, msgspec.json.encode(record) + b"\n")

    try:
        asyncio.run(live(Path(request.home), random.Random(request.seed), request.positions, report))
    finally:
        os._exit(1)


if __name__ == "__main__":
    _serve()
