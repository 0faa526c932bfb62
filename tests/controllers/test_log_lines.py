"""The log of controllers on an engine: the lines tell what happened, in order, with the objects' names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.controllers.engine import Engine, named
from tests.controllers.providers import PROVIDERS
from tests.controllers.rollout_harness import RolloutHarness, counted
from tests.lab.log_lines import LogLines


@pytest.fixture
def lines() -> Iterator[LogLines]:
    handler, logger = LogLines(), logging.getLogger("remuda.runtime")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


async def test_log_shows_machine_set_creation_steps_in_order(engine: Engine, lines: LogLines) -> None:
    harness = await RolloutHarness.create(engine, PROVIDERS[0])
    await harness.cluster()
    await harness.templates()
    await harness.machine_set(1)
    async with harness.running():
        await harness.set_with(counted(replicas=1, readyReplicas=1, availableReplicas=1))
    (machine,) = map(named, await harness.machines())

    scenario = [line for line in lines.all if line.get("controller") == "machineset"]
    assert {(line["namespace"], line["name"]) for line in scenario} == {(harness.namespace, "ms")}
    assert all(line["reconcile"] for line in scenario)
    acted = [(line["step"], line["message"].partition(" (")[2].rstrip(")")) for line in scenario if "step" in line]
    provider, made = harness.provider, f"{harness.namespace}/{machine}"
    creations = [
        ("machineset.create-machine", f"create machines {made}"),
        ("machineset.create-bootstrap", f"create {provider.config.target.plural} {made}"),
        ("machineset.create-infrastructure", f"create {provider.machine.target.plural} {made}"),
    ]
    assert [one for one in acted if one[0].startswith("machineset.create-")] == creations
    assert acted[-1] == ("machineset.publish", f"patch machinesets/status {harness.namespace}/ms")
    ids = {line["reconcile"] for line in scenario if line.get("step", "").startswith("machineset.create-")}
    assert len(ids) == 1, "one reconcile created the Machine and its objects"
