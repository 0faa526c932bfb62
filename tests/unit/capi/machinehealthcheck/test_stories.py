"""Health checks in a whole world, in virtual time: who is replaced, when to the second, and who never is."""

from __future__ import annotations

import asyncio

from remuda.capi import names
from remuda.capi.types import MACHINE_HEALTH_CHECK, Machine, MachineHealthCheck
from remuda.kube import clock, conditions
from remuda.lab.simulator import nodes
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.workload import ModelWorkload
from remuda.lab.simulator.world import World, simulate

TIMEOUT = 300
HOUR = 3600.0


async def cluster_with_workers(world: World, workers: int, limit: int | str = "100%") -> ModelWorkload:
    """A cluster of one control plane Machine and some workers, which a health check looks after."""
    await world.create_cluster(Blueprint(name="c", workers=workers))
    spec = {
        "clusterName": "c",
        "selector": {"matchLabels": {names.DEPLOYMENT_NAME: "c-workers"}},
        "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": TIMEOUT}]},
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": limit}},
    }
    await world.client.create(MACHINE_HEALTH_CHECK.target, "default", {"metadata": {"name": "hc"}, "spec": spec})
    await world.available("c")
    await world.until(lambda: check(world).status.current_healthy == workers, "all workers are healthy")
    workload = world.workloads.find(world.cluster_key("c"))
    assert workload is not None
    return workload


def check(world: World) -> MachineHealthCheck:
    found = world.manager.caches.of(MACHINE_HEALTH_CHECK).get("default", "hc")
    assert found is not None
    return found


def workers(world: World) -> list[Machine]:
    return [machine for machine in world.machines("c") if not machine.is_control_plane]


async def well(world: World) -> None:
    await world.quiet()
    assert await world.broken() == []


def test_only_the_failed_worker_is_replaced_after_timeout() -> None:
    async def story(world: World) -> None:
        workload = await cluster_with_workers(world, workers=3)
        before = {machine.metadata.name for machine in world.machines("c")}
        sick = workers(world)[0].metadata.name
        await nodes.fail(workload, sick)
        since = clock.parse(clock.now())
        await world.until(lambda: any(one.metadata.deleting for one in world.machines("c")), "somebody is replaced")
        assert 0 <= clock.time() - since - TIMEOUT < 2
        await world.until(lambda: check(world).status.current_healthy == 3, "all workers are healthy again")
        await well(world)
        after = {machine.metadata.name for machine in world.machines("c")}
        assert before - after == {sick}
        assert len(after) == 4
        assert len(await world.cloud.hosts()) == 4

    simulate(story)


def test_worker_that_recovers_before_timeout_is_kept() -> None:
    async def story(world: World) -> None:
        workload = await cluster_with_workers(world, workers=2)
        before = world.machines("c")
        await nodes.fail(workload, before[-1].metadata.name)
        await asyncio.sleep(TIMEOUT - 5)
        await nodes.revive(workload, before[-1].metadata.name)
        await asyncio.sleep(HOUR)
        assert [machine.metadata.uid for machine in world.machines("c")] == [machine.metadata.uid for machine in before]
        assert check(world).status.current_healthy == 2

    simulate(story)


def test_unreachable_cluster_for_an_hour_replaces_no_machine() -> None:
    async def story(world: World) -> None:
        workload = await cluster_with_workers(world, workers=3)
        before = [machine.metadata.uid for machine in world.machines("c")]
        workload.cut = True
        await asyncio.sleep(HOUR)
        told = conditions.find(check(world).status.conditions, "RemediationAllowed")
        assert told is not None
        assert "Cluster c has not been reachable since" in told.message
        assert check(world).status.current_healthy == 3
        workload.cut = False
        await world.available("c")
        await well(world)
        assert [machine.metadata.uid for machine in world.machines("c")] == before
        told = conditions.find(check(world).status.conditions, "RemediationAllowed")
        assert told is not None
        assert told.message == ""

    simulate(story)


def test_failure_of_all_workers_replaces_none_until_below_limit() -> None:
    async def story(world: World) -> None:
        workload = await cluster_with_workers(world, workers=3, limit="40%")
        before = {machine.metadata.name for machine in workers(world)}
        for name in before:
            await nodes.fail(workload, name)
        await asyncio.sleep(HOUR)
        assert {machine.metadata.name for machine in workers(world)} == before
        assert conditions.is_false(check(world).status.conditions, "RemediationAllowed")
        first, second, third = sorted(before)
        for name in (first, second):
            await nodes.revive(workload, name)
        await world.until(lambda: third not in {one.metadata.name for one in workers(world)}, f"{third} is replaced")
        await well(world)
        assert {first, second} < {machine.metadata.name for machine in workers(world)}

    simulate(story)
