"""A small kind with an admission function that does everything such a function can do."""

from __future__ import annotations

from typing import Any

from remuda.kube.admission import AdmissionResult, Review
from remuda.kube.client import Target
from remuda.kube.errors import FieldError, forbidden, invalid
from remuda.runtime.webhooks import Webhook

Json = dict[str, Any]


def admit_horse(review: Review) -> AdmissionResult:
    """Four legs by default, three are odd, five too many; Pegasus is not for everyone; a stable must exist."""
    if review.operation == "DELETE":
        kept = ((review.old or {}).get("metadata") or {}).get("labels", {}).get("keep")
        return AdmissionResult(denied="it is kept") if kept else AdmissionResult()
    spec = (review.new or {}).get("spec") or {}
    legs = spec.get("legs", 4)
    return AdmissionResult(
        patch={"spec": {"legs": legs}, "metadata": {"labels": {"a/horse": review.name}}},
        warnings=("three legs are odd", "three legs are odd") if legs == 3 else (),
        errors=tuple(_errors(review, spec, legs)),
        denied="only zeus rides it" if review.name == "pegasus" and review.user != "zeus" else "",
    )


def _errors(review: Review, spec: Json, legs: int) -> list[FieldError]:
    found = []
    if legs > 4:
        found.append(invalid("spec.legs", legs, "must be at most 4"))
    if review.old is not None and (review.old.get("spec") or {}).get("legs", 4) != legs:
        found.append(forbidden("spec.legs", "legs do not change"))
    stable = spec.get("stable")
    if stable and review.lookup("v1", "configmaps", review.namespace, stable) is None:
        found.append(invalid("spec.stable", stable, "there is no such stable"))
    return found


def horse_webhook(group: str) -> Webhook:
    return Webhook(
        kind="Horse",
        target=Target(f"{group}/v1", "horses"),
        function=admit_horse,
        operations=("CREATE", "UPDATE", "DELETE"),
    )


def horse(group: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": f"{group}/v1", "kind": "Horse", "metadata": {"name": name}, "spec": spec}
