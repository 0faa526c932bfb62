"""A Cluster's status, derived: every condition in every situation, the phase, and that order never shows."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.cluster.deletion import ClusterDeletionStage
from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup
from remuda.capi.cluster.status import ClusterReport, ObservedCluster, derive
from remuda.capi.types import Cluster, ConditionGate
from remuda.kube import conditions as kube_conditions
from remuda.kube.conditions import condition, find
from remuda.kube.objects import Condition
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import Connection
from tests.unit.capi.cluster.facts import (
    CONTROL_PLANE,
    INFRASTRUCTURE,
    JUST_NOW,
    NOW,
    cluster,
    deployment,
    found,
    good,
    machine,
    machine_set,
)

_FIELDS = st.sampled_from(
    [
        "conditions",
        "v1beta2",
        "versions",
        "version",
        "replicas",
        "readyReplicas",
        "initialization",
        "type",
        "status",
        "reason",
    ]
)
CONNECTED = Connection(connected=True, last_success=NOW - 3, error="")
BOTH: dict[str, Any] = {"infrastructure_ref": INFRASTRUCTURE, "control_plane_ref": CONTROL_PLANE}


def observed(seen: Cluster | None = None, **facts: Any) -> ObservedCluster:
    """A healthy cluster with both providers, unless `facts` say otherwise."""
    healthy: dict[str, Any] = {
        "cluster": seen or cluster(**BOTH),
        "now": NOW,
        "provisioned": True,
        "initialized": True,
        "endpoint_known": True,
        "infrastructure": found(INFRASTRUCTURE),
        "control_plane": found(CONTROL_PLANE),
        "connection": CONNECTED,
    }
    return ObservedCluster(**healthy | facts)


def condition_fields(type: str, seen: Cluster | None = None, **facts: Any) -> tuple[str, str, str]:
    """One condition of what is derived."""
    one = find(derive(observed(seen, **facts)).conditions, type)
    assert one is not None
    return one.status, one.reason, one.message


def test_healthy_cluster_has_all_good_conditions() -> None:
    report = derive(observed())
    assert {one.type: (one.status, one.reason) for one in report.conditions} == {
        "Available": ("True", "Available"),
        "Deleting": ("False", "NotDeleting"),
        "RemoteConnectionProbe": ("True", "ProbeSucceeded"),
        "InfrastructureReady": ("True", "Ready"),
        "ControlPlaneAvailable": ("True", "Available"),
        "ControlPlaneInitialized": ("True", "Initialized"),
        "ControlPlaneMachinesReady": ("True", "NoReplicas"),
        "ControlPlaneMachinesUpToDate": ("True", "NoReplicas"),
        "WorkerMachinesReady": ("True", "NoReplicas"),
        "WorkerMachinesUpToDate": ("True", "NoReplicas"),
        "WorkersAvailable": ("True", "NoWorkers"),
        "RollingOut": ("False", "NotRollingOut"),
        "ScalingUp": ("False", "NotScalingUp"),
        "ScalingDown": ("False", "NotScalingDown"),
        "Remediating": ("False", "NotRemediating"),
    }
    assert report.phase == "Provisioned"
    assert report.look_again is None


class TestPhase:
    @pytest.mark.parametrize(
        ("spec", "facts", "phase"),
        [
            ({}, {"provisioned": True, "endpoint_known": False}, "Pending"),
            ({"infrastructure_ref": INFRASTRUCTURE}, {"provisioned": False}, "Provisioning"),
            ({"control_plane_ref": CONTROL_PLANE}, {"endpoint_known": False}, "Provisioning"),
            ({"topology": {"classRef": {"name": "x"}}}, {"provisioned": False}, "Provisioning"),
            (BOTH, {"provisioned": True, "endpoint_known": False}, "Provisioning"),
            (BOTH, {"provisioned": False, "endpoint_known": True}, "Provisioning"),
            (BOTH, {}, "Provisioned"),
            ({}, {}, "Provisioned"),
            (BOTH | {"deleting": True}, {}, "Deleting"),
        ],
    )
    def test_cluster_phase_follows_provisioning_state(
        self, spec: dict[str, Any], facts: dict[str, Any], phase: str
    ) -> None:
        assert derive(observed(cluster(**spec), **facts)).phase == phase


class TestInfrastructureReady:
    TYPE = "InfrastructureReady"

    def test_provider_condition_is_copied(self) -> None:
        own = {
            "type": "Ready",
            "status": "False",
            "reason": "NoQuota",
            "message": "buy",
            "lastTransitionTime": JUST_NOW,
        }
        seen = observed(infrastructure=found(INFRASTRUCTURE, status={"conditions": [own]}))
        one = find(derive(seen).conditions, self.TYPE)
        assert one is not None
        assert (one.status, one.reason, one.message, one.last_transition_time) == ("False", "NoQuota", "buy", JUST_NOW)

    @pytest.mark.parametrize(
        ("contract", "path"), [("v1beta2", "status.initialization.provisioned"), ("v1beta1", "status.ready")]
    )
    def test_contract_flag_decides_without_provider_condition(self, contract: str, path: str) -> None:
        look = found(INFRASTRUCTURE, contract)
        assert condition_fields(self.TYPE, infrastructure=look) == ("True", "Ready", "")
        waiting = condition_fields(self.TYPE, infrastructure=look, provisioned=False)
        assert waiting == ("False", "NotReady", f"DevCluster {path} is false")

    def test_malformed_provider_condition_is_reported_as_invalid(self) -> None:
        broken = found(INFRASTRUCTURE, status={"conditions": [{"type": "Ready", "status": "Perhaps"}]})
        status, reason, message = condition_fields(self.TYPE, infrastructure=broken)
        assert (status, reason) == ("Unknown", "InvalidConditionReported")
        assert "Perhaps" in message

    @pytest.mark.parametrize(
        ("deleting", "provisioned", "reason", "message"),
        [
            (False, False, "ObjectDoesNotExist", "DevCluster does not exist"),
            (False, True, "ObjectDeleted", "DevCluster has been deleted while the Cluster still exists"),
            (True, False, "ObjectDoesNotExist", "DevCluster does not exist"),
            (True, True, "ObjectDeleted", "DevCluster has been deleted"),
        ],
    )
    def test_missing_infrastructure_object_is_reported(
        self, deleting: bool, provisioned: bool, reason: str, message: str
    ) -> None:
        seen = cluster(deleting=deleting, **BOTH)
        facts = {"infrastructure": ProviderLookup(INFRASTRUCTURE), "provisioned": provisioned}
        assert condition_fields(self.TYPE, seen, **facts) == ("False", reason, message)

    def test_only_known_error_messages_are_shown(self) -> None:
        known = ProviderLookup(INFRASTRUCTURE, error=Retryable("no definition"))
        assert condition_fields(self.TYPE, infrastructure=known) == ("Unknown", "InternalError", "no definition")
        unknown = ProviderLookup(INFRASTRUCTURE, error=RuntimeError("secret detail"))
        assert condition_fields(self.TYPE, infrastructure=unknown)[2] == "Please check controller logs for errors"

    def test_infrastructure_is_ready_without_reference(self) -> None:
        assert condition_fields(self.TYPE, cluster(), infrastructure=ProviderLookup()) == ("True", "Ready", "")

    def test_topology_without_infrastructure_reference_is_not_ready(self) -> None:
        topology = {"topology": {"version": "v1.35.0"}}
        status, reason, message = condition_fields(self.TYPE, cluster(**topology), infrastructure=ProviderLookup())
        assert (status, reason) == ("False", "ObjectDoesNotExist")
        assert "topology" in message
        assert condition_fields(self.TYPE, cluster(deleting=True, **topology), infrastructure=ProviderLookup())[2] == ""


class TestControlPlane:
    def test_provider_condition_is_copied(self) -> None:
        own = {"type": "Available", "status": "True"}
        look = found(CONTROL_PLANE, status={"conditions": [own]})
        assert condition_fields("ControlPlaneAvailable", control_plane=look, initialized=False) == (
            "True",
            "Available",
            "",
        )

    def test_contract_flag_decides_without_provider_condition(self) -> None:
        waiting = condition_fields("ControlPlaneAvailable", initialized=False)
        path = "status.initialization.controlPlaneInitialized"
        assert waiting == ("False", "NotAvailable", f"DevControlPlane {path} is false")

    def test_first_node_decides_availability_without_provider(self) -> None:
        seen = cluster(infrastructure_ref=INFRASTRUCTURE)
        assert condition_fields("ControlPlaneAvailable", seen, control_plane=ProviderLookup())[:2] == (
            "True",
            "Available",
        )
        status, reason, message = condition_fields(
            "ControlPlaneAvailable", seen, control_plane=ProviderLookup(), initialized=False
        )
        assert (status, reason) == ("False", "NotAvailable")
        assert "first control plane Machine" in message

    @pytest.mark.parametrize(
        ("look", "expected"),
        [
            (found(CONTROL_PLANE), ("False", "NotInitialized", "Control plane not yet initialized")),
            (ProviderLookup(CONTROL_PLANE), ("Unknown", "ObjectDoesNotExist", "DevControlPlane does not exist")),
            (ProviderLookup(CONTROL_PLANE, error=Retryable("why")), ("Unknown", "InternalError", "why")),
            (
                ProviderLookup(),
                ("False", "NotInitialized", "Waiting for the first control plane Machine to have a Node"),
            ),
        ],
    )
    def test_uninitialized_control_plane_is_reported_with_reason(
        self, look: ProviderLookup, expected: tuple[str, str, str]
    ) -> None:
        assert condition_fields("ControlPlaneInitialized", control_plane=look, initialized=False) == expected
        assert condition_fields("ControlPlaneInitialized", control_plane=look)[0] == "True"

    def test_control_plane_initialized_condition_never_reverts(self) -> None:
        before = cluster(condition("ControlPlaneInitialized", True, "Initialized"), **BOTH)
        after = condition_fields(
            "ControlPlaneInitialized", before, control_plane=ProviderLookup(CONTROL_PLANE), initialized=False
        )
        assert after == ("True", "Initialized", "")

    def test_control_plane_initialized_is_unknown_while_topology_is_pending(self) -> None:
        seen = cluster(topology={"version": "v1.35.0"})
        status, reason, _ = condition_fields(
            "ControlPlaneInitialized", seen, control_plane=ProviderLookup(), initialized=False
        )
        assert (status, reason) == ("Unknown", "ObjectDoesNotExist")


class TestRemoteConnectionProbe:
    TYPE = "RemoteConnectionProbe"

    def test_unestablished_connection_is_reported_as_probe_failed(self) -> None:
        first = condition_fields(self.TYPE, connection=Connection(failures=4))
        assert first == ("False", "ProbeFailed", "Remote connection not established yet")

    def test_probe_condition_is_kept_after_restart_until_first_probe(self) -> None:
        before = condition(self.TYPE, True, "ProbeSucceeded")
        assert condition_fields(self.TYPE, cluster(before, **BOTH), connection=Connection()) == (
            "True",
            "ProbeSucceeded",
            "",
        )

    def test_unreadable_node_watch_is_reported_in_probe_message(self) -> None:
        link = Connection(connected=True, last_success=1.0, unreadable="the server's watch cannot be read: oops")
        assert condition_fields(self.TYPE, connection=link) == (
            "True",
            "ProbeSucceeded",
            "Nodes are listed every few seconds instead of watched: the server's watch cannot be read: oops",
        )

    def test_probe_fails_after_grace_period_without_any_success(self) -> None:
        before = cluster(condition(self.TYPE, True, "ProbeSucceeded"), **BOTH)
        asked = Connection(since=NOW - 59, failures=9, error="no route")
        assert condition_fields(self.TYPE, before, connection=asked) == ("True", "ProbeSucceeded", "")
        never = condition_fields(self.TYPE, before, connection=msgspec.structs.replace(asked, since=NOW - 60))
        assert never == ("False", "ProbeFailed", "Remote connection probe failed: no route")

    @pytest.mark.parametrize(("ago", "status"), [(0, "True"), (59, "True"), (60, "False")])
    def test_lost_connection_fails_probe_after_grace_period(self, ago: float, status: str) -> None:
        lost = Connection(last_success=NOW - ago, failures=7, error="timed out")
        assert condition_fields(self.TYPE, connection=lost)[0] == status
        assert derive(observed(connection=lost)).look_again == (60 - ago if ago < 60 else None)

    def test_failed_probe_message_names_last_success(self) -> None:
        lost = Connection(last_success=NOW - 3600, failures=7, error="timed out")
        message = "Remote connection probe failed, probe last succeeded at 2026-06-01T11:00:00Z: timed out"
        assert condition_fields(self.TYPE, connection=lost) == ("False", "ProbeFailed", message)

    def test_held_connection_is_not_requeued(self) -> None:
        old = Connection(connected=True, last_success=NOW - 300, error="")
        assert condition_fields(self.TYPE, connection=old)[0] == "True"
        assert derive(observed(connection=old)).look_again is None


class TestMachines:
    def test_control_plane_and_worker_machines_are_summarized_separately(self) -> None:
        ill = condition("Ready", False, "NotReady", "no power")
        members = ClusterMembers(machines=[machine("cp", *good("Ready"), control_plane=True), machine("w", ill)])
        assert condition_fields("ControlPlaneMachinesReady", members=members) == ("True", "Ready", "")
        assert condition_fields("WorkerMachinesReady", members=members) == (
            "False",
            "NotReady",
            "* Machine w: no power",
        )

    def test_workers_up_to_date_ignores_new_machine_without_condition(self) -> None:
        young = machine("young", *good("Ready"), created=JUST_NOW)
        old = machine("old", *good("Ready"))
        sure = machine("sure", *good("Ready", "UpToDate"), created=JUST_NOW)
        assert condition_fields("WorkerMachinesUpToDate", members=ClusterMembers(machines=[young])) == (
            "True",
            "NoReplicas",
            "",
        )
        assert derive(observed(members=ClusterMembers(machines=[young, sure]))).look_again == 6.0
        assert derive(observed(members=ClusterMembers(machines=[sure, old]))).look_again is None
        status, reason, message = condition_fields(
            "WorkerMachinesUpToDate", members=ClusterMembers(machines=[young, old, sure])
        )
        assert (status, reason, message) == ("Unknown", "UpToDateUnknown", "* Machine old: Condition not yet reported")

    def test_remediating_condition_names_the_machine(self) -> None:
        waiting = condition("OwnerRemediated", False, "WaitingForRemediation", "soon")
        members = ClusterMembers(machines=[machine("w", waiting)])
        assert condition_fields("Remediating", members=members) == ("True", "Remediating", "* Machine w: soon")


class TestWorkers:
    def test_workers_available_names_unavailable_deployment(self) -> None:
        one, other = (
            deployment("a", *good("Available")),
            deployment("b", condition("Available", False, "NotAvailable", "1 of 2")),
        )
        assert condition_fields("WorkersAvailable", members=ClusterMembers(deployments=[one])) == (
            "True",
            "Available",
            "",
        )
        status, reason, message = condition_fields("WorkersAvailable", members=ClusterMembers(deployments=[one, other]))
        assert (status, reason, message) == ("False", "NotAvailable", "* MachineDeployment b: 1 of 2")

    @pytest.mark.parametrize("type", ["RollingOut", "ScalingUp", "ScalingDown"])
    def test_movement_condition_lists_all_moving_objects(self, type: str) -> None:
        moving, still = condition(type, True, type, "1 of 2"), condition(type, False, f"Not{type}")
        leading = found(CONTROL_PLANE, status={"conditions": [{"type": type, "status": "True", "message": "1 of 2"}]})
        sets = [machine_set("lone", moving), machine_set("owned", moving, owned=True)]
        members = ClusterMembers(deployments=[deployment("a", moving), deployment("b", still)], sets=sets)
        status, reason, message = condition_fields(type, members=members, control_plane=leading)
        assert (status, reason) == ("True", type)
        lines = ["* DevControlPlane c: 1 of 2", "* MachineDeployment a: 1 of 2"]
        assert message.split("\n") == lines + ([] if type == "RollingOut" else ["* MachineSet lone: 1 of 2"])

    @pytest.mark.parametrize("type", ["RollingOut", "ScalingUp", "ScalingDown"])
    def test_movement_condition_is_unknown_without_reports(self, type: str) -> None:
        assert condition_fields(type, members=ClusterMembers(deployments=[deployment("a")]))[:2] == (
            "Unknown",
            f"{type}Unknown",
        )
        unreadable = ProviderLookup(CONTROL_PLANE, error=Retryable("why"))
        assert condition_fields(type, control_plane=unreadable) == ("Unknown", "InternalError", "why")

    def test_control_plane_without_scaling_condition_is_ignored(self) -> None:
        assert condition_fields("ScalingUp") == ("False", "NotScalingUp", "")


class TestAvailable:
    def test_available_message_lists_failed_conditions_in_order(self) -> None:
        members = ClusterMembers(deployments=[deployment("d", condition("Available", False, "NotAvailable", "0 of 1"))])
        status, reason, message = condition_fields(
            "Available",
            connection=Connection(),
            infrastructure=ProviderLookup(INFRASTRUCTURE),
            control_plane=ProviderLookup(CONTROL_PLANE),
            members=members,
        )
        assert (status, reason) == ("False", "NotAvailable")
        assert message.split("\n") == [
            "* RemoteConnectionProbe: Remote connection not established yet",
            "* InfrastructureReady: DevCluster has been deleted while the Cluster still exists",
            "* ControlPlaneAvailable: DevControlPlane has been deleted while the Cluster still exists",
            "* WorkersAvailable:",
            "  * MachineDeployment d: 0 of 1",
        ]

    def test_unready_machine_does_not_make_cluster_unavailable(self) -> None:
        ill = machine("w", condition("Ready", False, "NotReady", "no power"))
        assert condition_fields("Available", members=ClusterMembers(machines=[ill]))[0] == "True"

    def test_dead_node_makes_cluster_unavailable(self) -> None:
        dead = machine("w", condition("NodeReady", "Unknown", "NodeReadyUnknown", "* Node.Ready: silent"), node="n")
        members = ClusterMembers(machines=[dead], deployments=[deployment("d", *good("Available"))])
        assert condition_fields("Available", members=members) == (
            "False",
            "NodeNotReady",
            "Machine w: Node n is not ready: silent",
        )

    def test_unresponsive_api_makes_availability_unknown(self) -> None:
        silent = Connection(last_success=NOW - 600, failures=9, error="no route")
        members = ClusterMembers(deployments=[deployment("d", condition("Available", False, "NotAvailable", "0 of 2"))])
        assert condition_fields("Available", connection=silent, members=members) == (
            "Unknown",
            "APISilent",
            "API has not answered since 2026-06-01T11:50:00Z: no route",
        )

    def test_lost_control_plane_quorum_is_reported_in_available(self) -> None:
        own = {
            "type": "Available",
            "status": "False",
            "reason": "QuorumLost",
            "message": "etcd of ns/c: quorum is lost",
        }
        look = found(CONTROL_PLANE, status={"conditions": [own]})
        assert condition_fields("Available", control_plane=look) == (
            "False",
            "QuorumLost",
            "etcd of ns/c: quorum is lost",
        )

    @pytest.mark.parametrize(
        ("polarity", "value", "expected"),
        [
            ("Positive", "True", "True"),
            ("Positive", "False", "False"),
            ("Negative", "True", "False"),
            ("Negative", "False", "True"),
            ("Positive", None, "Unknown"),
        ],
    )
    def test_availability_gates_count_by_polarity(self, polarity: str, value: str | None, expected: str) -> None:
        gate = ConditionGate(condition_type="example.com/Audited", polarity=polarity)
        present = [] if value is None else [condition("example.com/Audited", value, "Because")]
        assert condition_fields("Available", cluster(*present, availability_gates=[gate], **BOTH))[0] == expected

    def test_available_ignores_previous_conditions(self) -> None:
        before = condition("InfrastructureReady", False, "NotReady", "long ago")
        assert condition_fields("Available", cluster(before, **BOTH))[0] == "True"


class TestDeleting:
    STAGE = ClusterDeletionStage("WaitingForWorkersDeletion", "* Machine: m")

    def test_deleting_condition_reports_the_stage(self) -> None:
        seen = cluster(deleting=True, **BOTH)
        assert condition_fields("Deleting", seen, stage=self.STAGE) == (
            "True",
            "WaitingForWorkersDeletion",
            "* Machine: m",
        )
        assert condition_fields("Deleting", seen)[:2] == ("True", "Deleting")

    def test_missing_providers_are_not_reported_while_deleting(self) -> None:
        status, _, message = condition_fields(
            "Available",
            cluster(deleting=True, **BOTH),
            stage=self.STAGE,
            infrastructure=ProviderLookup(INFRASTRUCTURE),
            control_plane=ProviderLookup(CONTROL_PLANE),
        )
        assert (status, message) == ("False", "* Deleting:\n  * Machine: m")


class TestWriting:
    def test_empty_counts_are_removed_from_status(self) -> None:
        status: dict[str, Any] = {"workers": {"replicas": 1}, "controlPlane": {"replicas": 1}, "other": 1}
        ClusterReport([], "Pending", {}, {"replicas": 2}).write(status)
        assert status == {"phase": "Pending", "workers": {"replicas": 2}, "other": 1}

    @given(
        st.lists(
            st.builds(
                machine,
                st.text("abcdef", min_size=1, max_size=3),
                st.builds(
                    condition,
                    st.just("Ready"),
                    st.sampled_from(["True", "False", "Unknown"]),
                    st.just("R"),
                    st.text("xy"),
                ),
                control_plane=st.booleans(),
                owned=st.booleans(),
            ),
            unique_by=lambda one: one.metadata.name,
        ),
        st.randoms(),
    )
    def test_status_is_independent_of_machine_order(self, machines: list[Any], random: Any) -> None:
        def written(some: list[Any], seen: Cluster, status: dict[str, Any]) -> dict[str, Any]:
            report = derive(observed(seen, members=ClusterMembers(machines=some)))
            report.write(status)
            kube_conditions.put(status, report.conditions, generation=1, now=JUST_NOW)
            return status

        first = written(machines, cluster(**BOTH), {})
        again = written(random.sample(machines, len(machines)), _read_back(first), copy.deepcopy(first))
        assert again == first


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "True", "v1.30.0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_FIELDS, inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values, st.sampled_from(["v1beta1", "v1beta2"]), st.booleans())
def test_arbitrary_provider_data_never_breaks_cluster_status(
    spec: Any, status: Any, contract: str, deleting: bool
) -> None:
    look = found(CONTROL_PLANE, contract, spec=spec, status=status)
    infrastructure = found(INFRASTRUCTURE, contract, spec=spec, status=status)
    report = derive(observed(cluster(deleting=deleting, **BOTH), control_plane=look, infrastructure=infrastructure))
    assert {one.status for one in report.conditions} <= {"True", "False", "Unknown"}
    assert all(one.reason for one in report.conditions)


def _read_back(status: dict[str, Any]) -> Cluster:
    present = [
        Condition(type=one["type"], status=one["status"], reason=one["reason"], message=one["message"])
        for one in status["conditions"]
    ]
    return cluster(*present, **BOTH)
