from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import admission
from remuda.capi.admission import machine, machinedeployment
from remuda.kube.admission import ALLOWED
from tests.unit.capi.admission.judging import Json, admitted, an_object, complaints, machine_spec, review

FUNCTIONS = {entry.plural: entry.function for entry in admission.FUNCTIONS}


def deployment(**more: Any) -> Json:
    return an_object({"clusterName": "c1", "selector": {}, "template": {"spec": machine_spec()}, **more})


def test_every_kind_has_an_admission_function_for_create_and_update() -> None:
    assert [(entry.group, entry.operations) for entry in admission.FUNCTIONS] == [
        ("cluster.x-k8s.io", ("CREATE", "UPDATE"))
    ] * 6
    assert sorted(FUNCTIONS) == [
        "clusters",
        "machinedeployments",
        "machinedrainrules",
        "machinehealthchecks",
        "machines",
        "machinesets",
    ]


@pytest.mark.parametrize("plural", FUNCTIONS)
@pytest.mark.parametrize("subresource", ["status", "scale"])
def test_status_and_scale_subresources_are_admitted(plural: str, subresource: str) -> None:
    assert FUNCTIONS[plural](review({"spec": {}}, {"spec": {}}, subresource=subresource)) is ALLOWED


@pytest.mark.parametrize("plural", FUNCTIONS)
def test_deletions_are_admitted(plural: str) -> None:
    assert FUNCTIONS[plural](review(None, {"spec": {}})) is ALLOWED


def test_fully_defaulted_object_is_not_patched() -> None:
    stored = admitted(machinedeployment.admit, deployment())
    assert machinedeployment.admit(review(stored)).patch is None
    assert machinedeployment.admit(review(stored, stored)).patch is None


def test_defaulting_patch_contains_only_missing_fields() -> None:
    stored = admitted(machine.admit, an_object(machine_spec(deletion={"nodeDrainTimeoutSeconds": 5})))
    del stored["spec"]["deletion"]["nodeDeletionTimeoutSeconds"]
    assert machine.admit(review(stored)).patch == {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 10}}}


def test_undecodable_object_is_denied_with_field_path() -> None:
    assert complaints(machine.admit, an_object(machine_spec(taints=[{"key": 5}]))) == [
        'spec.taints[0].key: Invalid value: "": Expected `str`, got `int`'
    ]


def test_update_is_admitted_despite_existing_errors() -> None:
    old = an_object(machine_spec(version="v1.35", bootstrap={}))
    new = an_object(machine_spec(version="v1.35", bootstrap={}), finalizers=[])
    assert len(complaints(machine.admit, old)) == 2
    assert complaints(machine.admit, new, old) == []


def test_update_is_denied_for_new_errors() -> None:
    old = an_object(machine_spec(bootstrap={}))
    assert complaints(machine.admit, an_object(machine_spec(bootstrap={}, version="v1.35")), old) == [
        'spec.version: Invalid value: "v1.35": must be a semantic version, as in v1.35.2'
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PLACES = [(), ("spec",), ("metadata",), ("metadata", "labels"), ("metadata", "annotations"), ("metadata", "name")] + [
    ("spec", field)
    for field in (
        "clusterName",
        "selector",
        "template",
        "replicas",
        "rollout",
        "deletion",
        "checks",
        "drain",
        "version",
    )
]


@given(st.sampled_from(sorted(FUNCTIONS)), st.sampled_from(PLACES), JSON)
def test_arbitrary_values_never_crash_admission(plural: str, place: tuple[str, ...], value: Any) -> None:
    new: Any = deployment()
    inner = new
    for step in place[:-1]:
        inner = inner[step]
    if place:
        inner[place[-1]] = value
    else:
        new = {"metadata": {}, "spec": value}
    verdict = FUNCTIONS[plural](review(new))
    assert isinstance(verdict.errors, tuple)
    assert not (verdict.errors and verdict.patch)


def test_admission_ignores_object_status() -> None:
    odd = {**an_object(machine_spec()), "status": {"conditions": "none"}}
    assert complaints(machine.admit, odd) == []
