"""Admission of Jobs: only the management plane writes Jobs for the job runner.

On the embedded engine, administrators may too: members of `system:masters`, whom no user can impersonate. On another
Kubernetes, Jobs are checked only if the manager serves webhooks. The mark (`marks`), which the runner verifies before
it runs a Job, protects it on every engine.
"""

from __future__ import annotations

from typing import Any

from remuda.jobs import MANAGED_BY
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Operation, Review
from remuda.kube.authorization import MASTERS
from remuda.kube.core import JOBS
from remuda.runtime.webhooks import Webhook

_OPERATIONS: tuple[Operation, ...] = ("CREATE", "UPDATE")


def judge(review: Review) -> AdmissionResult:
    new = review.new or {}
    if (new.get("spec") or {}).get("managedBy") != MANAGED_BY:
        return ALLOWED
    if review.by_manager or MASTERS in review.groups:
        return ALLOWED
    if review.operation == "UPDATE" and review.old is not None and _protected(review.old) == _protected(new):
        return ALLOWED
    return AdmissionResult(denied=f"only the manager of Remuda may write Jobs with spec.managedBy {MANAGED_BY}")


def _protected(job: dict[str, Any]) -> object:
    """Return the fields that only the manager may change. Users who may update Jobs may suspend one or remove its
    finalizers: neither runs anything. Garbage collectors change owners; a forged owner makes the mark invalid.
    """
    metadata = job.get("metadata") or {}
    spec = {name: value for name, value in (job.get("spec") or {}).items() if name != "suspend"}
    return spec, metadata.get("labels"), metadata.get("annotations")


FUNCTIONS = (AdmissionRegistration(JOBS.group, JOBS.plural, judge),)

# For an external API server, which calls only for Jobs of the job runner.
WEBHOOKS = (
    Webhook(
        kind="Job",
        target=JOBS,
        function=judge,
        operations=_OPERATIONS,
        only=f"has(object.spec.managedBy) && object.spec.managedBy == '{MANAGED_BY}'",
        except_manager=True,
    ),
)
