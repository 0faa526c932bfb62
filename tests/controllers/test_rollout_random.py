"""Rolling updates by the real controllers while things go wrong at random: servers are slow or never come up, fall
over, take long to go; templates change in the middle; writes fail before or after they were done; the manager restarts.

A referee stands between the controllers and the API and judges every Machine they make or delete by what is stored at
that moment. `REMUDA_SEED` repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube import errors
from remuda.kube.client import Client, Target
from remuda.runtime.manager import Manager
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, decode, named
from tests.controllers.providers import PROVIDERS
from tests.controllers.rollout_harness import RolloutHarness, counted, is_available

RUNS = 3
STEPS = 14
VERSIONS = ("v1.34.0", "v1.35.0", "v1.36.0")


class Referee:
    """A client that judges, and now and then fails."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self.failures = 0.0  # how likely a write fails
        self.ceiling = self.floor = 0
        self.unnoticed = 0  # Machines that fell just now
        self.known: set[str] = set()  # Machines the controllers know to be available
        self.violations: list[str] = []
        self.made = self.taken = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, target: Target, namespace: str, obj: Json, **options: Any) -> bytes:
        value: bytes = await self._perhaps(lambda: self._client.create(target, namespace, obj, **options))
        if target == MACHINE.target:
            self.made += 1
            there = await self._machines(namespace)
            if len(there) > self.ceiling:
                self.violations.append(f"{len(there)} Machines, {self.ceiling} allowed, after {named(obj)}")
        return value

    async def patch(self, target: Target, namespace: str, name: str, patch: Any, **options: Any) -> bytes:
        if target == MACHINE_SET.target and "availableReplicas" in patch.get("status", {}):
            await self._note(namespace, name, patch["status"]["availableReplicas"])
        return await self._perhaps(lambda: self._client.patch(target, namespace, name, patch, **options))

    async def delete(self, target: Target, namespace: str, name: str, **options: Any) -> bytes:
        if target == MACHINE.target:
            await self._judge(namespace, name)
        return await self._perhaps(lambda: self._client.delete(target, namespace, name, **options))

    async def _note(self, namespace: str, name: str, available: int) -> None:
        """A report that agrees with the truth proves what the controllers know."""
        standing = {named(one) for one in await self._machines(namespace) if _owner(one) == name and _stands(one)}
        if len(standing) == available:
            self.known |= standing

    async def _judge(self, namespace: str, name: str) -> None:
        there = {named(one): one for one in await self._machines(namespace)}
        victim = there.pop(name, None)
        if victim is None or not _stands(victim) or name not in self.known:
            return
        self.taken += 1
        left = sum(map(_stands, there.values())) + self.unnoticed
        if left < self.floor:
            self.violations.append(f"{left} available Machines left, {self.floor} promised, after {name}")
        mates = [one for one in there.values() if _owner(one) == _owner(victim)]
        lying = [named(one) for one in mates if not _stands(one) and not _leaves(one)]
        if lying and not self.unnoticed:
            self.violations.append(f"{name} was available and went before {lying}")

    async def _machines(self, namespace: str) -> list[Json]:
        return [decode(item) for item in (await self._client.list(MACHINE.target, namespace)).items]

    async def _perhaps(self, act: Callable[[], Awaitable[bytes]]) -> bytes:
        fate = self._chance.random()
        if fate < self.failures / 2:
            raise errors.conflict("", "things", "x", "somebody was faster")
        value = await act()
        if fate < self.failures:
            raise errors.conflict("", "things", "x", "the answer was lost")
        return value


def _owner(machine: Json) -> str:
    return machine["metadata"]["ownerReferences"][0]["name"]  # type: ignore[no-any-return]


def _stands(machine: Json) -> bool:
    return is_available(machine) and not _leaves(machine)


def _leaves(machine: Json) -> bool:
    return "deletionTimestamp" in machine["metadata"]


class Chaos:
    def __init__(self, harness: RolloutHarness, chance: random.Random) -> None:
        self.harness = harness
        self.chance = chance
        self.referee = Referee(harness.engine.client, chance)
        self.up: set[str] = set()
        self.going: set[str] = set()
        self.down: set[str] = set()
        self.all_well = False
        self.version = VERSIONS[0]
        harness.machine_controller.comes_up = lambda one: (
            named(one) not in self.down and (self.all_well or named(one) in self.up)
        )
        harness.machine_controller.goes = lambda one: self.all_well or named(one) in self.going

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A manager that can be exchanged for another in the middle."""
        machine_controller = asyncio.create_task(self.harness.machine_controller.run())
        await self._start()
        try:
            yield
        finally:
            await self.manager.stop()
            machine_controller.cancel()
            await asyncio.gather(machine_controller, return_exceptions=True)

    async def _start(self) -> None:
        client: Any = self.referee
        self.manager = Manager(client, namespace=self.harness.namespace, name="test", interval=0.02)
        self.harness.setup(self.manager)
        await self.manager.start()
        self.manager.lead()

    async def settled(self) -> None:
        """Nothing is left to do, and what the sets report is the truth."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (self.manager.idle and await self._sets_have_counted_machines()):
                await asyncio.sleep(0.02)

    async def _sets_have_counted_machines(self) -> bool:
        machines = await self.harness.machines()
        return all(
            counted(
                replicas=len(own := [one for one in machines if _owner(one) == named(found)]),
                availableReplicas=sum(map(_stands, own)),
            )(found)
            for found in await self.harness.sets()
        )

    async def begin(self) -> None:
        replicas, surge, unavailable = self.chance.randint(1, 4), self.chance.randint(0, 2), self.chance.randint(0, 2)
        unavailable = unavailable if surge or unavailable else 1
        self.referee.ceiling, self.referee.floor = replicas + surge, max(replicas - unavailable, 0)
        self.replicas = replicas
        update = {"maxSurge": surge, "maxUnavailable": unavailable}
        await self.harness.deployment(
            replicas,
            rollout={"strategy": {"type": "RollingUpdate", "rollingUpdate": update}},
            template=self.harness.template(version=self.version),
            deletion={"order": self.chance.choice(["Oldest", "Newest", "Random"])},
        )

    async def step(self) -> None:
        usual = (self.some_come_up, self.some_go)
        await self.chance.choice((*usual, *usual, self.template, self.falls, self.restart))()

    async def some_come_up(self) -> None:
        self.up.update(self._some())
        await self._attend()

    async def some_go(self) -> None:
        self.going.update(self._some())
        await self._attend()

    def _some(self) -> list[str]:
        there = sorted(self.harness.machine_controller.seen)
        return self.chance.sample(there, self.chance.randint(0, len(there)))

    async def _attend(self) -> None:
        await self.harness.machine_controller.reconcile_all()
        if self.chance.random() < 0.7:
            await self.settled()

    async def template(self) -> None:
        self.version = self.chance.choice(VERSIONS)
        spec = {"template": {"spec": {"version": self.version}}}
        await self.harness.edit(MACHINE_DEPLOYMENT.target, "md", spec)

    async def falls(self) -> None:
        """With time to be noticed: until then one more counts as standing, for what nobody could know is no foul."""
        standing = [one for one in await self.harness.machines() if _stands(one)]
        if standing:
            victim = named(self.chance.choice(standing))
            self.down.add(victim)
            self.referee.unnoticed = 1
            await self.harness.mark(victim, False)
            await self.settled()
            self.referee.unnoticed = 0

    async def restart(self) -> None:
        await self.manager.stop()
        await self._start()

    async def end_well(self) -> None:
        self.referee.failures = 0.0
        await self._repair()
        await self.harness.engine.when(MACHINE.target, self.harness.namespace, self._arrived)
        await self.harness.deployment_with(counted(availableReplicas=self.replicas, replicas=self.replicas))

    async def _repair(self) -> None:
        """Servers of the present template are repaired; those of earlier ones stay as broken as they are."""
        self.all_well = True
        there = {named(one): one["spec"]["version"] for one in await self.harness.machines()}
        self.down = {name for name in self.down if there.get(name) != self.version}
        await self.harness.machine_controller.reconcile_all()

    def _arrived(self, machines: list[Json]) -> bool:
        wanted = [self.version] * self.replicas
        return [one["spec"]["version"] for one in machines] == wanted and all(map(_stands, machines))


async def run(engine: Engine, seed: int) -> Chaos:
    chance = random.Random(seed)
    harness = await RolloutHarness.create(engine, chance.choice(PROVIDERS))
    await harness.cluster()
    await harness.templates()
    chaos = Chaos(harness, chance)
    await chaos.begin()
    async with chaos.running():
        chaos.referee.failures = chance.choice([0.0, 0.1])
        for _ in range(STEPS):
            await chaos.step()
        await chaos.end_well()
    assert not chaos.referee.violations, f"REMUDA_SEED={seed}: {chaos.referee.violations}"
    return chaos


async def test_rollout_stays_within_bounds_under_random_failures(engine: Engine) -> None:
    given = os.environ.get("REMUDA_SEED")
    seeds = [int(given)] if given else [random.SystemRandom().randrange(10**9) for _ in range(RUNS)]
    for seed in seeds:
        print(f"REMUDA_SEED={seed}")
        await run(engine, seed)


async def test_referee_detects_bound_violations(engine: Engine) -> None:
    """A judge that never finds anything proves nothing: here the bounds are drawn tighter than they were set."""
    harness = await RolloutHarness.create(engine, PROVIDERS[0])
    await harness.cluster()
    await harness.templates()
    chaos = Chaos(harness, random.Random(1))
    chaos.all_well = True
    await chaos.begin()
    chaos.referee.ceiling, chaos.referee.floor = 0, 99
    async with chaos.running():
        await harness.engine.when(MACHINE.target, harness.namespace, chaos._arrived)
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"template": {"spec": {"version": VERSIONS[1]}}})
        chaos.version = VERSIONS[1]
        await chaos.end_well()
    assert any("allowed" in one for one in chaos.referee.violations)
    assert any("promised" in one for one in chaos.referee.violations)
    assert (chaos.referee.made, chaos.referee.taken) == (2 * chaos.replicas, chaos.replicas)
