"""Random clusters, faults and edits, judged by a model of etcd and hosts: the quorum is never lost by us, members
change one at a time, a cluster begins once, no plan is given twice, and when faults end the work does too."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.kube import clock
from tests.unit.providers.controlplane.planner.model import (
    ALL,
    CONTROL_PLANE,
    ETCD,
    SERVER,
    TICK,
    WORKER,
    World,
    in_world_time,
)
from tests.unit.providers.controlplane.planner.plans import decide

SHAPES = (
    {"all": (ALL, 1)},
    {"all": (ALL, 3)},
    {"server": (SERVER, 3), "worker": (WORKER, 2)},
    {"server": (SERVER, 1), "worker": (WORKER, 3)},
    {"etcd": (ETCD, 3), "control": (CONTROL_PLANE, 2), "worker": (WORKER, 2)},
    {"server": (SERVER, 5), "worker": (WORKER, 1)},
)
DEEDS = ("upgrade", "configure", "scale", "delete", "crash", "recover", "fail", "cut", "deafen")
EXAMPLES = int(os.environ.get("REMUDA_EXAMPLES", "40"))  # more of them, and others, when asked for
WAIT = 4 * 3600.0

events = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(DEEDS), st.integers(0, 20)), max_size=12)


@pytest.fixture(autouse=True)
def world_time() -> Iterator[None]:
    yield
    clock.use(None)


@settings(
    max_examples=EXAMPLES,
    derandomize=not os.environ.get("REMUDA_EXAMPLES"),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), shape=st.sampled_from(SHAPES), drain=st.booleans(), scenario=events)
def test_random_scenarios_keep_quorum_and_converge(
    repeatable: None, seed: int, shape: dict[str, tuple[object, int]], drain: bool, scenario: list[tuple[int, str, int]]
) -> None:
    run(seed, shape, drain, scenario)


def run(seed: int, shape: dict[str, tuple[object, int]], drain: bool, scenario: list[tuple[int, str, int]]) -> World:
    world = World(seed, shape, drain=drain)  # type: ignore[arg-type]
    in_world_time(world)
    for pause, deed, which in scenario:
        for _ in range(pause):
            step(world)
        do(world, deed, which)
    end_faults(world)
    for _ in range(int(WAIT / TICK)):
        step(world)
        if world.is_settled():
            break
    assert not world.problems(), world.problems()
    assert world.last is not None
    if not world.is_settled():
        assert is_excused(world), (world.last, world.etcd.members)
        world.excused = True
    plans = {name: machine.plan for name, machine in world.machines.items()}
    for _ in range(20):
        step(world)
        assert not world.last.acts, "a cluster that is as it shall be is left alone"
    assert plans == {name: machine.plan for name, machine in world.machines.items()}
    return world


def step(world: World) -> None:
    world.tick()
    if world.chance.random() < 0.8:
        world.manage(decide)


def do(world: World, deed: str, which: int) -> None:
    machines = sorted(world.machines.values(), key=lambda m: m.name)
    machine = machines[which % len(machines)] if machines else None
    pool = sorted(world.pools)[which % len(world.pools)]
    if deed == "upgrade":
        world.version = f"v1.36.{4 + which}+k3s1"
    elif deed == "configure":
        world.settings = which
    elif deed == "scale":
        world.scale(pool, max(1, which % 5))
    elif deed == "cut":
        world.cut = not world.cut
    elif machine is None:
        return
    elif deed == "delete":
        world.replace(machine)
    elif deed == "crash":
        world.crash(machine)
    elif deed == "recover":
        world.recover(machine)
    elif deed == "fail":
        machine.failing_runs = which % 4
    elif deed == "deafen":
        machine.cut_off = not machine.cut_off


def end_faults(world: World) -> None:
    world.cut, world.last = False, None
    for machine in world.machines.values():
        world.recover(machine)
        machine.cut_off, machine.failing_runs = False, 0


def is_excused(world: World) -> bool:
    """Two members cannot do without either, and the last one is not given up: that is told, and waits for the user."""
    assert world.last is not None
    reasons = {wait.reason for wait in world.last.held}
    return (len(world.etcd.voters) == 2 and "QuorumAtRisk" in reasons) or "LastEtcdMember" in reasons
