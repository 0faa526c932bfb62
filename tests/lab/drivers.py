"""Our drivers under the conformance suite: what each is given, and how the infrastructure is looked at without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from remuda.providers.machine.drivers import sim, simcloud
from remuda.providers.machine.spi import Driver, Order, Server
from tests.lab.conformance import Subject


class SimInFile(Subject):
    """The cloud of Jobs that are processes."""

    driver = sim.Sim
    options: Mapping[str, Any] = {"cloud": "lab", "bootSeconds": 0.1}
    credentials: Mapping[str, str] = {"token": "the-token-of-a-customer"}
    bad_options: Mapping[str, Mapping[str, Any]] = {"token": {"cloud": "lab", "token": "wrong"}}
    boot_seconds = 5.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._refuses = ""
        self._journal = self.hosts / "sim" / "lab.jsonl"

    def act(self, order: Order, *, lost: bool = False) -> Driver[Any]:
        changed = {**order.options, "refuses": self._refuses} if self._refuses else order.options
        return super().act(msgspec.structs.replace(order, options=changed), lost=lost)

    async def _found(self) -> list[simcloud.SimServer]:
        """Read from the journal as anybody could."""
        servers: dict[str, simcloud.SimServer] = {}
        lines = self._journal.read_bytes().splitlines() if self._journal.exists() else []
        for line in lines:
            entry = msgspec.json.decode(line)
            if entry.get("server"):
                servers[entry["uid"]] = msgspec.convert(entry["server"], simcloud.SimServer)
            elif entry["event"] == "removed":
                del servers[entry["uid"]]
        return list(servers.values())

    async def servers(self) -> list[str]:
        return [str(server.number) for server in await self._found()]

    async def received(self, server: Server) -> bytes:
        (found,) = [made for made in await self._found() if str(made.number) == server.id]
        return found.user_data

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        self._refuses = "there is no room"
        yield
        self._refuses = ""


class SimInMemory(SimInFile):
    """The cloud of Jobs that are tasks of one process; one that is killed takes its cloud with it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.cloud = simcloud.SimCloud()

    async def _found(self) -> list[simcloud.SimServer]:
        return await self.cloud.servers()
