"""Our drivers under the conformance suite: what each is given, and how the infrastructure is looked at without it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import msgspec

from remuda.providers.shared.drivers import existing, process, sim, simcloud
from remuda.providers.shared.drivers.spi import Driver, Order, Server
from tests.lab.conformance import Subject
from tests.lab.existing_servers import USER, ExistingServer, start_all, stop_all


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


class Processes(Subject):
    """Looked at through the directory and through /proc, by what the hosts' processes were given."""

    driver = process.Process
    options: Mapping[str, Any] = {}
    bad_options: Mapping[str, Mapping[str, Any]] = {"address": {"address": "192.0.2.1"}}
    user_data = (
        b"#!/bin/sh\n# \xc3\xa9t\xc3\xa9, a tab\there, $HOME `not run` \\n\n"
        b'cp "$0" "$REMUDA_HOST_ROOT/received"\nsleep 1000 </dev/null >/dev/null 2>&1 &\necho up\nexit 0\n\n'
    )

    async def servers(self) -> list[str]:
        folder = self.hosts / "process"
        return sorted(path.name for path in folder.glob("*") if path.is_dir()) if folder.exists() else []

    async def things(self) -> list[str]:
        folder = self.hosts / "process"
        left = {path.name for path in folder.iterdir()} - {".lock"} if folder.exists() else set()
        return sorted(left) + [f"process {pid}" for pid in processes_below(self.hosts)]

    async def received(self, server: Server) -> bytes:
        return (self.hosts / "process" / server.id / "root" / "received").read_bytes()

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """A machine on which something is in the way."""
        lock = self.hosts / "process" / ".lock"
        lock.unlink(missing_ok=True)
        lock.mkdir(parents=True)
        yield
        lock.rmdir()

    def end(self) -> None:
        for pid in processes_below(self.hosts):
            os.kill(pid, signal.SIGKILL)


class ExistingServers(Subject):
    """Servers somebody owns, looked at through their file systems."""

    driver = existing.Existing

    def __init__(self, directory: Path, count: int = 3) -> None:
        super().__init__(directory)
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.private_key = self.key.export_private_key().decode()
        self.ssh_servers = [
            ExistingServer(directory / f"pet-{number}", f"127.0.0.{number}") for number in range(2, 2 + count)
        ]
        self.capacity = count

    async def start(self) -> None:
        await start_all(self.ssh_servers, self.key)
        base = {"addresses": [ssh_server.name for ssh_server in self.ssh_servers], "sshUser": USER}
        self.options = base
        self.credentials = {"privateKey": self.private_key}
        self.bad_options = {
            "addresses": {"sshUser": USER},
            "address": {"address": "no server"},
            "privateKey": {**base, "privateKey": "the key that is none"},
            "hostKeys": {**base, "hostKeys": ["nonsense"]},
        }

    async def servers(self) -> list[str]:
        return [ssh_server.name for ssh_server in self.ssh_servers if ssh_server.claim.exists()]

    async def things(self) -> list[str]:
        return [f"{ssh_server.name} {name}" for ssh_server in self.ssh_servers for name in ssh_server.files()]

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """None of them answers."""
        await stop_all(self.ssh_servers)
        yield
        await start_all(self.ssh_servers, self.key)


def processes_below(directory: Path) -> list[int]:
    """Processes that were told of a root below the directory."""
    mark = f"REMUDA_HOST_ROOT={directory}/".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if any(entry.startswith(mark) for entry in (path / "environ").read_bytes().split(b"\0")):
                    found.append(int(path.name))
            except OSError:
                continue
    return found
