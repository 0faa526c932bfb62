"""A Machine's status from what was observed: conditions, phase, times, and that the same view writes the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machine.deletion import MachineDeletionStage
from remuda.capi.machine.node_health import Link, NodeView
from remuda.capi.machine.status import Deleting, MachineReport, ObservedMachine, ProviderState, derive, publish
from remuda.capi.types import Machine
from remuda.kube.clock import rfc3339
from remuda.kube.objects import Condition
from tests.unit.capi.machine.objects import EPOCH, HEALTHY, NOW, cluster, deleting, machine, node

CONFIG = ProviderState("TestConfig", present=True, flag="status.initialization.dataSecretCreated")
SERVER = ProviderState("TestMachine", present=True, flag="status.initialization.provisioned")
DONE = {"initialization": {"infrastructureProvisioned": True, "bootstrapDataSecretCreated": True}}
RUNNING = {**DONE, "nodeRef": {"name": "n-1"}}
NODE = NodeView(Link(connected=True, last_success=NOW), node(**HEALTHY))


def observed(mine: Machine | None = None, **changes: Any) -> ObservedMachine:
    given: dict[str, Any] = {
        "machine": mine or machine(),
        "cluster": cluster(),
        "bootstrap": CONFIG,
        "infrastructure": SERVER,
        "node": NodeView(Link(connected=True)),
        "now": NOW,
        "generation": 1,
        **changes,
    }
    return ObservedMachine(**given)


def running(mine: Machine | None = None, **changes: Any) -> ObservedMachine:
    return observed(mine or machine(status=RUNNING), **{"node": NODE, **changes})


def find(verdict: MachineReport, type: str) -> Condition:
    return next(one for one in verdict.conditions if one.type == type)


def said(verdict: MachineReport, type: str) -> tuple[str, str, str]:
    one = find(verdict, type)
    return one.status, one.reason, one.message


# ---- phases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "phase"),
    [
        (machine(), "Pending"),
        (machine(status={"initialization": {"bootstrapDataSecretCreated": True}}), "Provisioning"),
        (machine(status=DONE), "Provisioned"),
        (machine(status=RUNNING), "Running"),
        (deleting(status=RUNNING), "Deleting"),
        (deleting(), "Deleting"),
    ],
)
def test_machine_phase_follows_provisioning_state(mine: Machine, phase: str) -> None:
    assert derive(observed(mine)).phase == phase


def test_last_updated_changes_only_with_phase() -> None:
    status: dict[str, Any] = {}
    publish(status, observed())
    assert (status["phase"], status["lastUpdated"]) == ("Pending", EPOCH)
    publish(status, observed(now=NOW + 60))
    assert status["lastUpdated"] == EPOCH
    publish(status, running(now=NOW + 120))
    assert (status["phase"], status["lastUpdated"]) == ("Running", rfc3339(NOW + 120))


# ---- providers ---------------------------------------------------------------------------------------------------


def test_provided_data_secret_satisfies_bootstrap_condition() -> None:
    mine = machine(bootstrap={"dataSecretName": "given"})
    assert said(derive(observed(mine)), "BootstrapConfigReady") == ("True", "DataSecretProvided", "")


def test_contract_flag_decides_without_provider_condition() -> None:
    verdict = derive(observed())
    assert said(verdict, "InfrastructureReady") == (
        "False",
        "NotReady",
        "TestMachine status.initialization.provisioned is false",
    )
    assert said(verdict, "BootstrapConfigReady")[2] == "TestConfig status.initialization.dataSecretCreated is false"
    assert said(derive(running()), "InfrastructureReady")[:2] == ("True", "Ready")


def test_provider_condition_is_copied_with_transition_time() -> None:
    ready = Condition(type="Ready", status="False", reason="Quota", message="no more", last_transition_time="then")
    found = find(derive(observed(infrastructure=SERVER._replace(ready=ready))), "InfrastructureReady")
    assert (found.status, found.reason, found.message, found.last_transition_time) == (
        "False",
        "Quota",
        "no more",
        "then",
    )


def test_missing_and_deleted_provider_objects_are_distinguished() -> None:
    missing = ProviderState("TestMachine")
    assert said(derive(observed(infrastructure=missing)), "InfrastructureReady")[1] == "ObjectDoesNotExist"
    gone = said(derive(running(infrastructure=missing)), "InfrastructureReady")
    assert gone[1:] == ("ObjectDeleted", "TestMachine has been deleted while the Machine still exists")
    going = said(derive(running(deleting(status=RUNNING), infrastructure=missing)), "InfrastructureReady")
    assert going[2] == "TestMachine has been deleted"


def test_malformed_condition_and_lookup_error_are_reported() -> None:
    odd = derive(observed(bootstrap=CONFIG._replace(malformed="conditions is no list")))
    assert said(odd, "BootstrapConfigReady") == ("Unknown", "InvalidConditionReported", "conditions is no list")
    failed = derive(observed(bootstrap=ProviderState("TestConfig", error="no CRD testconfigs.bootstrap.test")))
    assert said(failed, "BootstrapConfigReady") == ("Unknown", "InternalError", "no CRD testconfigs.bootstrap.test")


# ---- Ready and Available -----------------------------------------------------------------------------------------


def test_running_machine_is_ready_and_available() -> None:
    verdict = derive(running())
    assert said(verdict, "Ready") == ("True", "Ready", "")
    assert said(verdict, "Available") == ("True", "Available", "")
    assert verdict.look_again_at is None


def test_ready_message_names_missing_conditions() -> None:
    status, reason, message = said(derive(observed()), "Ready")
    assert (status, reason) == ("False", "NotReady")
    assert "* InfrastructureReady: TestMachine status.initialization.provisioned is false" in message
    assert said(derive(observed()), "Available")[:2] == ("False", "NotReady")


def test_failed_health_check_makes_machine_unready() -> None:
    failed = {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "silent"}
    status, _, message = said(derive(running(machine(status={**RUNNING, "conditions": [failed]}))), "Ready")
    assert (status, message) == ("False", "* HealthCheckSucceeded: silent")


def test_readiness_gates_count_by_their_polarity() -> None:
    gates = [{"conditionType": "net/Ready"}, {"conditionType": "disk/Broken", "polarity": "Negative"}]
    assert said(derive(running(machine(status=RUNNING, readinessGates=gates))), "Ready")[0] == "Unknown"
    present = [
        {"type": "net/Ready", "status": "True", "reason": "Yes"},
        {"type": "disk/Broken", "status": "False", "reason": "No"},
    ]
    mine = machine(status={**RUNNING, "conditions": present}, readinessGates=gates)
    assert said(derive(running(mine)), "Ready")[0] == "True"


def test_available_waits_for_min_ready_seconds_and_names_end_time() -> None:
    verdict = derive(running(machine(status=RUNNING, minReadySeconds=30)))
    assert said(verdict, "Available") == (
        "False",
        "WaitingForMinReadySeconds",
        f"Available at {rfc3339(NOW + 30)}",
    )
    assert verdict.look_again_at == NOW + 30


def test_min_ready_seconds_count_from_ready_transition() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": EPOCH}
    mine = machine(status={**RUNNING, "conditions": [ready]}, minReadySeconds=30)
    early, late = derive(running(mine, now=NOW + 29.5)), derive(running(mine, now=NOW + 30))
    assert early.look_again_at == NOW + 30
    assert said(late, "Available")[0] == "True"


# ---- deleting ----------------------------------------------------------------------------------------------------


def test_deleting_condition_reports_stage_and_error() -> None:
    assert said(derive(running()), "Deleting") == ("False", "NotDeleting", "")
    assert said(derive(observed(deleting())), "Deleting") == ("True", "Deleting", "")
    drained = derive(observed(deleting(), deleting=Deleting(MachineDeletionStage.DRAIN, "* Pod a/b: refused")))
    assert said(drained, "Deleting") == ("True", "DrainingNode", "* Pod a/b: refused")
    failed = derive(observed(deleting(), deleting=Deleting(error="no such kind")))
    assert said(failed, "Deleting") == ("True", "InternalError", "no such kind")


def test_ready_message_of_deleting_machine_names_only_stage() -> None:
    verdict = derive(
        running(deleting(status=RUNNING), deleting=Deleting(MachineDeletionStage.DRAIN, "* Pod a/b: a long story"))
    )
    assert said(verdict, "Ready")[2] == "* Deleting: Machine deletion in progress, stage: DrainingNode"


def test_ready_message_reports_delayed_deletion() -> None:
    began = {**RUNNING, "deletion": {"nodeDrainStartTime": EPOCH}}
    deleted = deleting(status=began)
    five = derive(running(deleted, deleting=Deleting(MachineDeletionStage.DRAIN, "x"), now=NOW + 301))
    assert said(five, "Ready")[2].endswith(
        ", delayed by Pods that do not leave the Node; the Deleting condition names them"
    )
    fifteen = derive(running(deleted, deleting=Deleting(MachineDeletionStage.INFRASTRUCTURE, "x"), now=NOW + 901))
    assert said(fifteen, "Ready")[2] == (
        "* Deleting: Machine deletion in progress since more than 15m, stage: WaitingForInfrastructureDeletion"
    )


def test_long_deletion_is_requeued_when_delay_threshold_passes() -> None:
    began = {**RUNNING, "deletion": {"nodeDrainStartTime": EPOCH}}
    assert derive(running(deleting(status=RUNNING))).look_again_at == NOW + 901
    assert derive(running(deleting(status=began))).look_again_at == NOW + 301
    assert derive(running(deleting(status=began), now=NOW + 301)).look_again_at == NOW + 901
    assert derive(running(deleting(status=began), now=NOW + 901)).look_again_at is None


# ---- up to date --------------------------------------------------------------------------------------------------


def test_up_to_date_condition_exists_only_for_deployment_machines() -> None:
    assert "UpToDate" not in [one.type for one in derive(running()).conditions]
    assert said(derive(running(outdated=[])), "UpToDate") == ("True", "UpToDate", "")


def test_up_to_date_message_lists_differences() -> None:
    verdict = derive(running(outdated=["Version v1.34.0, v1.35.0 required", "TestConfig is not up-to-date"]))
    assert said(verdict, "UpToDate") == (
        "False",
        "NotUpToDate",
        "* Version v1.34.0, v1.35.0 required\n* TestConfig is not up-to-date",
    )


def test_kubelet_of_other_version_reports_updating() -> None:
    def with_kubelet(version: str) -> MachineReport:
        mine = machine(status={**RUNNING, "nodeInfo": {"kubeletVersion": version}}, version="v1.35.0")
        return derive(running(mine, outdated=[]))

    assert said(with_kubelet("v1.34.9"), "UpToDate")[:2] == ("False", "Updating")
    assert said(with_kubelet("v1.35.0"), "UpToDate")[0] == "True"
    assert said(with_kubelet(""), "UpToDate")[0] == "True", "a Node that reports no version is not outdated"


# ---- writing -----------------------------------------------------------------------------------------------------


def test_foreign_conditions_stay_and_observed_generation_is_set() -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": EPOCH}
    status: dict[str, Any] = {"conditions": [theirs], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    publish(status, running())
    assert theirs in status["conditions"]
    assert status["addresses"]
    assert status["observedGeneration"] == 1
    assert [one["type"] for one in status["conditions"]][:2] == ["Available", "Ready"]


def test_failed_reconcile_does_not_set_observed_generation() -> None:
    status: dict[str, Any] = {}
    publish(status, running(failed=True))
    assert "observedGeneration" not in status


_providers = st.sampled_from([SERVER, ProviderState("TestMachine"), ProviderState("TestMachine", error="x")])
_views = st.sampled_from([NODE, NodeView(Link()), NodeView(Link(connected=True)), NodeView(Link(failures=9))])
_statuses = st.sampled_from([{}, DONE, RUNNING])


@given(_providers, _views, _statuses, st.booleans(), st.sampled_from([None, [], ["x"]]), st.integers(0, 10_000))
def test_status_derivation_is_idempotent(
    provider: ProviderState, view: NodeView, status: dict[str, Any], gone: bool, outdated: list[str] | None, later: int
) -> None:
    def look(raw: dict[str, Any], now: float) -> dict[str, Any]:
        result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(raw))
        mine = (deleting if gone else machine)(status=result)
        publish(result, observed(mine, infrastructure=provider, node=view, outdated=outdated, now=now))
        return result

    once = look(dict(status), NOW)
    assert look(once, NOW + later % 60) == once
    for one in once["conditions"]:
        assert one["reason"]
        assert one["lastTransitionTime"]
