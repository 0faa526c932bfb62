from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.machineset import remediation
from remuda.capi.types import DeploymentRemediation, Machine, MachineDeployment, MachineDeploymentSpec
from remuda.kube.conditions import condition
from tests.unit.capi.machineset.objects import good, machine

NOW = "2026-01-01T00:00:00Z"


def failed(name: str, reason: str = "WaitingForRemediation", **facts: Any) -> Machine:
    conditions = [
        condition("HealthCheckSucceeded", False, "UnhealthyNode"),
        condition("OwnerRemediated", False, reason),
    ]
    return machine(name, conditions=conditions, **facts)


def recovered(name: str, **facts: Any) -> Machine:
    conditions = [condition("HealthCheckSucceeded", True, "Any"), condition("OwnerRemediated", False, "Any")]
    return machine(name, conditions=conditions, **facts)


def reasons(remedy: remediation.Remedy) -> dict[str, str | None]:
    return {name: found.reason if found else None for name, found in remedy.conditions.items()}


def deleted(remedy: remediation.Remedy) -> list[str]:
    return [one.metadata.name for one in remedy.delete]


def test_only_machines_handed_over_are_remediated() -> None:
    unhealthy = machine("unhealthy", conditions={"HealthCheckSucceeded": False})
    asked = machine("asked", conditions={"OwnerRemediated": False})
    machines = [good("good"), unhealthy, asked, failed("failed"), failed("gone", deleted=NOW)]
    remedy = remediation.plan(machines, limit=None, outdated=False)
    assert deleted(remedy) == ["failed"]
    assert reasons(remedy) == {"failed": "MachineDeleting"}


def test_recovered_machine_loses_owner_remediated_condition() -> None:
    remedy = remediation.plan([recovered("a"), recovered("leaving", deleted=NOW)], limit=None, outdated=False)
    assert reasons(remedy) == {"a": None}
    assert deleted(remedy) == []


def test_remediation_respects_in_flight_limit() -> None:
    machines = [failed(name) for name in "abc"] + [failed("gone", "MachineDeleting", deleted=NOW)]
    remedy = remediation.plan(machines, limit=2, outdated=False)
    assert deleted(remedy) == ["a"]
    assert reasons(remedy) == {"a": "MachineDeleting", "b": "RemediationDeferred", "c": "RemediationDeferred"}
    assert remedy.in_flight == 2
    told = remedy.conditions["b"]
    assert told is not None
    assert "2 Machines are being remediated, at most 2 at a time are allowed" in told.message


def test_in_flight_limit_of_zero_defers_all_remediation() -> None:
    assert deleted(remediation.plan([failed("a")], limit=0, outdated=False)) == []


def test_machines_of_outdated_sets_are_not_remediated() -> None:
    remedy = remediation.plan([failed("a"), recovered("b")], limit=None, outdated=True)
    assert deleted(remedy) == []
    assert reasons(remedy) == {"a": "CannotBeRemediated", "b": None}


def test_remediation_is_deferred_while_replacement_is_blocked() -> None:
    remedy = remediation.plan([failed("a")], limit=None, outdated=False, obstacles=["the control plane is upgrading"])
    assert deleted(remedy) == []
    told = remedy.conditions["a"]
    assert told is not None
    assert told.reason == "RemediationDeferred"
    assert "the control plane is upgrading" in told.message


def test_remediation_order_prefers_announced_manual_then_newest_machines() -> None:
    machines = [
        failed("old", created="2026-01-01T00:00:00Z"),
        failed("new-b", created="2026-01-02T00:00:00Z"),
        failed("new-a", created="2026-01-02T00:00:00Z"),
        failed("by-hand", annotations={names.REMEDIATE_MACHINE: ""}),
        failed("announced", "MachineDeleting"),
    ]
    remedy = remediation.plan(machines, limit=None, outdated=False)
    assert deleted(remedy) == ["announced", "by-hand", "new-a", "new-b", "old"]


@pytest.mark.parametrize(
    ("amount", "replicas", "limit"),
    [(None, 3, None), (2, 3, 2), ("10%", 3, 1), ("50%", 4, 2), ("20%", None, 1)],
)
def test_remediation_limit_is_computed_from_max_in_flight(amount: Any, replicas: int | None, limit: int | None) -> None:
    spec = MachineDeploymentSpec(replicas=replicas, remediation=DeploymentRemediation(max_in_flight=amount))
    assert remediation.limit_of(MachineDeployment(spec=spec)) == limit


def test_remediation_without_deployment_has_no_limit() -> None:
    assert remediation.limit_of(None) is None


@given(waiting=st.integers(0, 6), leaving=st.integers(0, 6), limit=st.integers(0, 6))
def test_remediation_never_exceeds_in_flight_limit(waiting: int, leaving: int, limit: int) -> None:
    machines = [failed(f"w{n}") for n in range(waiting)]
    machines += [failed(f"l{n}", "MachineDeleting", deleted=NOW) for n in range(leaving)]
    remedy = remediation.plan(machines, limit=limit, outdated=False)
    assert len(remedy.delete) == min(waiting, max(limit - leaving, 0))
    assert remedy.in_flight == leaving + len(remedy.delete)
