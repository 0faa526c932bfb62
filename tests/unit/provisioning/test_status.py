"""What a declared cluster says of itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi.types import MachineDeployment, MachineDeploymentStatus
from remuda.kube.objects import Condition, ObjectMeta
from remuda.providers.shared.types.controlplane import RKEControlPlane, RKEControlPlaneStatus
from remuda.provisioning import status
from remuda.provisioning.consequence import Consequence
from remuda.provisioning.status import ClusterStatusInputs, Problem
from tests.unit.provisioning.clusters import declared, pool, read

Json = dict[str, Any]
CLUSTER = read(declared(pool()))


def said(facts: ClusterStatusInputs, before: Json | None = None) -> Json:
    found: Json = before or {}
    status.write(found, CLUSTER, facts)
    return found


def of(found: Json, type: str) -> tuple[str, str, str]:
    one = next(one for one in found["conditions"] if one["type"] == type)
    return one["status"], one["reason"], one["message"]


def control_plane(
    ready: str, message: str = "", *, reason: str = "R", seen: int = 1, stalled: bool = False
) -> RKEControlPlane:
    said = [Condition(type="Ready", status=ready, reason=reason, message=message)]
    if stalled:
        said.append(Condition(type="Stalled", status="True", reason=reason, message=message))
    return RKEControlPlane(
        metadata=ObjectMeta(generation=1), status=RKEControlPlaneStatus(conditions=said, observed_generation=seen)
    )


def test_same_facts_give_identical_status() -> None:
    facts = ClusterStatusInputs(control_plane=control_plane("Unknown", "waits"))
    first = said(facts)
    again = said(facts, msgspec.json.decode(msgspec.json.encode(first)))
    assert again == first


def test_ready_copies_control_plane_condition() -> None:
    found = said(ClusterStatusInputs(control_plane=control_plane("Unknown", "waits for m-1")))
    for type in ("Ready", "Updated", "Provisioned"):
        assert of(found, type) == ("Unknown", "R", "waits for m-1")
    assert of(found, "Reconciling") == ("True", "R", "waits for m-1")
    assert "ready" not in found
    assert found["observedGeneration"] == 3


def test_outdated_control_plane_ready_is_unknown() -> None:
    assert of(said(ClusterStatusInputs(control_plane=control_plane("True", seen=0))), "Ready")[0] == "Unknown"


@pytest.mark.parametrize("later", ["False", "Unknown"])
def test_ready_field_is_absent_while_the_condition_is_not_true(later: str) -> None:
    found = said(ClusterStatusInputs(control_plane=control_plane("True")))
    assert found["ready"] is True
    assert of(found, "Reconciling")[0] == "False"
    found = said(ClusterStatusInputs(control_plane=control_plane(later)), found)
    assert "ready" not in found


def test_conditions_carry_first_wait_message() -> None:
    first = Condition(type="Reconciled", status="Unknown", reason="R", message="Machine m-1: no agent (and 6 more)")
    plane = control_plane("Unknown", "non-ready etcd machine(s) m-1\nMachine m-1: no agent\nMachine m-2: no agent")
    plane = msgspec.structs.replace(
        plane, status=msgspec.structs.replace(plane.status, conditions=(*plane.status.conditions, first))
    )
    found = said(ClusterStatusInputs(control_plane=plane))
    for type in ("Ready", "Updated", "Provisioned", "Reconciling"):
        assert of(found, type)[2] == "Machine m-1: no agent (and 6 more)"


def test_failure_condition_carries_first_line() -> None:
    found = said(ClusterStatusInputs(control_plane=control_plane("False", "Node n is not ready\nMachine m-1: waits")))
    assert of(found, "Ready") == ("False", "R", "Node n is not ready")


def test_stalled_control_plane_stalls_cluster() -> None:
    plane = control_plane("False", "no further attempt is made", reason="MachineFailed", stalled=True)
    found = said(ClusterStatusInputs(control_plane=plane))
    assert of(found, "Ready") == ("False", "MachineFailed", "no further attempt is made")
    assert of(found, "Stalled") == ("True", "MachineFailed", "no further attempt is made")
    assert of(found, "Reconciling")[0] == "False"
    assert found["observedGeneration"] == 3


def test_generation_problem_sets_ready_and_stalled_conditions() -> None:
    found = said(
        ClusterStatusInputs(not_made=Problem("Error", "there is no SimConfig x"), control_plane=control_plane("True"))
    )
    for type in ("RKECluster", "Ready"):
        assert of(found, type) == ("False", "Error", "there is no SimConfig x")
    assert of(found, "Stalled") == ("True", "Error", "there is no SimConfig x")
    assert of(found, "Created")[0] == "True"
    assert found["observedGeneration"] == 3, "tools that wait for it would wait for ever"
    found = said(ClusterStatusInputs(not_made=Problem("Failed", "the server is away", lasting=False)))
    assert "observedGeneration" not in found
    assert of(found, "Stalled")[0] == "False"
    assert of(found, "Reconciling")[0] == "True"


def test_held_condition_is_present_only_while_held() -> None:
    held = Consequence(pool="p", action="replace", machines=["m"], options=["zone"], held=True)
    found = said(ClusterStatusInputs(held=[held]))
    assert of(found, "Held") == ("True", "WouldReplaceMachines", str(held))
    assert "Held" not in {one["type"] for one in said(ClusterStatusInputs(), found)["conditions"]}


def test_exceeded_quota_stalls_cluster_with_ready_nodes() -> None:
    growing = Condition(
        type="ScalingUp",
        status="True",
        reason="ScalingUp",
        message="Scaling up from 1 to 2 replicas is blocked because:\n"
        "* exceeded quota: small, requested: a=1, used: a=1, limited: a=1",
    )
    deployment = MachineDeployment(
        metadata=ObjectMeta(name="prairie-workers", namespace="team"),
        status=MachineDeploymentStatus(conditions=(growing,)),
    )
    found = said(ClusterStatusInputs(control_plane=control_plane("True"), deployments=(deployment,)))
    status, reason, message = of(found, "Stalled")
    assert (status, reason) == ("True", "QuotaExceeded")
    assert "ResourceQuota small of namespace team is exhausted (used a=1, limited a=1)" in message
    assert of(found, "Ready") == ("False", reason, message)
    assert of(found, "Reconciling")[0] == "False"
