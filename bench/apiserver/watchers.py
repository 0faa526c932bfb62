"""The readers of the fan-out measure, in a process of their own: many watches of one collection.

Every event carries the moment its write was sent (`spec.sent`, nanoseconds of the monotonic clock that all processes
share). Prints `ready` when all watches are open; when standard input ends, one JSON line about what arrived.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from typing import cast

import uvloop

_MARK = b'"sent":"'
_GRACE_SECONDS = 3.0


class _Watcher(asyncio.Protocol):
    def __init__(self, request: bytes, delays: list[float]) -> None:
        self._request = request
        self._delays = delays
        self._rest = b""
        self.opened = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.opened.done():
            head, end, data = data.partition(b"\r\n\r\n")
            if not end or b" 200 " not in head.partition(b"\r\n")[0]:
                self.opened.set_exception(RuntimeError(f"a watch was refused: {head[:200]!r}"))
                return
            self.opened.set_result(None)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            start = line.find(_MARK)
            if start >= 0:
                sent = int(line[start + len(_MARK) : line.index(b'"', start + len(_MARK))])
                self._delays.append((now - sent) / 1e6)


async def _watch(host: str, port: int, token: str, path: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\r\n"
    )
    delays: list[float] = []
    for _ in range(count):
        _, watcher = await loop.create_connection(
            lambda: _Watcher(request.encode(), delays), host, port, ssl=context, server_hostname=""
        )
        await watcher.opened
    print("ready", flush=True)
    writes = int(await loop.run_in_executor(None, sys.stdin.readline))
    deadline = loop.time() + _GRACE_SECONDS
    while len(delays) < writes * count and loop.time() < deadline:
        await asyncio.sleep(0.05)
    delays.sort()
    percentiles = {f"p{p}": delays[min(len(delays) - 1, len(delays) * p // 100)] for p in (50, 99)} if delays else {}
    print(json.dumps({"events": len(delays), "expected": writes * count, **percentiles}), flush=True)


if __name__ == "__main__":
    _host, _port, _token, _path, _count = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_watch(_host, int(_port), _token, _path, int(_count)))
