"""The status of a Job, derived: counts, times and conditions, as the API server checks them."""

from __future__ import annotations

from typing import Any

from remuda.jobs.decisions import Finish, Tally
from remuda.jobs.types import COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, Job
from remuda.kube import clock

Json = dict[str, Any]


def derive(status: Json, job: Job, tally: Tally, finish: Finish | None, suspended: bool) -> None:
    """Update the Job's counters and conditions. `succeeded` and `failed` only grow: deleted Pods still count."""
    active = tally.active is not None and finish is None
    _count(status, "active", int(active))
    _count(status, "ready", int(active and tally.active is not None and tally.active.status.phase == "Running"))
    _count(status, "succeeded", max(tally.succeeded, job.status.succeeded))
    _count(status, "failed", max(tally.failed, job.status.failed))
    if suspended:
        status.pop("startTime", None)
        _put(status, SUSPENDED, "True", "JobSuspended", "Job suspended")
        return
    if _holds(status, SUSPENDED) and finish is None:
        _put(status, SUSPENDED, "False", "JobResumed", "Job resumed")
    if "startTime" not in status:
        status["startTime"] = clock.now()
    if finish is None:
        return
    if finish.succeeded:
        status.setdefault("completionTime", clock.now())
    for type in (SUCCESS_CRITERIA_MET, COMPLETE) if finish.succeeded else (FAILURE_TARGET, FAILED):
        _put(status, type, "True", finish.reason, finish.message)


def _count(status: Json, name: str, value: int) -> None:
    """Zero is as good as absent, and is not written where it was."""
    if value or status.get(name):
        status[name] = value


def _holds(status: Json, type: str) -> bool:
    return any(one["type"] == type and one["status"] == "True" for one in status.get("conditions") or ())


def _put(status: Json, type: str, value: str, reason: str, message: str) -> None:
    conditions: list[Json] = status.setdefault("conditions", [])
    present = next((one for one in conditions if one["type"] == type), None)
    if present is not None and present["status"] == value:
        return
    now = clock.now()
    changed = {"status": value, "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now}
    if present is None:
        conditions.append({"type": type, **changed})
    else:
        present.update(changed)
