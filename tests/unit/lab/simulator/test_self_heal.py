"""Health of worker pools that `remuda create cluster` declares, in virtual time: what is replaced, and what is not."""

from __future__ import annotations

import asyncio

from remuda.lab.simulator.declared import NAMESPACE, DeclaredWorld, pool, simulate_declared
from remuda.lab.simulator.hosts import ModelHost
from remuda.provisioning.declaration import SELF_HEAL

SERVER = pool("servers", 1, "etcd", "controlPlane")
_MINUTE = 60.0


def workers(world: DeclaredWorld) -> list[ModelHost]:
    return [one for one in world.hosts("c") if one.service is not None and not one.service.server]


def names(world: DeclaredWorld) -> set[str]:
    return {one.metadata.name for one in world.machines("c", NAMESPACE)}


async def built(world: DeclaredWorld, count: int = 3, **more: object) -> set[str]:
    await world.declare("c", [SERVER, pool("workers", count, "worker", **SELF_HEAL, **more)])
    await world.ready("c")
    await world.quiet()
    return names(world)


def test_dead_worker_is_replaced_after_its_timeout() -> None:
    async def story(world: DeclaredWorld) -> None:
        before = await built(world)
        world.kill(workers(world)[0])
        await asyncio.sleep(4 * _MINUTE)
        assert names(world) == before, "a reboot takes less than the timeout"
        await world.until(lambda: len(before - names(world)) == 1, "the Machine of the dead worker is deleted")
        await world.ready("c")
        assert len(names(world)) == len(before)

    simulate_declared(story)


def test_worker_of_in_place_only_pool_is_not_replaced() -> None:
    async def story(world: DeclaredWorld) -> None:
        before = await built(world, replacement="inPlaceOnly")
        world.kill(workers(world)[0])
        await asyncio.sleep(30 * _MINUTE)
        assert names(world) == before

    simulate_declared(story)


def test_no_worker_is_replaced_when_many_fail() -> None:
    async def story(world: DeclaredWorld) -> None:
        before = await built(world)
        for dead in workers(world)[:2]:
            world.kill(dead)
        await asyncio.sleep(30 * _MINUTE)
        assert names(world) == before

    simulate_declared(story)


def test_no_worker_is_replaced_while_manager_has_no_contact() -> None:
    async def story(world: DeclaredWorld) -> None:
        before = await built(world)
        dead = workers(world)[0]
        world.kill(dead)
        await asyncio.sleep(2 * _MINUTE)  # its Node is not ready, for less than the timeout
        world.downstream("c").unreachable = True
        await asyncio.sleep(60 * _MINUTE)
        assert names(world) == before
        # The Node has failed for an hour, of which the manager has seen two minutes. The host needs a moment to return.
        world.downstream("c").unreachable = False
        await asyncio.sleep(2 * _MINUTE)
        world.heal(dead)
        await world.ready("c")
        await asyncio.sleep(10 * _MINUTE)
        assert names(world) == before

    simulate_declared(story)
