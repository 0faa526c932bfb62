"""What examples/ and the pages of docs/ show works as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.kube.client import Target
from remuda.lab.simulator.world import World, simulate

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "examples" / "cluster.yaml"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def manifest() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


async def apply(world: World, obj: dict[str, Any]) -> None:
    target = Target(obj["apiVersion"], f"{obj['kind'].lower()}s")
    metadata = obj["metadata"]
    await world.client.patch(target, metadata["namespace"], metadata["name"], obj, kind="apply", field_manager="test")


@pytest.mark.parametrize("reverse", [False, True], ids=["as written", "in any order"])
def test_example_manifest_becomes_available_and_deletion_leaves_nothing(reverse: bool) -> None:
    async def scenario(world: World) -> None:
        before = set(world.present())
        objects = manifest()
        for obj in reversed(objects) if reverse else objects:
            await apply(world, obj)
        await world.available("savanna")
        machines = world.machines("savanna")
        assert sorted(machine.is_control_plane for machine in machines) == [False, False, True]
        assert {machine.spec.version for machine in machines} == {"v1.35.2"}
        await world.delete_cluster("savanna")
        await world.quiet()
        assert await world.cloud.hosts() == []
        assert await world.broken() == []
        assert {path for path in world.present() if "savanna" in path and "events" not in path} == set()
        assert before <= set(world.present())

    simulate(scenario)


def test_simulator_page_code_examples_run() -> None:
    scenarios = _PYTHON.findall((ROOT / "docs" / "simulator.md").read_text())
    assert len(scenarios) == 2
    for code in scenarios:
        exec(code, {})
