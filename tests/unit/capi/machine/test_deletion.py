"""The stages of a deletion: which apply, in which order, and that every state leads to the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machine.deletion import (
    MEANING,
    DeletionFacts,
    MachineDeletionStage,
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


def facts(annotations: dict[str, str] | None = None, **changes: Any) -> DeletionFacts:
    machine = deleting(
        meta={"annotations": annotations or {}}, status=changes.pop("status", {}), **changes.pop("spec", {})
    )
    return DeletionFacts(**{"machine": machine, "now": NOW, "node": "n-1", **changes})


def stages(found: DeletionFacts) -> list[MachineDeletionStage]:
    return [stage for stage in MachineDeletionStage if not skipped(stage, found)]


def test_every_deletion_stage_has_a_description() -> None:
    assert set(MEANING) == set(MachineDeletionStage)


def test_machine_is_drained_before_infrastructure_is_deleted() -> None:
    assert stages(facts()) == [
        MachineDeletionStage.DRAIN,
        MachineDeletionStage.VOLUMES,
        MachineDeletionStage.INFRASTRUCTURE,
        MachineDeletionStage.BOOTSTRAP,
        MachineDeletionStage.NODE,
        MachineDeletionStage.COMPLETED,
    ]


def test_deletion_hooks_precede_their_stages() -> None:
    found = stages(facts({HOOK: "", LAST_HOOK: ""}))
    assert found.index(MachineDeletionStage.PRE_DRAIN_HOOK) < found.index(MachineDeletionStage.DRAIN)
    assert (
        found.index(MachineDeletionStage.VOLUMES)
        < found.index(MachineDeletionStage.PRE_TERMINATE_HOOK)
        < found.index(MachineDeletionStage.INFRASTRUCTURE)
    )


def test_deletion_hooks_are_found_with_and_without_suffix() -> None:
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
def test_unneeded_or_unreachable_node_stages_are_skipped(changes: dict[str, Any], why: str) -> None:
    found = facts({HOOK: "", LAST_HOOK: ""}, **changes)
    assert why in node_kept(found)
    assert stages(found) == [
        MachineDeletionStage.PRE_TERMINATE_HOOK,
        MachineDeletionStage.INFRASTRUCTURE,
        MachineDeletionStage.BOOTSTRAP,
        MachineDeletionStage.COMPLETED,
    ]


def test_external_control_plane_allows_node_deletion_without_machines() -> None:
    assert node_kept(facts(control_plane="external", control_plane_left=False)) == ""


def test_missing_control_plane_object_allows_node_deletion() -> None:
    assert node_kept(facts(control_plane="missing")) == ""


@pytest.mark.parametrize(
    ("stage", "annotation"),
    [
        (MachineDeletionStage.DRAIN, names.EXCLUDE_NODE_DRAINING),
        (MachineDeletionStage.VOLUMES, names.EXCLUDE_WAIT_FOR_VOLUME_DETACH),
    ],
)
def test_exclude_annotation_skips_only_its_stage(stage: MachineDeletionStage, annotation: str) -> None:
    assert set(stages(facts())) - set(stages(facts({annotation: ""}))) == {stage}


@pytest.mark.parametrize(
    ("stage", "limit", "began"),
    [
        (MachineDeletionStage.DRAIN, "nodeDrainTimeoutSeconds", "nodeDrainStartTime"),
        (MachineDeletionStage.VOLUMES, "nodeVolumeDetachTimeoutSeconds", "waitForNodeVolumeDetachStartTime"),
    ],
)
def test_deletion_stage_is_skipped_after_its_timeout(stage: MachineDeletionStage, limit: str, began: str) -> None:
    def at(seconds: float, limit_seconds: int | None = 60, *, started: bool = True) -> bool:
        spec = {} if limit_seconds is None else {"deletion": {limit: limit_seconds}}
        status = {"deletion": {began: rfc3339(NOW)}} if started else {}
        return bool(skipped(stage, facts(status=status, spec=spec, now=NOW + seconds)))

    assert not at(59)
    assert at(60)
    assert not at(10_000, None)
    assert not at(10_000, 0)
    assert not at(10_000, started=False)


def test_drain_is_skipped_once_pre_terminate_hooks_have_started() -> None:
    found = facts({LAST_HOOK: ""}, status={"deletion": {"waitForPreTerminateHookStartTime": rfc3339(NOW)}})
    assert stages(found)[0] == MachineDeletionStage.PRE_TERMINATE_HOOK


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
def test_awaited_pre_terminate_hooks_are_read_from_status(status: dict[str, Any], waits: bool) -> None:
    assert awaits_last_hooks(deleting(status=status)) is waits


def test_drain_is_skipped_while_infrastructure_is_deleting() -> None:
    assert stages(facts(infrastructure_going=True))[0] == MachineDeletionStage.INFRASTRUCTURE


def test_unreachable_node_skips_volume_detach_wait() -> None:
    assert skipped(MachineDeletionStage.VOLUMES, facts(node_unreachable=True))
    assert not skipped(MachineDeletionStage.DRAIN, facts(node_unreachable=True))


def test_stage_deadlines_require_start_time_and_limit() -> None:
    assert deadline(None, 10) is None
    assert deadline(rfc3339(NOW), None) is None
    assert deadline(rfc3339(NOW), 0) is None
    assert deadline(rfc3339(NOW), 10) == NOW + 10
    began = {"deletion": {"nodeDrainStartTime": rfc3339(NOW), "waitForNodeVolumeDetachStartTime": rfc3339(NOW)}}
    limits = {"nodeDrainTimeoutSeconds": 5, "nodeVolumeDetachTimeoutSeconds": 7}
    machine = deleting(status=began, deletion=limits)
    assert (drain_deadline(machine), volumes_deadline(machine)) == (NOW + 5, NOW + 7)


def test_node_deletion_timeout_defaults_to_ten_seconds() -> None:
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
def test_every_deletion_state_leads_to_completion(found: DeletionFacts) -> None:
    order = stages(found)
    assert [
        stage for stage in order if stage in (MachineDeletionStage.INFRASTRUCTURE, MachineDeletionStage.BOOTSTRAP)
    ] == [
        MachineDeletionStage.INFRASTRUCTURE,
        MachineDeletionStage.BOOTSTRAP,
    ]
    assert order[-1] == MachineDeletionStage.COMPLETED
    asked = LAST_HOOK in found.machine.metadata.annotations
    assert (MachineDeletionStage.PRE_TERMINATE_HOOK in order) == asked
    touches_node = {
        MachineDeletionStage.PRE_DRAIN_HOOK,
        MachineDeletionStage.DRAIN,
        MachineDeletionStage.VOLUMES,
        MachineDeletionStage.NODE,
    } & set(order)
    assert not (touches_node and node_kept(found))
