"""The stages of a deletion: which apply, in which order, and that every state leads to the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machine.deletion import (
    MEANING,
    Facts,
    Stage,
    awaits_last_hooks,
    deadline,
    drain_deadline,
    hooks,
    node_deletion_limit,
    node_kept,
    skipped,
    volumes_deadline,
)
from remuda.kube.clock import rfc3339
from tests.unit.capi.machine.objects import NOW, deleting

HOOK = f"{names.PRE_DRAIN_HOOK}/backup"
LAST_HOOK = f"{names.PRE_TERMINATE_HOOK}/etcd"


def facts(annotations: dict[str, str] | None = None, **changes: Any) -> Facts:
    machine = deleting(
        meta={"annotations": annotations or {}}, status=changes.pop("status", {}), **changes.pop("spec", {})
    )
    return Facts(**{"machine": machine, "now": NOW, "node": "n-1", **changes})


def stages(found: Facts) -> list[Stage]:
    return [stage for stage in Stage if not skipped(stage, found)]


def test_every_stage_has_a_meaning() -> None:
    assert set(MEANING) == set(Stage)


def test_an_ordinary_machine_is_drained_before_its_server_goes() -> None:
    assert stages(facts()) == [
        Stage.DRAIN,
        Stage.VOLUMES,
        Stage.INFRASTRUCTURE,
        Stage.BOOTSTRAP,
        Stage.NODE,
        Stage.COMPLETED,
    ]


def test_hooks_are_waited_for_where_there_are_any() -> None:
    found = stages(facts({HOOK: "", LAST_HOOK: ""}))
    assert found.index(Stage.PRE_DRAIN_HOOK) < found.index(Stage.DRAIN)
    assert found.index(Stage.VOLUMES) < found.index(Stage.PRE_TERMINATE_HOOK) < found.index(Stage.INFRASTRUCTURE)


def test_hooks_are_found_with_and_without_a_name_behind_the_prefix() -> None:
    machine = deleting(meta={"annotations": {HOOK: "", names.PRE_DRAIN_HOOK: "", LAST_HOOK: "", "other": ""}})
    assert hooks(machine, names.PRE_DRAIN_HOOK) == [names.PRE_DRAIN_HOOK, HOOK]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cluster_deleting": True}, "Cluster is being deleted"),
        ({"node": ""}, "no Node"),
        ({"control_plane": "deleting"}, "control plane is being deleted"),
        ({"control_plane_left": False}, "no control plane Machine is left"),
        ({"control_plane": "missing", "control_plane_left": False}, "no control plane Machine is left"),
    ],
)
def test_a_node_that_nobody_will_miss_or_serve_is_left_alone(changes: dict[str, Any], why: str) -> None:
    found = facts({HOOK: "", LAST_HOOK: ""}, **changes)
    assert why in node_kept(found)
    assert stages(found) == [Stage.PRE_TERMINATE_HOOK, Stage.INFRASTRUCTURE, Stage.BOOTSTRAP, Stage.COMPLETED]


def test_a_control_plane_elsewhere_serves_without_machines() -> None:
    assert node_kept(facts(control_plane="external", control_plane_left=False)) == ""


def test_a_missing_control_plane_object_does_not_keep_the_node() -> None:
    assert node_kept(facts(control_plane="missing")) == ""


@pytest.mark.parametrize(
    ("stage", "annotation"),
    [(Stage.DRAIN, names.EXCLUDE_NODE_DRAINING), (Stage.VOLUMES, names.EXCLUDE_WAIT_FOR_VOLUME_DETACH)],
)
def test_an_annotation_leaves_out_its_stage_only(stage: Stage, annotation: str) -> None:
    assert set(stages(facts())) - set(stages(facts({annotation: ""}))) == {stage}


@pytest.mark.parametrize(
    ("stage", "limit", "began"),
    [
        (Stage.DRAIN, "nodeDrainTimeoutSeconds", "nodeDrainStartTime"),
        (Stage.VOLUMES, "nodeVolumeDetachTimeoutSeconds", "waitForNodeVolumeDetachStartTime"),
    ],
)
def test_a_stage_ends_with_its_time(stage: Stage, limit: str, began: str) -> None:
    def at(seconds: float, limit_seconds: int | None = 60, *, started: bool = True) -> bool:
        spec = {} if limit_seconds is None else {"deletion": {limit: limit_seconds}}
        status = {"deletion": {began: rfc3339(NOW)}} if started else {}
        return bool(skipped(stage, facts(status=status, spec=spec, now=NOW + seconds)))

    assert not at(59)
    assert at(60)
    assert not at(10_000, None)
    assert not at(10_000, 0)
    assert not at(10_000, started=False)


def test_drain_and_volumes_are_over_once_the_hooks_before_termination_were_asked_for() -> None:
    found = facts({LAST_HOOK: ""}, status={"deletion": {"waitForPreTerminateHookStartTime": rfc3339(NOW)}})
    assert stages(found)[0] == Stage.PRE_TERMINATE_HOOK


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ({}, False),
        ({"deletion": {"nodeDrainStartTime": rfc3339(NOW)}}, False),
        ({"deletion": {"waitForPreTerminateHookStartTime": rfc3339(NOW)}}, True),
        ({"conditions": [{"type": "Deleting", "status": "True", "reason": "DrainingNode"}]}, False),
        ({"conditions": [{"type": "Deleting", "status": "True", "reason": "WaitingForPreTerminateHook"}]}, True),
    ],
)
def test_the_last_hooks_are_awaited_as_any_core_says_it(status: dict[str, Any], waits: bool) -> None:
    assert awaits_last_hooks(deleting(status=status)) is waits


def test_nothing_is_drained_from_a_server_that_is_going() -> None:
    assert stages(facts(infrastructure_going=True))[0] == Stage.INFRASTRUCTURE


def test_volumes_of_an_unreachable_node_are_not_waited_for() -> None:
    assert skipped(Stage.VOLUMES, facts(node_unreachable=True))
    assert not skipped(Stage.DRAIN, facts(node_unreachable=True))


def test_deadlines() -> None:
    assert deadline(None, 10) is None
    assert deadline(rfc3339(NOW), None) is None
    assert deadline(rfc3339(NOW), 0) is None
    assert deadline(rfc3339(NOW), 10) == NOW + 10
    began = {"deletion": {"nodeDrainStartTime": rfc3339(NOW), "waitForNodeVolumeDetachStartTime": rfc3339(NOW)}}
    limits = {"nodeDrainTimeoutSeconds": 5, "nodeVolumeDetachTimeoutSeconds": 7}
    machine = deleting(status=began, deletion=limits)
    assert (drain_deadline(machine), volumes_deadline(machine)) == (NOW + 5, NOW + 7)


def test_the_deletion_of_a_node_is_tried_for_ten_seconds_unless_said() -> None:
    assert node_deletion_limit(deleting()) == 10
    assert node_deletion_limit(deleting(deletion={"nodeDeletionTimeoutSeconds": 0})) == 0
    assert node_deletion_limit(deleting(deletion={"nodeDeletionTimeoutSeconds": 99})) == 99


_ANNOTATIONS = [HOOK, LAST_HOOK, names.EXCLUDE_NODE_DRAINING, names.EXCLUDE_WAIT_FOR_VOLUME_DETACH]
any_facts = st.builds(
    facts,
    st.dictionaries(st.sampled_from(_ANNOTATIONS), st.just("")),
    cluster_deleting=st.booleans(),
    node=st.sampled_from(["", "n-1"]),
    node_unreachable=st.booleans(),
    control_plane=st.sampled_from(["none", "missing", "present", "deleting", "external"]),
    control_plane_left=st.booleans(),
    infrastructure_going=st.booleans(),
    status=st.sampled_from([{}, {"deletion": {"waitForPreTerminateHookStartTime": rfc3339(NOW)}}]),
)


@given(any_facts)
def test_every_state_has_a_way_to_the_end(found: Facts) -> None:
    order = stages(found)
    assert [stage for stage in order if stage in (Stage.INFRASTRUCTURE, Stage.BOOTSTRAP)] == [
        Stage.INFRASTRUCTURE,
        Stage.BOOTSTRAP,
    ]
    assert order[-1] == Stage.COMPLETED
    asked = LAST_HOOK in found.machine.metadata.annotations
    assert (Stage.PRE_TERMINATE_HOOK in order) == asked
    touches_node = {Stage.PRE_DRAIN_HOOK, Stage.DRAIN, Stage.VOLUMES, Stage.NODE} & set(order)
    assert not (touches_node and node_kept(found))
