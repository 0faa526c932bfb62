"""Declared clusters in a simulated world: all real controllers, model hosts that carry out their plans."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.capi.types import MACHINE
from remuda.lab.simulator.declared import NAMESPACE, DeclaredWorld, pool, simulate_declared
from remuda.providers.controlplane.planner.quorum import Guard
from tests.unit.lab.simulator.random_scenarios import SHAPES, Scenario

SERVERS, WORKERS = pool("servers", 3, "etcd", "controlPlane"), pool("workers", 1, "worker")


async def _well(world: DeclaredWorld) -> None:
    await world.quiet()
    assert await world.broken() == []


def test_declared_cluster_upgrades_in_place_and_deletion_leaves_nothing() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [SERVERS, WORKERS])
        await world.ready("c")
        first = world.downstream("c").changes
        assert [change.split()[1] for change in first] == ["begins", "joins", "votes", "joins", "votes"]
        machines = {one.metadata.uid for one in world.machines("c", NAMESPACE)}
        await world.edit("c", {"kubernetesVersion": "v1.36.5+k3s1"})
        await world.ready("c")
        assert {one.metadata.uid for one in world.machines("c", NAMESPACE)} == machines, "in place"
        nodes = await world.downstream("c").nodes()
        assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes.values()} == {"v1.36.5+k3s1"}
        await _well(world)
        await world.delete_declared("c")
        await _well(world)
        assert await world.servers.servers() == []

    simulate_declared(scenario)


def test_dead_etcd_member_is_removed_before_replacement_joins() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [SERVERS])
        await world.ready("c")
        dead = world.hosts("c")[0]
        world.kill(dead)
        await world.remove_machine(dead.name)
        await world.ready("c")
        changes = world.downstream("c").changes[5:]
        assert changes[0] == f"{dead.name} leaves", changes
        assert [change.split()[1] for change in changes[1:]] == ["joins", "votes"]
        await _well(world)

    simulate_declared(scenario, catch_up_seconds=30.0)


def test_failing_plan_is_retried_and_its_error_is_in_cluster_conditions() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [pool("all", 1, "etcd", "controlPlane", "worker")])
        await world.ready("c")
        world.hosts("c")[0].failing = 3
        await world.edit("c", {"kubernetesVersion": "v1.36.5+k3s1"})

        def shows_host_error() -> bool:
            cluster = world.declared("c")
            return cluster is not None and any("the disk is full" in one.message for one in cluster.status.conditions)

        await world.until(shows_host_error, "the words of the host are told")
        await world.ready("c")
        await _well(world)

    simulate_declared(scenario)


# ---- the judge


def test_judge_detects_quorum_loss_by_unguarded_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """One host is long dead, and another one is restarted."""
    monkeypatch.setattr(Guard, "against_stopping", lambda self, host, *, joining: None)

    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [SERVERS])
        await world.ready("c")
        world.kill(world.hosts("c")[0])
        await asyncio.sleep(300)
        assert await world.broken() == []
        await world.edit("c", {"kubernetesVersion": "v1.36.5+k3s1"})
        await asyncio.sleep(300)
        assert any("1 of 3 voters are left" in one for one in await world.broken())

    simulate_declared(scenario)


def _most_pods(most: int) -> dict[str, Any]:
    return {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": [f"max-pods={most}"]}}}


def test_judge_reports_flapping_plans_except_after_user_edits() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        await world.declare("c", [pool("all", 1, "etcd", "controlPlane", "worker")])
        await world.ready("c")
        for most in (100, 120, 100):
            await world.edit("c", _most_pods(most))
            await world.ready("c")
        assert await world.broken() == []
        await world.quiet()
        for most in (130, 140, 130):
            await world.edit("c", _most_pods(most))
            world.judge.epoch = 0  # as if nobody had
            await world.quiet()
        assert any("flaps" in one for one in await world.broken())

    simulate_declared(scenario)


def test_scenario_detects_write_during_idle_hour() -> None:
    async def scenario(world: DeclaredWorld) -> None:
        random_scenario = Scenario(world, SHAPES[0])
        await world.declare("c", list(random_scenario.pools.values()))
        await world.ready("c")
        name = world.machines("c", NAMESPACE)[0].metadata.name

        async def meddle() -> None:
            await asyncio.sleep(1800)
            await world.client.patch(MACHINE.target, NAMESPACE, name, {"metadata": {"labels": {"a": "b"}}})

        async with asyncio.TaskGroup() as group:
            group.create_task(meddle())
            with pytest.raises(AssertionError, match=name):
                await random_scenario.rest()

    simulate_declared(scenario)
