"""What is said of an eviction that was refused."""

from __future__ import annotations

from remuda.capi.machine.drain_stages import refusal
from remuda.kube.errors import StatusError, too_many_requests


def test_eviction_refusal_names_disruption_budget() -> None:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    error = StatusError(429, "TooManyRequests", "Cannot evict pod.", details={"causes": [cause]})
    assert refusal(error) == f"Cannot evict pod. {cause['message']}"


def test_eviction_refusal_does_not_repeat_message() -> None:
    error = StatusError(500, "", "more than one budget", details={"causes": [{"message": "more than one budget"}]})
    assert refusal(error) == "more than one budget"


def test_eviction_refusal_explains_terminating_namespace() -> None:
    error = StatusError(403, "Forbidden", "no", details={"causes": [{"reason": "NamespaceTerminating"}]})
    assert refusal(error) == "no: it is deleted with its namespace, which is being deleted"


def test_eviction_refusal_without_causes_uses_message() -> None:
    assert refusal(too_many_requests("slow down")) == "slow down"
