"""Admission of Jobs: only the management plane writes Jobs for the job runner.

On the embedded engine the manager, the engine itself and its administrator are members of `system:masters`, and nobody
can impersonate that group. On a Kubernetes elsewhere the manager is known by its user name, and only a manager that
serves webhooks has Jobs checked there. The mark (`marks`), which the runner verifies before it runs a Job, protects it
on every engine.
"""

from __future__ import annotations

from typing import Any

from remuda.jobs import MANAGED_BY
from remuda.kube.admission import ALLOWED, AdmissionFunction, Operation, Registration, Review, Verdict
from remuda.kube.core import JOBS
from remuda.runtime.webhooks import Webhook, unless_user

_MASTERS = "system:masters"
_OPERATIONS: tuple[Operation, ...] = ("CREATE", "UPDATE")


def judge(own: str = "") -> AdmissionFunction:
    """Return the admission function. `own`: the user that the manager itself is."""

    def admit(review: Review) -> Verdict:
        new = review.new or {}
        if (new.get("spec") or {}).get("managedBy") != MANAGED_BY:
            return ALLOWED
        if _MASTERS in review.groups or (own and review.user == own):
            return ALLOWED
        if review.operation == "UPDATE" and review.old is not None and _protected(review.old) == _protected(new):
            return ALLOWED
        return Verdict(denied=f"only the manager of Remuda may write Jobs with spec.managedBy {MANAGED_BY}")

    return admit


def webhooks(own: str) -> list[Webhook]:
    """Return the same for an API server elsewhere. It asks about Jobs for the job runner alone."""
    ours = f"has(object.spec.managedBy) && object.spec.managedBy == '{MANAGED_BY}'"
    return [
        Webhook(
            kind="Job",
            target=JOBS,
            function=judge(own),
            operations=_OPERATIONS,
            only=f"{ours} && {unless_user(own)}",
        )
    ]


def _protected(job: dict[str, Any]) -> object:
    """Return what only the manager may change. Anybody who may update Jobs may suspend one, and may remove its
    finalizers: neither runs anything. Garbage collectors change owners; a forged owner makes the mark invalid."""
    metadata = job.get("metadata") or {}
    spec = {name: value for name, value in (job.get("spec") or {}).items() if name != "suspend"}
    return spec, metadata.get("labels"), metadata.get("annotations")


FUNCTIONS = (Registration(JOBS.group, JOBS.plural, judge(), _OPERATIONS),)
