"""Either end of a tunnel as a process: upstream's remotedialer, or ours, with the same control.

A test says what it wants of "the server" and "the client" and is run with each pair of them. `PAIRS` names them server
first. Everything goes over TLS, with certificates of the test's own authority.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.lab.certificates import Authority, write
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.programs import Program
from tests.lab.server import tail
from tests.lab.tunnel_services import WAIT

KINDS = ("ours", "go")
PAIRS = ("ours-ours", "go-ours", "ours-go", "go-go")
EVERYTHING = "everything on loopback"
"""A rule for what may be dialled, which each kind of end writes in its own way."""
_TIMING = {"ping": "ping_every", "deadline": "heard_within", "sync": "sync_every"}
_EVERYTHING = {"ours": "tcp/127.0.0.1:*", "go": "tcp/"}
QUICK = {"ping": 0.5, "deadline": 3.0}
"""Seconds between pings, and of silence until an end of ours gives a session up, where a test waits for that."""


class End:
    """A process, and the way to tell it what to do."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.says: dict[str, str] = {}

    async def start(self) -> None:
        await self.program.start()
        if not await self.program.prints("}\n"):
            raise RuntimeError(f"{self.program.name} has ended:\n{tail(self.program.log)}")
        self.says = json.loads(self.program.printed.splitlines()[0])

    async def stop(self) -> int:
        self.go_on()
        return await self.program.stop()

    async def killed(self) -> None:
        self.program.kill()
        await self.program.ended()

    def freeze(self) -> None:
        self.program.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.program.signal(signal.SIGCONT)

    def memory(self) -> int:
        """Bytes that are the process's own; 0 where the system does not tell."""
        status = Path(f"/proc/{self.program.pid}/status")
        found = re.search(r"^RssAnon:\s+(\d+) kB", status.read_text() if status.exists() else "", re.MULTILINE)
        return int(found[1]) * 1024 if found is not None else 0

    async def _control(self, method: str, path: str, body: Any = None) -> Any:
        limit = aiohttp.ClientTimeout(WAIT)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(method, self.says["control"] + path, json=body) as answer,
        ):
            text = await answer.text()
            assert answer.status == 200, f"{self.program.name}: {path}: {answer.status} {text}"
            return json.loads(text)

    async def forward(self, address: str, *, key: str = "corral", network: str = "tcp") -> str:
        """Where to connect to come out at the address, dialled by the other end (of the key, if this is a server)."""
        target = {"key": key, "network": network, "address": address}
        return (await self._control("POST", "/forward", target))["address"]

    async def sessions(self) -> list[str]:
        """The keys of those connected to a server, sorted; the server itself, if a client is connected to it."""
        return sorted((await self._control("GET", "/sessions"))["sessions"])

    async def failures(self) -> list[str]:
        """Why forwarded connections failed, oldest first."""
        return (await self._control("GET", "/failures"))["failures"]

    async def nodes(self) -> list[str]:
        """The keys of all sessions, as our server tells them."""
        return (await self._control("GET", "/sessions"))["nodes"]

    async def ends(self) -> dict[str, str]:
        """Why the last session of each key ended, as our server tells it."""
        return (await self._control("GET", "/ends"))["ends"]

    async def failure(self, number: int = 1) -> str:
        """The last of that many, once there are."""
        async with asyncio.timeout(WAIT):
            while len(found := await self.failures()) < number:
                await asyncio.sleep(0.05)
        return found[-1]

    async def has(self, *keys: str) -> None:
        """Once exactly these are connected."""
        try:
            async with asyncio.timeout(WAIT):
                while await self.sessions() != sorted(keys):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"{self.program.name} has not {keys}:\n{tail(self.program.log)}") from None

    @property
    def url(self) -> str:
        return self.says["url"]

    @property
    def address(self) -> str:
        return self.url.split("/")[2]


class OurClient(End):
    """`python -m remuda.tunnel`: it writes down how it is, and dials nothing through a tunnel itself."""

    def __init__(self, program: Program, status: Path) -> None:
        super().__init__(program)
        self._status = status

    async def start(self) -> None:
        self._status.unlink(missing_ok=True)
        await self.program.start()

    @property
    def status(self) -> dict[str, Any]:
        return json.loads(self._status.read_text()) if self._status.exists() else {}

    async def sessions(self) -> list[str]:
        if not self.program.alive:
            raise RuntimeError(f"{self.program.name} has ended:\n{tail(self.program.log)}")
        return ["server"] if self.status.get("connected_to") else []


def _rules(kind: str, allow: Sequence[str]) -> list[str]:
    return [_EVERYTHING[kind] if rule == EVERYTHING else rule for rule in allow]


class TunnelEnds:
    """The ends of the tunnels of one test: it starts them, and stops all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.authority = Authority("tunnels")
        certificate, key = self.authority.server("127.0.0.1")
        self.files = write(folder, ca=self.authority.pem, certificate=certificate, key=key)
        self._exits = AsyncExitStack()
        self._made = 0

    async def end_all(self) -> None:
        await self._exits.aclose()

    async def server(self, kind: str, *, listen: str = "", allow: Sequence[str] = (), **settings: float) -> End:
        arguments = [
            "--listen",
            listen or f"127.0.0.1:{free_port()}",  # not any port: a test may start a server again at its address
            "--certificate",
            str(self.files["certificate"]),
            "--key",
            str(self.files["key"]),
        ]
        for rule in _rules(kind, allow):
            arguments += ["--allow", rule]
        if kind == "go":
            return await self._started(End(self._go(["server", *arguments])))
        for option, value in settings.items():
            arguments += [f"--{option}", f"{value:g}"]
        program = Program(self._name("our-server"), ["-m", "tests.lab.tunnel_server", *arguments], self.folder)
        return await self._started(End(program))

    async def client(
        self,
        kind: str,
        *urls: str,
        key: str = "corral",
        node: str = "roan",
        allow: Sequence[str] = (EVERYTHING,),
        **seconds: float,
    ) -> End:
        """A Go client goes to the first URL; ours has all of them."""
        if kind == "ours":
            return await self._started(self._our_client(urls, key, node, allow, seconds))
        arguments = ["client", "--url", urls[0], "--ca", str(self.files["ca"]), "--id", key, "--retry", "200ms"]
        arguments += ["--header", f"X-Tunnel-Node={node}"]
        for rule in _rules(kind, allow):
            arguments += ["--allow", rule]
        return await self._started(End(self._go(arguments)))

    def _our_client(
        self, urls: Sequence[str], key: str, node: str, allow: Sequence[str], seconds: dict[str, float]
    ) -> End:
        name = self._name("our-client")
        config, status = self.folder / f"{name}.json", self.folder / f"{name}-status.json"
        timing = {_TIMING[name]: value for name, value in seconds.items() if name in _TIMING}
        if "deadline" in seconds:
            timing |= dict.fromkeys(("sent_within", "linger"), seconds["deadline"])
        settings = {
            "urls": urls,
            "authorities": [str(self.files["ca"])],
            "headers": {"X-Tunnel-ID": key, "X-Tunnel-Node": node},
            "allow": _rules("ours", allow),
            "status_file": str(status),
            "timing": timing,
            "waits": {"first": 0.1, "longest": 0.5, "attempt": seconds.get("attempt", WAIT)},
        }
        config.write_text(json.dumps(settings))
        return OurClient(Program(name, ["-m", "remuda.tunnel", "--config", str(config)], self.folder), status)

    def _name(self, name: str) -> str:
        self._made += 1
        return f"{name}-{self._made}"

    def _go(self, arguments: Sequence[str]) -> Program:
        name = self._name(f"go-{arguments[0]}")
        return Program(name, arguments, self.folder, executable=require_peer("remotedialer")[0])

    async def _started(self, end: End) -> End:
        self._exits.push_async_callback(end.stop)
        await end.start()
        return end


@asynccontextmanager
async def tunnel_ends(folder: Path) -> AsyncIterator[TunnelEnds]:
    made = TunnelEnds(folder)
    try:
        yield made
    finally:
        await made.end_all()
