"""Whole worlds: the real engine and controllers on simulated infrastructure, in virtual time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from remuda.capi.types import MACHINE_DEPLOYMENT
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import FAMILIES, NEW, Family
from remuda.lab.simulator.types import MachineScript
from remuda.lab.simulator.world import World, simulate

EITHER = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)


async def patched(world: World, kind: Any, name: str, patch: dict[str, Any]) -> None:
    await world.client.patch(kind.target, "default", name, patch)


async def well(world: World) -> None:
    await world.quiet()
    assert await world.broken() == []


@EITHER
def test_cluster_becomes_available_and_deletion_leaves_nothing(family: Family) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3, workers=2, family=family))
        await world.available("c")
        assert len(await world.cloud.hosts()) == 5
        assert len(world.workloads.etcd(world.cluster_key("c")).voters) == 3
        await world.delete_cluster("c")
        await well(world)
        assert await world.cloud.hosts() == []
        assert world.workloads.find(world.cluster_key("c")) is None
        left = [line for line in world.present() if "default/c" in line and not line.startswith("events")]
        assert left == []

    simulate(scenario)


async def _eventful(world: World) -> list[str]:
    script = MachineScript(boot_seconds=7, refusals=1, answers_lost=1)
    await world.create_cluster(Blueprint(name="c", workers=3, machines=script))
    await world.available("c")
    await patched(world, NEW.control_plane, "c", {"spec": {"version": "v1.36.1"}})
    await world.quiet()
    await world.delete_cluster("c")
    return world.history


def test_same_seed_reproduces_the_run_in_another_process() -> None:
    script = (
        "from remuda.lab.simulator.world import simulate; from tests.unit.lab.simulator.test_world import _eventful;"
        "print(*simulate(_eventful, seed=1), sep='\\n')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    elsewhere = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert simulate(_eventful, seed=1) == elsewhere.stdout.splitlines()


def test_different_seed_gives_a_different_run() -> None:
    assert simulate(_eventful, seed=1) != simulate(_eventful, seed=2)


def test_idle_cluster_writes_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3, workers=3))
        await world.available("c")
        await asyncio.sleep(2 * 3600)
        before = len(world.history)
        await asyncio.sleep(24 * 3600)
        assert world.history[before:] == []

    simulate(scenario)


@EITHER
def test_control_plane_rollout_replaces_one_machine_at_a_time(family: Family) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3, family=family))
        await world.available("c")
        old = {machine.metadata.name for machine in world.machines("c")}
        most: list[int] = []
        world.on_write(lambda: most.append(len(world.machines("c"))))
        await patched(world, family.control_plane, "c", {"spec": {"version": "v1.36.1"}})
        await world.until(lambda: not old & {m.metadata.name for m in world.machines("c")}, "all are replaced")
        await world.available("c")
        assert {machine.spec.version for machine in world.machines("c")} == {"v1.36.1"}
        assert max(most) == 4
        await well(world)

    simulate(scenario)


def test_control_plane_scales_up_and_down() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c"))
        await world.available("c")
        for replicas in (3, 5, 1):
            await patched(world, NEW.control_plane, "c", {"spec": {"replicas": replicas}})
            await world.until(lambda wanted=replicas: len(world.machines("c")) == wanted, f"{replicas} Machines")  # type: ignore[misc]
            await world.available("c")
            assert len(world.workloads.etcd(world.cluster_key("c")).voters) == replicas
        await well(world)
        assert len(await world.cloud.hosts()) == 1

    simulate(scenario)


def test_workers_are_scaled_and_rolled() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=2))
        await world.available("c")
        await patched(world, MACHINE_DEPLOYMENT, "c-workers", {"spec": {"replicas": 4}})
        await world.until(lambda: len(world.machines("c")) == 5, "four workers")
        await world.available("c")
        change = {"spec": {"template": {"spec": {"version": "v1.36.1"}}}}
        await patched(world, NEW.control_plane, "c", {"spec": {"version": "v1.36.1"}})
        await patched(world, MACHINE_DEPLOYMENT, "c-workers", change)
        await world.until(lambda: all(m.spec.version == "v1.36.1" for m in world.machines("c")), "all are rolled")
        await world.available("c")
        await well(world)
        assert len(await world.cloud.hosts()) == 5

    simulate(scenario)


def test_unreliable_cloud_never_creates_duplicate_servers() -> None:
    async def scenario(world: World) -> None:
        script = MachineScript(refusals=2, answers_lost=2, boot_seconds=20, node_seconds=10)
        await world.create_cluster(Blueprint(name="c", control_planes=3, workers=3, machines=script))
        await world.available("c")
        await well(world)
        events = [entry.event for entry in world.cloud.journal]
        assert (events.count("create"), events.count("refuse")) == (6, 12)

    simulate(scenario)


def test_wait_timeout_error_names_the_awaited_state() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", machines=MachineScript(bootstrap_fails=True)))
        with pytest.raises(TimeoutError, match=r"Cluster c is available.*never becomes a Node"):
            await world.available("c", seconds=120)

    simulate(scenario)


def test_ten_clusters_become_available_in_one_world() -> None:
    async def scenario(world: World) -> None:
        names = [f"c{number}" for number in range(10)]
        for name in names:
            await world.create_cluster(Blueprint(name=name, workers=2))
        for name in names:
            await world.available(name)
        await well(world)
        assert len(await world.cloud.hosts()) == 30

    simulate(scenario)


async def _unknown_server(world: World) -> list[str]:
    from remuda.lab.simulator.cloud import HostRequest

    await world.cloud.create(HostRequest(name="lost", tag="default/c"))
    return await world.broken()


async def _second_server(world: World) -> list[str]:
    from remuda.lab.simulator.cloud import HostRequest

    for _ in range(2):
        await world.cloud.create(HostRequest(name="again", tag="default/c"))
        await world.cloud.remove("again", "default/c")
    return await world.broken()


async def _lost_quorum(world: World) -> list[str]:
    etcd = world.workloads.etcd(world.cluster_key("c"))
    etcd.bootstrap("m0")
    etcd.take_host("m0")
    return await world.broken()


@pytest.mark.parametrize(
    ("misdeed", "complaint"),
    [(_unknown_server, "nobody knows"), (_second_server, "made twice"), (_lost_quorum, "quorum was lost")],
)
def test_models_detect_invariant_violations(misdeed: Any, complaint: str) -> None:
    [found] = simulate(misdeed)
    assert complaint in found
