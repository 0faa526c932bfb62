"""A declared cluster on hosts with systemd and addresses of their own, and what is seen of them from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import msgspec

from remuda.providers.shared.drivers.nspawn import NspawnOptions, groups
from remuda.providers.shared.drivers.nspawn.folder import Folder
from tests.lab.clusters import Fleet
from tests.lab.drivers import processes_below
from tests.lab.hosts import Network, boot, machines, mounts
from tests.lab.killable import KillableCluster
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.lab.server import Reply
from tests.lab.up import Json, condition


@contextmanager
def fleet_on(network: Network, *flags: str) -> Iterator[Fleet]:
    """`remuda up` where hosts of the network reach it; of its own hosts none is left in the end."""
    found = Fleet("nspawn", {}, "--listen", f"{network.address}:{free_port()}", *flags)
    try:
        yield found
        assert machines(found.hosts) == []
        assert mounts(found.hosts) == []
    finally:
        for pid in (*machines(found.hosts), *processes_below(found.hosts)):
            _kill(pid)
        for host in found.hosts.glob("nspawn/*"):
            _end(host)
        found.stop()


def _end(host: Path) -> None:
    """What of a host has outlived its machine, which cannot end it when it was killed itself."""
    name, known = Folder(host).machine, groups.hierarchies()
    for pid in groups.processes(name, known):
        _kill(pid)
    groups.remove(name, known)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class ClusterOnHosts(KillableCluster):
    """A declared cluster, and what is seen of its hosts from outside."""

    def __init__(self, fleet: Fleet, name: str, pools: list[Json], place: Json, **config: Any) -> None:
        super().__init__(fleet, name, pools, **config)
        self._options = {"bootstrap": "ssh", **place}

    def offer(self) -> Reply:
        self.fleet.options = self._options  # each cluster has its own
        return super().offer()

    def folder(self, machine: str) -> Path:
        return self.fleet.hosts / "nspawn" / str(self.machines()[machine]["spec"]["infrastructureRef"]["name"])

    def file(self, machine: str, path: str) -> str:
        """Of the host, as far as it was written there; empty when it is not."""
        found = self.folder(machine) / "upper" / path.lstrip("/")
        return found.read_text() if found.exists() else ""

    def running(self) -> dict[str, str]:
        """The hosts, and since when each runs: they were not even rebooted where this is the same as before."""
        return {name: (self.folder(name) / "leader").read_text() for name in self.machines()}

    def address(self, machine: str) -> str:
        found = self.machines()[machine]["status"]["addresses"]
        return next(str(one["address"]) for one in found if one["type"] == "InternalIP")

    def run(self, machine: str, command: str, seconds: float = LIMIT_SECONDS) -> str:
        """What it printed on the host, on either stream; another code than 0 is an error."""
        return asyncio.run(_run(Folder(self.folder(machine)), command, seconds))

    def kill(self, machine: str) -> None:
        """Every process of the host, without a word to anybody: first the one that would start it again."""
        folder = Folder(self.folder(machine))
        assert folder.leader
        for pid in (folder.leader, *self.processes(machine)):
            _kill(pid)

    def processes(self, machine: str) -> set[int]:
        return groups.processes(Folder(self.folder(machine)).machine, groups.hierarchies())

    def boot(self, machine: str) -> None:
        asyncio.run(boot(self.folder(machine), msgspec.convert(self._options, NspawnOptions)))

    def voters(self) -> set[str]:
        return {name for name, node in self.nodes().items() if condition(node, "EtcdIsVoter") == "True"}

    def changes_in_place(self, shows: Any, what: str) -> None:
        """What was edited is applied, shown by every Node, and nobody was replaced or rebooted for it."""
        before = (self.identities(), self.running())
        self.apply()
        self.until(lambda: (nodes := self.nodes()) and all(map(shows, nodes.values())), what)
        self.has_nodes(len(before[0]))
        assert (self.identities(), self.running()) == before


async def _run(folder: Folder, command: str, seconds: float) -> str:
    about = folder.read()
    assert about is not None, folder.path
    async with asyncssh.connect(
        about.address,
        username=about.ssh_user,
        client_keys=[asyncssh.import_private_key(folder.key())],
        known_hosts=asyncssh.import_known_hosts(f"{about.address} {about.host_key}\n"),
        config=None,
        agent_path=None,
    ) as connection:
        done = await connection.run(command, timeout=seconds, stderr=asyncssh.STDOUT)
    printed = str(done.stdout)
    assert done.exit_status == 0, f"{about.name}: {command} ended with {done.exit_status}: {printed}"
    return printed
