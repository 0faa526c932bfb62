"""The examples are clusters that can be made."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from remuda.provisioning.admission import cluster as judging
from tests.unit.provisioning.clusters import desired, read
from tests.unit.test_examples import ROOT

Json = dict[str, Any]


def objects(name: str) -> list[Json]:
    return list(yaml.safe_load_all((ROOT / "examples" / name).read_text()))


@pytest.mark.parametrize(("name", "machines"), [("nano.yaml", 5), ("k3s.yaml", 8)])
def test_example_has_its_configs_and_expected_machine_count(name: str, machines: int) -> None:
    *brought, raw = objects(name)
    assert judging.complaints(read(raw)) == []
    made = desired(raw)
    assert sum(pool.deployment["spec"]["replicas"] for pool in made.pools) == machines
    configs = {(one["kind"], one["metadata"]["name"]) for one in brought if one["kind"].endswith("Config")}
    asked = {
        (pool["machineConfigRef"]["kind"], pool["machineConfigRef"]["name"])
        for pool in raw["spec"]["rkeConfig"]["machinePools"]
    }
    assert asked == configs
