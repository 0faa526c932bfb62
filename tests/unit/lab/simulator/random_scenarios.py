"""Random scenarios of declared clusters: edits and faults at random moments, several at once, told in a simulated world
and judged by its models. Used by a test of every day and by a longer campaign.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from remuda.lab.simulator.declared import NAMESPACE, DeclaredWorld, pool, simulate_declared
from remuda.lab.simulator.hosts import ModelHost
from remuda.providers.controlplane.hosts import POOL_NAME

Json = dict[str, Any]

ALL, SERVER = ("etcd", "controlPlane", "worker"), ("etcd", "controlPlane")
SHAPES: tuple[tuple[Json, ...], ...] = (
    (pool("all", 1, *ALL),),
    (pool("all", 3, *ALL),),
    (pool("servers", 3, *SERVER), pool("workers", 2, "worker")),
    (pool("servers", 1, *SERVER), pool("workers", 1, "worker")),
    (pool("etcd", 3, "etcd"), pool("control", 1, "controlPlane"), pool("workers", 1, "worker")),
)
DEEDS = (
    "upgrade", "configure", "relabel", "scale", "add pool", "remove pool", "provision again", "delete", "kill", "bury",
    "fail", "deafen", "slow", "cut", "crash", "drain",
)  # fmt: skip
HOURS = 6 * 3600.0
NODE_SECONDS = 120
Deed = tuple[int, str, int]  # after so many seconds, what, to whom


@dataclass
class Result:
    machines: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    deliveries: int = 0
    reports: int = 0  # of hosts in the idle hour
    simulated: float = 0.0


def live(seed: int, shape: int, deeds: list[Deed], catch_up_seconds: float = 0.0) -> Result:
    """Raises AssertionError or TimeoutError, with what is held against the controllers."""

    async def scenario(world: DeclaredWorld) -> Result:
        return await Scenario(world, SHAPES[shape % len(SHAPES)]).run(deeds)

    return simulate_declared(scenario, seed=seed, catch_up_seconds=catch_up_seconds)


class Scenario:
    def __init__(self, world: DeclaredWorld, pools: tuple[Json, ...]) -> None:
        self.world = world
        self.pools = {one["name"]: dict(one) for one in pools}
        self.upgrades, self.most_pods, self.generation, self.draining = 0, 110, 0, False
        self.buried: set[str] = set()  # hosts that never come back

    @property
    def version(self) -> str:
        return f"v1.36.{4 + self.upgrades}+k3s1"  # older than what runs is refused

    async def run(self, deeds: list[Deed]) -> Result:
        world = self.world
        await world.declare("c", list(self.pools.values()), self.version, **self._config())
        for seconds, deed, which in deeds:
            await asyncio.sleep(seconds)
            await self.do(deed, which)
        await self.end_faults()
        await world.ready("c", HOURS)
        assert (broken := await world.broken()) == [], broken
        await self.check()
        return await self.rest()

    async def rest(self) -> Result:
        """A cluster that is as it shall be is left alone: for an hour nobody writes anything but what hosts repeat once
        an hour, and Events that are over."""
        world = self.world
        await world.quiet()
        before, reports = len(world.history), world.judge.reports
        await asyncio.sleep(3600)
        said = world.judge.reports - reports
        written = [line for line in world.history[before:] if " events " not in line]
        assert len(written) == said, written
        etcd = sum(host.service is not None and host.service.etcd for host in world.hosts("c"))
        assert said <= 2 * etcd, "hosts say more than once an hour that nothing has changed"
        assert (broken := await world.broken()) == [], broken
        return Result(
            machines=len(world.machines("c", NAMESPACE)),
            writes=Counter(line.split()[1] for line in world.history),
            deliveries=world.judge.deliveries,
            reports=said,
            simulated=asyncio.get_running_loop().time(),
        )

    async def check(self) -> None:
        """What the Cluster asks for is what runs on every host, and no Node is left cordoned."""
        for host in self.world.hosts("c"):
            assert host.service is not None
            assert f"max-pods={self.most_pods}" in host.service.settings["kubelet-arg"], host.name
        names = sorted(host.name for host in self.world.hosts("c"))
        nodes = await self._nodes(names)
        assert sorted(nodes) == names, f"there are the Nodes {sorted(nodes)} and the hosts {names}"
        for name, node in nodes.items():
            assert not node["spec"].get("unschedulable"), f"{name} is left cordoned"
            assert node["status"]["nodeInfo"]["kubeletVersion"] == self.version

    async def _nodes(self, names: list[str]) -> Json:
        """Those of Machines that went while the cluster did not answer go when they have not been ready for a while."""
        found: Json = {}
        for _ in range(NODE_SECONDS):
            found = await self.world.downstream("c").nodes()
            if sorted(found) == names:
                break
            await asyncio.sleep(1)
        return found

    # ---- what happens

    async def do(self, deed: str, which: int) -> None:
        world, names = self.world, sorted(self.pools)
        host = self._host(which)
        chosen = self.pools[names[which % len(names)]]
        if deed == "upgrade":
            self.upgrades += 1
        elif deed == "configure":
            self.most_pods = 100 + which
        elif deed == "relabel":
            chosen["labels"] = {"herd": str(which)}
        elif deed == "scale":
            chosen["quantity"] = (1, 3)[which % 2] if chosen.get("etcdRole") else 1 + which % 3
        elif deed == "add pool":
            self.pools["more"] = pool("more", 1 + which % 2, "worker")
        elif deed == "remove pool":
            self.pools.pop("more", None)
        elif deed == "provision again":
            self.generation += 1
        elif deed == "drain":
            self.draining = not self.draining
        elif deed == "crash":
            return await world.crash()
        elif deed == "cut":
            world.judge.epoch += 1
            world.downstream("c").unreachable = not world.downstream("c").unreachable
            return None
        elif deed == "delete":
            return await self._delete(which)
        elif host is not None:
            return self._trouble(host, deed, which)
        else:
            return None
        await self._edit()
        return None

    def _trouble(self, host: ModelHost, deed: str, which: int) -> None:
        world = self.world
        world.judge.epoch += 1
        if deed == "kill":
            world.kill(host)
        elif deed == "bury" and self._can_be_spared(host):
            self.buried.add(host.name)
            world.kill(host)
        elif deed == "fail":
            host.failing = 1 + which % 4
        elif deed == "deafen":
            host.deaf = True
        elif deed == "slow":
            host.slow_seconds = 60.0 * (which % 12)

    def _can_be_spared(self, host: ModelHost) -> bool:
        """Not the last one with a role, and not one without which etcd could never come back."""
        hosts = [one for one in self.world.hosts("c") if one.name not in self.buried and one is not host]
        voters = [one.name for one in self.world.downstream("c").etcd.voters]
        left = sum(one.member in voters for one in hosts)
        served = any(one.service is not None and one.service.control_plane and one.has_data for one in hosts)
        return served and left >= len(voters) // 2 + 1

    async def _delete(self, which: int) -> None:
        """A user deletes a Machine, whichever."""
        machines = sorted(self.world.machines("c", NAMESPACE), key=lambda one: one.metadata.name)
        if machines:
            chosen = machines[which % len(machines)]
            await self.world.remove_machine(chosen.metadata.name)

    async def end_faults(self) -> None:
        """What is broken is mended; of hosts that never come back the user deletes the Machines."""
        self.world.downstream("c").unreachable = False
        for host in self.world.hosts("c"):
            if host.name not in self.buried:
                self.world.heal(host)
        for machine in self.world.machines("c", NAMESPACE):
            if machine.metadata.name in self.buried and not machine.metadata.deleting:
                await self.world.remove_machine(machine.metadata.name)
        await self._spare_the_last_member()
        await asyncio.sleep(60)  # until it is noticed

    async def _spare_the_last_member(self) -> None:
        """The only member of etcd is not given up: whoever has deleted its Machine is told to add another one first."""
        going = [machine for machine in self.world.machines("c", NAMESPACE) if machine.metadata.deleting]
        for one in self.pools.values():
            members = [machine for machine in going if machine.metadata.labels.get(POOL_NAME) == one["name"]]
            if one.get("etcdRole") and one["quantity"] == 1 and members:
                one["quantity"] = 3
                await self._edit()

    def _host(self, which: int) -> ModelHost | None:
        hosts = self.world.hosts("c")
        return hosts[which % len(hosts)] if hosts else None

    async def _edit(self) -> None:
        spec = {"kubernetesVersion": self.version, "rkeConfig": {"machinePools": list(self.pools.values())}}
        spec["rkeConfig"] |= self._config()  # type: ignore[operator]
        await self.world.edit("c", spec)

    def _config(self) -> Json:
        drain = {"enabled": self.draining}
        return {
            "machineGlobalConfig": {"kubelet-arg": [f"max-pods={self.most_pods}"]},
            "upgradeStrategy": {
                "controlPlaneDrainOptions": drain,
                "workerDrainOptions": drain,
                "workerConcurrency": "2",
            },
            "provisionGeneration": self.generation,
        }


def draw(dice: random.Random) -> tuple[int, list[Deed], float]:
    """A scenario for the campaign."""
    deeds = [
        (dice.choice((0, 1, 20, 90, 300)), dice.choice(DEEDS), dice.randrange(60)) for _ in range(dice.randrange(9))
    ]
    return dice.randrange(len(SHAPES)), deeds, dice.choice((0.0, 10.0, 40.0))
