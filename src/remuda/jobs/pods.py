"""Pod of one attempt, as the API shows it: created from the Job's template, with a status from the known facts.

It is never scheduled to a node, because its schedulerName is the runner's own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.jobs import MANAGED_BY
from remuda.jobs.decisions import ATTEMPT, DISRUPTED, RESTARTED, pod_name
from remuda.jobs.types import Job
from remuda.kube import clock

Json = dict[str, Any]

LABEL = "remuda.dev/job-runner"  # on every Pod of the runner, so that it need not cache other Pods
LONGEST_MESSAGE = 4096
_SIGNALS = 128
_KILLED = 137  # 128 and SIGKILL


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an attempt that has ended."""

    code: int
    message: str = ""
    started: float
    finished: float
    reason: str = ""  # reason of the Pod, if the program did not end by itself
    why: str = ""
    disrupted: bool = False


def make(job: Job, raw: Json, index: int) -> Json:
    template: Json = raw["spec"]["template"]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, index),
            "namespace": job.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), LABEL: ""},
            "annotations": {**(metadata.get("annotations") or {}), ATTEMPT: str(index)},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job.metadata.name,
                    "uid": job.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            **template["spec"],
            "schedulerName": MANAGED_BY,
            "serviceAccountName": template["spec"].get("serviceAccountName") or "default",
        },
    }


def waiting(status: Json, job: Job, message: str) -> None:
    """Set the Pod's status to waiting: its program cannot be started yet."""
    status["phase"] = "Pending"
    _container(status, job, {"waiting": {"reason": "CreateContainerConfigError", "message": message}})


def running(status: Json, job: Job, started: float) -> None:
    status["phase"] = "Running"
    status["startTime"] = clock.rfc3339(started)
    _conditions(status, "True", "")
    _container(status, job, {"running": {"startedAt": clock.rfc3339(started)}})


def ended(status: Json, job: Job, end: AttemptResult) -> None:
    succeeded = end.code == 0 and not end.reason
    status["phase"] = "Succeeded" if succeeded else "Failed"
    status.setdefault("startTime", clock.rfc3339(end.started))
    if end.reason:
        status["reason"], status["message"] = end.reason, end.why
    _conditions(status, "False", "PodCompleted" if succeeded else "PodFailed", end)
    terminated = {
        # A program that never ran has the code 0. In a failed Pod that would look like success.
        "exitCode": end.code or (_KILLED if end.reason else 0),
        "reason": "Completed" if succeeded else end.reason or "Error",
        "message": end.message or end.why,
        "startedAt": clock.rfc3339(end.started),
        "finishedAt": clock.rfc3339(end.finished),
    }
    if end.code > _SIGNALS:
        terminated["signal"] = end.code - _SIGNALS
    _container(status, job, {"terminated": terminated})


def lost(started: str | None) -> AttemptResult:
    """Return the result of an attempt whose runner was restarted while its program ran: runner and program are gone."""
    now = clock.time()
    return AttemptResult(
        code=_KILLED,
        started=clock.parse(started) if started else now,
        finished=now,
        reason=RESTARTED,
        why="the job runner was restarted",
        disrupted=True,
    )


def _container(status: Json, job: Job, state: Json) -> None:
    container = job.spec.template.spec.containers[0]
    status["containerStatuses"] = [
        {
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": "running" in state,
            "started": "running" in state,
            "restartCount": 0,
            "state": state,
        }
    ]


def _conditions(status: Json, ready: str, reason: str, end: AttemptResult | None = None) -> None:
    now = clock.now()
    wanted = [("Initialized", "True", "", ""), ("Ready", ready, reason, ""), ("ContainersReady", ready, reason, "")]
    if end is not None and end.disrupted:
        wanted.append((DISRUPTED, "True", end.reason, end.why))
    status["conditions"] = [
        {"type": type, "status": holds, "lastTransitionTime": now}
        | ({"reason": why} if why else {})
        | ({"message": words} if words else {})
        for type, holds, why, words in wanted
    ]
