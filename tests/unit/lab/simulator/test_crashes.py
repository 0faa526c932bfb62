"""Controllers that die at any moment: whatever was under way is finished by those that come after, and only once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.capi.types import MACHINE_DEPLOYMENT
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import FAMILIES, Family
from remuda.lab.simulator.types import MachineScript
from remuda.lab.simulator.world import World, simulate


@asynccontextmanager
async def crashing(world: World, chance: random.Random) -> AsyncIterator[list[int]]:
    """All controllers are killed again and again, each time after a few writes."""
    crashes: list[int] = []

    async def writes(count: int) -> None:
        wanted = len(world.history) + count
        await world.until(lambda: len(world.history) >= wanted, "more writes", seconds=1e9)

    async def go_on() -> None:
        while True:
            await writes(chance.randint(1, 25))
            await world.crash()
            crashes.append(len(world.history))

    task = asyncio.create_task(go_on())
    try:
        yield crashes
    finally:
        task.cancel()
        await asyncio.wait([task])


async def change(world: World, kind: Any, name: str, spec: dict[str, Any]) -> None:
    await world.client.patch(kind.target, "default", name, {"spec": spec})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)
def test_cluster_lifecycle_with_controller_crashes_leaks_no_hosts(family: Family, seed: int) -> None:
    async def scenario(world: World) -> None:
        script = MachineScript(boot_seconds=5, node_seconds=3, answers_lost=seed % 3)
        async with crashing(world, random.Random(seed)) as crashes:
            blueprint = Blueprint(name="c", control_planes=3, workers=2, machines=script, family=family)
            await world.create_cluster(blueprint)
            await world.available("c")
            await change(world, family.control_plane, "c", {"version": "v1.36.1"})
            await change(world, MACHINE_DEPLOYMENT, "c-workers", {"replicas": 3})
            await world.until(lambda: sum(m.spec.version == "v1.36.1" for m in world.machines("c")) == 3, "a rollout")
            await world.until(lambda: len(world.machines("c")) == 6, "three of each")
            await world.available("c")
            assert len(crashes) > 5
        await world.quiet()
        assert await world.broken() == []
        assert len(await world.cloud.hosts()) == 6
        async with crashing(world, random.Random(seed)):
            await world.delete_cluster("c")
        await world.quiet()
        assert await world.broken() == []
        assert await world.cloud.hosts() == []

    simulate(scenario, seed=seed)
