from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import propagation

TIMEOUTS = ("nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds")


def propagated(source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(target)
    propagation.propagate_fields(source, result)
    return result


def test_in_place_fields_are_set_and_removed() -> None:
    source = {"minReadySeconds": 5, "taints": [{"key": "a"}]}
    target = {"minReadySeconds": 1, "readinessGates": [{"conditionType": "X"}], "version": "v1"}
    assert propagated(source, target) == {"minReadySeconds": 5, "taints": [{"key": "a"}], "version": "v1"}


def test_revision_fields_are_not_handed_down() -> None:
    source = {"version": "v2", "providerID": "b", "failureDomain": "z", "infrastructureRef": {"name": "new"}}
    target = {"version": "v1", "providerID": "a", "infrastructureRef": {"name": "old"}}
    assert propagated(source, target) == target


def test_zero_values_are_handed_down() -> None:
    assert propagated({"minReadySeconds": 0}, {"minReadySeconds": 5}) == {"minReadySeconds": 0}
    assert propagated({"deletion": {"nodeDrainTimeoutSeconds": 0}}, {}) == {"deletion": {"nodeDrainTimeoutSeconds": 0}}


def test_empty_deletion_object_is_removed() -> None:
    assert propagated({}, {"deletion": {"nodeDrainTimeoutSeconds": 5}}) == {}


def test_admission_defaults_are_not_removed() -> None:
    filled = {"deletion": {"nodeDeletionTimeoutSeconds": 10}}
    assert propagated({}, filled) == filled
    assert propagated({"deletion": {"nodeDeletionTimeoutSeconds": 0}}, filled) == {
        "deletion": {"nodeDeletionTimeoutSeconds": 0}
    }
    assert propagated({}, {"deletion": {"nodeDeletionTimeoutSeconds": 60}}) == {}


def test_hand_down_timeouts_copies_only_deletion_timeouts() -> None:
    target = {"minReadySeconds": 1}
    propagation.propagate_timeouts({"minReadySeconds": 9, "deletion": {"nodeDrainTimeoutSeconds": 3}}, target)
    assert target == {"minReadySeconds": 1, "deletion": {"nodeDrainTimeoutSeconds": 3}}


deletions = st.fixed_dictionaries({}, optional={name: st.sampled_from([0, 10, 60]) for name in TIMEOUTS})
specs = st.fixed_dictionaries(
    {}, optional={"minReadySeconds": st.integers(0, 3), "deletion": deletions, "version": st.sampled_from(["a", "b"])}
)


@given(source=specs, target=specs)
def test_handing_down_is_idempotent(source: dict[str, Any], target: dict[str, Any]) -> None:
    once = propagated(source, target)
    assert propagated(source, once) == once
    assert once.get("version") == target.get("version")
    assert once.get("minReadySeconds") == source.get("minReadySeconds")
