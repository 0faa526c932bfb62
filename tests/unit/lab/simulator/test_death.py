"""Deaths in declared clusters, in virtual time: within a minute all kinds of clusters say so, and agree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from remuda.capi import health
from remuda.kube import conditions
from remuda.kube.objects import Condition
from remuda.lab.simulator.declared import NAMESPACE, SERVER, DeclaredWorld, pool, simulate_declared
from remuda.lab.simulator.hosts import ModelHost
from remuda.provisioning.types import MANAGEMENT_CLUSTER

SERVERS, WORKERS = pool("servers", 3, "etcd", "controlPlane"), pool("workers", 2, "worker")
ONE_SERVER = pool("servers", 1, "etcd", "controlPlane", "worker")
_MINUTE = 60.0 + 5.0  # the model's clusters move every five seconds


def _condition(found: Sequence[Condition], type: str) -> Condition:
    one = conditions.find(found, type)
    assert one is not None, f"there is no condition {type}"
    return one


async def said(world: DeclaredWorld, name: str = "c") -> dict[str, Condition]:
    """Return what each kind says of whether the cluster is alive."""
    declared, plane, core = world.declared(name), world.plane(name), world.cluster(name, NAMESPACE)
    assert declared is not None
    assert plane is not None
    assert core is not None
    value = await world.client.get(MANAGEMENT_CLUSTER.target, "", declared.status.cluster_name)
    ready = _condition(declared.status.conditions, "Ready")
    assert bool(declared.status.ready) == (ready.status == "True"), "status.ready says what Ready says"
    return {
        "declared": ready,
        "control plane": _condition(plane.status.conditions, "Ready"),
        "core": _condition(core.status.conditions, "Available"),
        "management": _condition(MANAGEMENT_CLUSTER.decode(value).status.conditions, "Ready"),
    }


async def all_say(world: DeclaredWorld, status: str, reason: str = "", *words: str) -> None:
    found = await said(world)
    assert {kind: one.status for kind, one in found.items()} == dict.fromkeys(found, status), found
    for kind, one in found.items():
        assert not reason or one.reason == reason, (kind, one)
        assert all(word in one.message for word in words), (kind, one)
        assert kind == "control plane" or "\n" not in one.message, (kind, one)


def hosts(world: DeclaredWorld, *roles: str) -> list[ModelHost]:
    """Of servers, or of workers."""
    return [one for one in world.hosts("c") if one.service is not None and one.service.server == ("server" in roles)]


async def built(world: DeclaredWorld, *pools: Any) -> None:
    await world.declare("c", pools)
    await world.ready("c")
    await world.quiet()
    await all_say(world, "True")


def test_dead_server_is_reported_within_a_minute_and_cleared_on_recovery() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS, WORKERS)
        dead = hosts(world, "server")[1]
        world.kill(dead)
        await asyncio.sleep(_MINUTE)
        await all_say(world, "False", health.NODE_NOT_READY, f"Node {dead.name} is not ready")
        world.heal(dead)
        await world.ready("c")
        await world.quiet()
        await all_say(world, "True")

    simulate_declared(scenario)


def test_dead_workers_are_reported_within_a_minute() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS, WORKERS)
        workers = hosts(world, "worker")
        for one in workers:
            world.kill(one)
        await asyncio.sleep(_MINUTE)
        await all_say(world, "False", health.NODE_NOT_READY, *(one.name for one in workers))

    simulate_declared(scenario)


def test_unresponsive_cluster_api_makes_health_unknown_after_a_minute() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, ONE_SERVER)
        (server,) = world.hosts("c")
        world.kill(server)
        await asyncio.sleep(30)
        await all_say(world, "True")
        await asyncio.sleep(_MINUTE - 30)
        await all_say(world, "Unknown", health.API_SILENT, "API has not answered since")
        await asyncio.sleep(1200)
        await all_say(world, "Unknown", health.API_SILENT, "API has not answered since")
        world.heal(server)
        await world.ready("c")
        await world.quiet()
        await all_say(world, "True")

    simulate_declared(scenario)


def test_machine_with_deleted_server_is_reported_as_server_lost() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS, WORKERS)
        lost = hosts(world, "worker")[0].name
        await world.client.delete(SERVER.target, NAMESPACE, lost)
        await asyncio.sleep(_MINUTE)
        await all_say(world, "False", health.SERVER_LOST, f"Machine {lost}", "has been deleted")

    simulate_declared(scenario)


def test_lost_quorum_is_reported_and_stops_further_changes() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS, WORKERS)
        first, second, _ = hosts(world, "server")
        before = list(world.downstream("c").changes)
        world.kill(first)
        world.kill(second)
        await asyncio.sleep(_MINUTE)
        await all_say(world, "False", "QuorumLost", first.name, second.name, "silent since", "restore from a snapshot")
        plans = {one.name: one.plan for one in world.hosts("c")}
        await world.edit("c", {"kubernetesVersion": "v1.36.5+k3s1"})
        await world.remove_machine(first.name)
        await asyncio.sleep(1200)
        await all_say(world, "False", "QuorumLost", second.name)
        assert {one.name: one.plan for one in world.hosts("c")} == plans
        assert world.downstream("c").changes == before
        assert world.machine(first.name, NAMESPACE) is not None, "its data may be needed"
        declared = world.declared("c")
        assert declared is not None
        assert conditions.is_true(declared.status.conditions, "Stalled")
        for one in (first, second):
            world.heal(one)
        await world.ready("c")
        assert await world.broken() == []

    simulate_declared(scenario)


def test_lost_quorum_report_survives_manager_restart() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS)
        dead = hosts(world, "server")[:2]
        for one in dead:
            world.kill(one)
        await asyncio.sleep(_MINUTE)
        told = (await said(world))["declared"]
        await world.crash()
        await asyncio.sleep(600)
        await all_say(world, "False", "QuorumLost", *(one.name for one in dead))
        assert (await said(world))["declared"] == told
        for one in dead:
            world.heal(one)
        await world.ready("c")

    simulate_declared(scenario)


@pytest.mark.parametrize("dies", [False, True])
def test_restarted_manager_keeps_health_status_until_first_probe(dies: bool) -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, ONE_SERVER)
        before = await said(world)
        if dies:
            world.kill(world.hosts("c")[0])
        await world.crash()
        await asyncio.sleep(50)
        assert await said(world) == before, "nothing is written, and the time is that of the old value"
        await asyncio.sleep(_MINUTE - 50)
        if dies:
            await all_say(world, "Unknown", health.API_SILENT, "API has never answered, first asked at")
        else:
            assert await said(world) == before

    simulate_declared(scenario)


def test_idle_healthy_cluster_writes_nothing() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await built(world, SERVERS, WORKERS)
        before = len(world.history)
        await asyncio.sleep(3600)
        written = [line for line in world.history[before:] if " events " not in line]  # which expire
        assert [line for line in written if not line.endswith("-machine-plan")] == [], "agents report once an hour"

    simulate_declared(scenario)
