from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machinehealthcheck.health import Healthy, Pending, Unhealthy, Verdict
from remuda.capi.machinehealthcheck.marks import (
    Marks,
    Request,
    marks,
    request_failed,
    requested,
    template_not_found,
)
from remuda.capi.types import Machine
from remuda.kube import conditions as kube
from remuda.kube.objects import Condition, OwnerReference
from tests.unit.capi.machinehealthcheck.objects import condition, machine

SICK = Unhealthy("NodeDeleted", "Node n has been deleted")
WAITING = "WaitingForRemediation"


def marked_conditions(found: Marks) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in found.put}


def sick(*conditions: Condition) -> Machine:
    """Its failed check is on record already."""
    return machine(
        condition("HealthCheckSucceeded", "False", reason=SICK.reason, message=SICK.message),
        *conditions,
        owner=OwnerReference(kind="MachineSet", name="ms", controller=True),
    )


def test_healthy_machine_is_marked_once() -> None:
    found = marks(machine(), Healthy(), hand_over=True, request=None)
    assert marked_conditions(found) == {"HealthCheckSucceeded": ("True", "HealthCheckSucceeded")}
    assert not found.remove
    again = machine(condition("HealthCheckSucceeded", reason="HealthCheckSucceeded"))
    assert not marks(again, Healthy(), hand_over=True, request=None)


def test_recovered_machine_loses_remediation_conditions() -> None:
    recovered = sick(condition("OwnerRemediated", "False"), condition("ExternallyRemediated", "False"))
    found = marks(recovered, Healthy(), hand_over=False, request=None)
    assert marked_conditions(found) == {"HealthCheckSucceeded": ("True", "HealthCheckSucceeded")}
    assert found.remove == ["OwnerRemediated", "ExternallyRemediated"]


def test_pending_verdict_changes_no_conditions() -> None:
    assert not marks(sick(condition("OwnerRemediated", "False")), Pending("?"), hand_over=True, request=None)


def test_unhealthy_machine_is_handed_over_to_owner() -> None:
    found = marks(sick(), SICK, hand_over=True, request=None)
    assert marked_conditions(found) == {"OwnerRemediated": ("False", WAITING)}
    assert found.put[0].message == "Waiting for remediation by MachineSet ms"


def test_unhealthy_machine_without_owner_requests_manual_replacement() -> None:
    found = marks(machine(), SICK, hand_over=True, request=None)
    assert "replace it yourself" in found.put[-1].message


def test_unhealthy_machine_over_limit_is_marked_but_not_handed_over() -> None:
    found = marks(machine(), SICK, hand_over=False, request=None)
    assert marked_conditions(found) == {"HealthCheckSucceeded": ("False", "NodeDeleted")}
    assert found.put[0].message == "Node n has been deleted"


def test_owner_condition_is_kept_until_remediation_finishes() -> None:
    deferred = sick(condition("OwnerRemediated", "False", reason="RemediationDeferred"))
    assert not marks(deferred, SICK, hand_over=True, request=None)
    finished = sick(condition("OwnerRemediated", "True", reason="Done"))
    assert marked_conditions(marks(finished, SICK, hand_over=True, request=None)) == {
        "OwnerRemediated": ("False", WAITING)
    }


def test_external_remediation_request_sets_externally_remediated() -> None:
    found = marks(sick(), SICK, hand_over=True, request=requested("Reboot", "m"))
    assert marked_conditions(found) == {"ExternallyRemediated": ("False", WAITING)}
    assert found.put[0].message == "Waiting for Reboot m"


def test_condition_of_external_remediator_is_not_overwritten() -> None:
    busy = sick(condition("ExternallyRemediated", "False", reason="Rebooting"))
    assert not marks(busy, SICK, hand_over=True, request=requested("Reboot", "m"))


@pytest.mark.parametrize("failure", [template_not_found("no template"), request_failed("refused")])
def test_failed_remediation_request_is_reported_until_created(failure: Request) -> None:
    found = marks(sick(), SICK, hand_over=True, request=failure)
    assert marked_conditions(found) == {"ExternallyRemediated": ("False", failure.reason)}
    failed = sick(found.put[0])
    assert not marks(failed, SICK, hand_over=True, request=failure)
    then = marks(failed, SICK, hand_over=True, request=requested("Reboot", "m"))
    assert marked_conditions(then) == {"ExternallyRemediated": ("False", WAITING)}


TYPES = ("HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")
PRESENT = st.lists(
    st.builds(
        condition,
        st.sampled_from(TYPES),
        st.sampled_from(["True", "False"]),
        reason=st.sampled_from(["A", WAITING, "RemediationTemplateNotFound"]),
    ),
    unique_by=lambda one: one.type,
)
VERDICTS = st.sampled_from([Healthy(), SICK, Unhealthy("UnhealthyNode", "x"), Pending("?")])
REQUESTS = st.sampled_from([None, requested("R", "m"), template_not_found("no"), request_failed("refused")])


@given(PRESENT, VERDICTS, st.booleans(), REQUESTS)
def test_marking_is_idempotent_and_keeps_foreign_conditions(
    present: list[Condition], verdict: Verdict, hand_over: bool, request: Request | None
) -> None:
    others = [condition("Ready", "False", reason="NotReady")]
    found = marks(machine(*present, *others), verdict, hand_over=hand_over, request=request)
    after = _after([*present, *others], found)
    assert kube.find(after, "Ready") == others[0]
    assert not marks(machine(*after), verdict, hand_over=hand_over, request=request)


def _after(present: list[Condition], found: Marks) -> list[Condition]:
    changed = {one.type for one in found.put} | set(found.remove)
    return [one for one in present if one.type not in changed] + list(found.put)
