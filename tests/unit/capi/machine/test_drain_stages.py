"""What is said of an eviction that was refused."""

from __future__ import annotations

from remuda.capi.machine.drain_stages import refusal
from remuda.kube.errors import StatusError, too_many_requests


def test_the_budget_behind_a_refusal_is_named() -> None:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    error = StatusError(429, "TooManyRequests", "Cannot evict pod.", details={"causes": [cause]})
    assert refusal(error) == f"Cannot evict pod. {cause['message']}"


def test_what_the_message_says_already_is_not_said_twice() -> None:
    error = StatusError(500, "", "more than one budget", details={"causes": [{"message": "more than one budget"}]})
    assert refusal(error) == "more than one budget"


def test_a_namespace_that_goes_takes_its_pods_along() -> None:
    error = StatusError(403, "Forbidden", "no", details={"causes": [{"reason": "NamespaceTerminating"}]})
    assert refusal(error) == "no: it is deleted with its namespace, which is being deleted"


def test_a_refusal_without_causes() -> None:
    assert refusal(too_many_requests("slow down")) == "slow down"
