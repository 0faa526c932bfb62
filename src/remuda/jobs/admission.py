"""Admission of Jobs on the embedded engine: only the management plane writes Jobs for the job runner.

There the manager, the engine itself and its administrator are members of `system:masters`, and nobody can impersonate
that group. On a Kubernetes elsewhere a manager is an ordinary service account; the mark (`marks`), which the runner
verifies on every engine, is the protection there.
"""

from __future__ import annotations

from typing import Any

from remuda.jobs import MANAGED_BY
from remuda.kube.admission import ALLOWED, Registration, Review, Verdict

_MASTERS = "system:masters"


def judge(review: Review) -> Verdict:
    new = review.new or {}
    if (new.get("spec") or {}).get("managedBy") != MANAGED_BY or _MASTERS in review.groups:
        return ALLOWED
    if review.operation == "UPDATE" and review.old is not None and _protected(review.old) == _protected(new):
        return ALLOWED
    return Verdict(denied=f"only the manager of Remuda may write Jobs with spec.managedBy {MANAGED_BY}")


def _protected(job: dict[str, Any]) -> object:
    """Anybody who may update Jobs may suspend one, and may let a stuck one go: neither runs anything. Garbage
    collectors change owners; a forged owner makes the mark invalid."""
    metadata = job.get("metadata") or {}
    spec = {name: value for name, value in (job.get("spec") or {}).items() if name != "suspend"}
    return spec, metadata.get("labels"), metadata.get("annotations")


FUNCTIONS = (Registration("batch", "jobs", judge),)
