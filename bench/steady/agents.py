"""`python -m bench.steady.agents FOLDER`: the agents of all hosts of a fleet, in one process.

Each speaks as the real one does (`remuda.agent`): it reads its plan Secret with its own token on one connection, which
the server closes when it has been idle, and watches it on another that is renewed every four to six minutes. A
plan that is new is carried out at once, and its result is written; periodic instructions come to what they came to
before, which is told again once an hour; probes stay well, which is not told.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.steady.world import DATA, Host, read
from remuda.agent import formats, rules
from remuda.agent.kube import _WATCH_SECONDS
from remuda.agent.plan import parse

_COME_WITHIN_SECONDS = 60.0
_RETRY_SECONDS = 5.0
_PATIENCE_SECONDS = 120.0  # until a request is answered and a watch is open
_MOST = 8 << 20
_AT_ONCE = 16  # of those who connect


class Agent:
    def __init__(self, host: Host, server: tuple[str, int], trust: ssl.SSLContext, counts: Counter[str]) -> None:
        self._path = f"/api/v1/namespaces/{host.namespace}/secrets"
        self._secret = host.secret
        self._head = f"Host: {server[0]}\r\nAuthorization: Bearer {host.token}\r\nAccept: application/json\r\n"
        self._server, self._trust = server, trust
        self._counts = counts
        self._kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._version = ""  # of the Secret as it was read; empty: it is to be read
        self._reached = ""  # where the watch goes on; empty: it begins with what there is
        self._tell_at = 0.0  # when periodic instructions are told of again, looked at when a watch ends

    async def follow(self, turns: asyncio.Semaphore) -> None:
        await asyncio.sleep(random.uniform(0, _COME_WITHIN_SECONDS))
        while True:
            try:
                async with turns, asyncio.timeout(_PATIENCE_SECONDS):
                    if not self._version or time.time() >= self._tell_at:
                        await self._look()
                    reader, writer = await self._open_watch()
                self._counts["watching"] += 1
                try:
                    await self._watch(reader)
                finally:
                    self._counts["watching"] -= 1
                    writer.close()
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                self._reached = ""
                self._counts["troubles"] += 1
                self._counts[f"trouble: {error}"[:120]] += 1
                await asyncio.sleep(random.uniform(0, _RETRY_SECONDS))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._server, ssl=self._trust, limit=_MOST)

    # The Secret

    async def _look(self) -> None:
        """Reads it, and does what it says until there is nothing to do."""
        while True:
            found = json.loads(await self._ask("GET", f"{self._path}/{self._secret}"))
            self._version = found["metadata"]["resourceVersion"]
            data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
            changes = respond(data, time.time()) if rules.PLAN in data else {}
            if not changes:
                self._tell_at = time.time() + rules.RETELL_SECONDS
                return
            patch = {
                "metadata": {"resourceVersion": self._version, "uid": found["metadata"]["uid"]},
                "data": {key: base64.b64encode(value).decode() for key, value in changes.items()},
            }
            await self._ask("PATCH", f"{self._path}/{self._secret}", json.dumps(patch).encode())
            self._counts["reports"] += 1

    async def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """On the connection that was kept, if it is still open."""
        if self._kept is not None and (self._kept[0].at_eof() or self._kept[1].is_closing()):
            self._kept[1].close()
            self._kept = None
        kept, self._kept = self._kept, None
        reader, writer = kept or await self._connect()
        kind = f"Content-Type: application/merge-patch+json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)
        status, headers = await _read_head(reader)
        answer = await reader.readexactly(int(headers["content-length"]))
        self._kept = (reader, writer)
        if status == 409:
            return b'{"metadata": {"resourceVersion": ""}}'  # it is read again
        if status >= 300:
            raise ValueError(f"{method} is answered {status}")
        return answer

    # Watching

    async def _open_watch(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        seconds = random.randint(*_WATCH_SECONDS)
        query = f"fieldSelector=metadata.name%3D{self._secret}&watch=true&allowWatchBookmarks=true"
        query += f"&timeoutSeconds={seconds}" + (f"&resourceVersion={self._reached}" if self._reached else "")
        reader, writer = await self._connect()
        writer.write(f"GET {self._path}?{query} HTTP/1.1\r\n{self._head}\r\n".encode())
        status, _ = await _read_head(reader)
        if status != 200:
            writer.close()
            raise ValueError(f"the watch is answered {status}")
        return reader, writer

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        while size := int(await reader.readline(), 16):
            chunk = await reader.readexactly(size + 2)
            for line in chunk.splitlines():
                if line:
                    await self._happened(json.loads(line))

    async def _happened(self, event: Mapping[str, object]) -> None:
        self._counts[str(event["type"])] += 1
        if event["type"] == "ERROR":
            raise ValueError("the watch has failed")
        self._reached = str(event["object"]["metadata"]["resourceVersion"])  # type: ignore[index]
        if event["type"] != "BOOKMARK" and self._reached != self._version:
            await self._look()


def respond(data: Mapping[str, bytes], now: float) -> dict[str, bytes]:
    """What an agent on whose host everything works has to say; nothing: that all is as it was told before."""
    verdict = rules.verdict(data, now)
    if verdict.claim:
        return rules.claimed(data)
    if verdict.apply:
        return rules.succeeded(data, {}, now)
    told = formats.unpack(data.get(rules.PERIODIC_OUTPUT, b""))
    records = {
        one.name: rules.recorded(told.get(one.name), one, _as_before(told.get(one.name)), now)
        for one in parse(data[rules.PLAN]).periodic_instructions
    }
    return rules.periodic(data, records) if rules.is_news(told, records, now) else {}


def _as_before(record: formats.Json | None) -> rules.Result:
    return rules.Result(0, base64.b64decode((record or {}).get("stdout") or ""))


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in head[1:] if line)
    return int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def live(folder: Path) -> None:
    known = read(folder)
    parts = urlsplit(known.url)
    server = (parts.hostname or "", parts.port or 443)
    trust = ssl.create_default_context(cadata=(folder / DATA / "pki" / "ca.crt").read_text())
    counts: Counter[str] = Counter()
    turns = asyncio.Semaphore(_AT_ONCE)
    tasks = [asyncio.create_task(Agent(host, server, trust, counts).follow(turns)) for host in known.hosts]
    print("started", flush=True)
    while True:
        await asyncio.sleep(5)
        ended = [task for task in tasks if task.done()]
        if ended:
            ended[0].result()
        print(json.dumps({"hosts": len(tasks), **counts}), flush=True)


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
