"""Whether a Machine is what its MachineDeployment wants now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.revisions import differences, is_outdated
from remuda.capi.types import MachineDeployment, MachineSet
from remuda.kube.clock import rfc3339
from tests.unit.capi.machine.objects import EPOCH, NOW

TEMPLATE = {
    "version": "v1.35.0",
    "bootstrap": {"configRef": {"apiGroup": "b", "kind": "ConfigTemplate", "name": "one"}},
    "infrastructureRef": {"apiGroup": "i", "kind": "MachineTemplate", "name": "one"},
}


def a_set(created: str = EPOCH, revision: str = "", **spec: Any) -> MachineSet:
    return made(MachineSet, {"creationTimestamp": created}, revision, spec)


def a_deployment(revision: str = "", after: str | None = None, **spec: Any) -> MachineDeployment:
    return made(MachineDeployment, {}, revision, spec, {"rollout": {"after": after}} if after else {})


def made(type: Any, metadata: Any, revision: str, spec: Any, more: Any = None) -> Any:
    annotations = {names.REVISION: revision} if revision else {}
    raw = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"template": {"spec": {**TEMPLATE, **spec}}, **(more or {})},
    }
    return msgspec.convert(raw, type)


@pytest.mark.parametrize(
    ("mine", "latest", "outdated"),
    [("1", "2", True), ("2", "2", False), ("10", "9", False), ("", "2", False), ("1", "", False), ("1", "x", False)],
)
def test_machine_set_with_lower_revision_is_outdated(mine: str, latest: str, outdated: bool) -> None:
    assert is_outdated(a_set(revision=mine), a_deployment(revision=latest)) == outdated


def test_identical_template_has_no_differences() -> None:
    assert differences(a_set(), a_deployment(), NOW) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": "v1.36.0"}, "Version v1.35.0, v1.36.0 required"),
        ({"failureDomain": "b"}, "Failure domain not set, b required"),
        ({"bootstrap": {"dataSecretName": "x"}}, "Bootstrap template differs from that of the MachineDeployment"),
        (
            {"infrastructureRef": {"apiGroup": "i", "kind": "MachineTemplate", "name": "two"}},
            "Infrastructure was created from MachineTemplate one, MachineTemplate two required",
        ),
    ],
)
def test_each_template_difference_is_described(change: dict[str, Any], told: str) -> None:
    assert differences(a_set(), a_deployment(**change), NOW) == [told]


def test_in_place_fields_are_no_difference() -> None:
    assert differences(a_set(), a_deployment(minReadySeconds=30, taints=[]), NOW) == []


def test_passed_rollout_after_makes_older_machine_sets_outdated() -> None:
    due = a_deployment(after=rfc3339(NOW + 10))
    assert differences(a_set(), due, NOW) == []
    assert differences(a_set(), due, NOW + 10) == [
        f"MachineDeployment spec.rollout.after ({rfc3339(NOW + 10)}) has passed"
    ]
    assert differences(a_set(created=rfc3339(NOW + 10)), due, NOW + 20) == []
