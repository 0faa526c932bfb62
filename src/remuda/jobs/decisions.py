"""Decision about the next step of a Job, and the status of the Job that follows from it: no I/O.

The decision is made from the Job, its Pods and the time. The status has counts, times and conditions, as the API server
checks them.

A Pod is one attempt. A failed one counts against the Job's `backoffLimit`, unless the runner itself was the cause (it
was restarted under a running program): such an attempt is retried, a few times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.jobs import COMMAND
from remuda.jobs.types import COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, Job, Pod
from remuda.kube import clock

Json = dict[str, Any]

ATTEMPT = "remuda.dev/attempt"  # annotation of a Pod: its number among the Job's attempts, from 0
DISRUPTED = "DisruptionTarget"  # condition of a Pod whose end the program did not cause
RESTARTED = "RunnerRestarted"

NOT_RUNNABLE = "NotRunnable"  # reason of a Job that the runner refuses
DEADLINE = "DeadlineExceeded"
BACKOFF_LIMIT = "BackoffLimitExceeded"
START_ERROR = "StartError"  # reason of a Pod whose program could not be started, in containerd's words

CANNOT_START = 127  # exit code of a program that could not be started, as in shells

_DISRUPTIONS = 3  # attempts that the runner lost by a restart and retries, before it fails the Job
_FIRST_WAIT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 600.0
_LONGEST_NAME = 63
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # letters of generated names, as in the API server


class Attempt(msgspec.Struct, frozen=True):
    """Decision to create a Pod, or with `pod` to start the program of that Pod, which has not started yet."""

    index: int
    pod: Pod | None = None


class Finish(msgspec.Struct, frozen=True):
    """Decision that the Job ends for good, once its running program has ended."""

    succeeded: bool
    reason: str
    message: str


class AwaitEvent(msgspec.Struct, frozen=True):
    """Decision to wait for an event; with `seconds`, for that long at most."""

    why: str
    seconds: float | None = None


class Suspend(msgspec.Struct, frozen=True):
    """The Job is suspended: no program may run."""


Decision = Attempt | Finish | AwaitEvent | Suspend


class Tally(msgspec.Struct, frozen=True):
    """Counts of the attempts by outcome."""

    succeeded: int
    failed: int  # by their own fault, not the runner's
    disrupted: int
    active: Pod | None

    @classmethod
    def of(cls, pods: Sequence[Pod]) -> Tally:
        failed = [pod for pod in pods if pod.status.phase == "Failed"]
        disrupted = sum(map(_disrupted, failed))
        return cls(
            succeeded=sum(pod.status.phase == "Succeeded" for pod in pods),
            failed=len(failed) - disrupted,
            disrupted=disrupted,
            active=next((pod for pod in pods if not pod.ended), None),
        )


def decide(job: Job, pods: Sequence[Pod], now: float) -> Decision:
    """Decide the next step. `pods`: all Pods of the Job, with their latest known status."""
    tally = Tally.of(pods)
    # Success comes first: work that is done stays done, even if the Job was suspended or its deadline passed meanwhile.
    if tally.succeeded:
        return Finish(True, "CompletionsReached", "Reached expected number of succeeded pods")
    if job.spec.suspend:
        return Suspend()
    left = _until_deadline(job, now)
    if left is not None and left <= 0:
        return Finish(False, DEADLINE, "Job was active longer than specified deadline")
    if tally.active is not None:
        running = tally.active.status.phase == "Running"
        return AwaitEvent("the program is running", left) if running else Attempt(_index(tally.active), tally.active)
    return _next_attempt(job, pods, tally, now, left)


def _next_attempt(job: Job, pods: Sequence[Pod], tally: Tally, now: float, left: float | None) -> Decision:
    # The status remembers failed Pods that were deleted: deleting them does not reset the back-off limit.
    failed = max(tally.failed, job.status.failed)
    if failed > job.spec.backoff_limit:
        return Finish(False, BACKOFF_LIMIT, f"Job has reached the specified backoff limit{_start_error(pods)}")
    if tally.disrupted > _DISRUPTIONS:
        return Finish(False, RESTARTED, f"the job runner was restarted {tally.disrupted} times while the program ran")
    wait = _backoff(pods, failed, now)
    if wait > 0:
        return AwaitEvent(
            f"attempt {failed} failed; the next one follows after a back-off", wait if left is None else min(wait, left)
        )
    return Attempt(max(map(_index, pods), default=-1) + 1)


def _start_error(pods: Sequence[Pod]) -> str:
    """Return why the program of the newest failed Pod never ran, to append to a message; empty if it ran."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    end = max(failed, key=_index).terminated if failed else None
    return f"; {end.message.strip()}" if end is not None and end.exit_code == CANNOT_START else ""


def _until_deadline(job: Job, now: float) -> float | None:
    if job.spec.active_deadline_seconds is None or job.status.start_time is None:
        return None
    return clock.parse(job.status.start_time) + job.spec.active_deadline_seconds - now


def _backoff(pods: Sequence[Pod], failed: int, now: float) -> float:
    """Return the delay: 10 s after the first failure, doubled with each, as in Kubernetes."""
    ends = [_ended_at(pod) for pod in pods if pod.status.phase == "Failed" and not _disrupted(pod)]
    if not failed or not ends:
        return 0.0
    wait = min(_FIRST_WAIT_SECONDS * 2.0 ** min(failed - 1, 10), _LONGEST_WAIT_SECONDS)
    return max(ends) + wait - now


def _ended_at(pod: Pod) -> float:
    ended = pod.terminated
    return clock.parse(ended.finished_at) if ended is not None and ended.finished_at else 0.0


def _disrupted(pod: Pod) -> bool:
    return any(one.type == DISRUPTED and one.status == "True" for one in pod.status.conditions)


def _index(pod: Pod) -> int:
    text = pod.metadata.annotations.get(ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def pod_name(job: Job, index: int) -> str:
    """Return the name of an attempt's Pod. It is the same in each run, so that a Pod created just before a crash is
    found and not created twice."""
    digest = hashlib.sha256(f"{job.metadata.uid}/{index}".encode()).digest()
    ending = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
    return f"{job.metadata.name[: _LONGEST_NAME - len(ending) - 1].rstrip('-.')}-{ending}"


def refusal(job: Job) -> str:
    """Return why the runner cannot run the Job; empty if it can."""
    spec, pod = job.spec, job.spec.template.spec
    if spec.parallelism > 1 or (spec.completions or 1) > 1 or spec.completion_mode == "Indexed":
        return "parallelism, completions and completionMode Indexed are not supported"
    if spec.pod_failure_policy is not None or spec.success_policy is not None:
        return "podFailurePolicy and successPolicy are not supported"
    if pod.restart_policy != "Never":
        return f"restartPolicy must be Never, not {pod.restart_policy}"
    if len(pod.containers) != 1 or pod.init_containers:
        return "the Pod must have one container and no init containers"
    container = pod.containers[0]
    command = (*container.command, *container.args)
    if command != COMMAND:
        return f"the command must be {' '.join(COMMAND)}, not {' '.join(command) or 'the command of the image'}"
    # A variable such as PYTHONPATH could make the program run code from a mounted Secret or ConfigMap.
    if container.env or container.env_from:
        return "environment variables are not supported: env and envFrom must be empty"
    return ""


def derive_status(status: Json, job: Job, tally: Tally, finish: Finish | None, suspended: bool) -> None:
    """Update the Job's counters and conditions. `succeeded` and `failed` only grow: deleted Pods still count."""
    active = tally.active is not None and finish is None
    _count(status, "active", int(active))
    _count(status, "ready", int(active and tally.active is not None and tally.active.status.phase == "Running"))
    _count(status, "succeeded", max(tally.succeeded, job.status.succeeded))
    _count(status, "failed", max(tally.failed, job.status.failed))
    if suspended:
        # As in Kubernetes, a resumed Job gets a new startTime: the time before the suspension does not count against
        # the deadline.
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
    # Kubernetes sets both conditions too: the first one announces the result, the second one says that no Pod runs any
    # more.
    for type in (SUCCESS_CRITERIA_MET, COMPLETE) if finish.succeeded else (FAILURE_TARGET, FAILED):
        _put(status, type, "True", finish.reason, finish.message)


def _count(status: Json, name: str, value: int) -> None:
    """Set a counter. A zero is not written where the counter is absent: both mean the same."""
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
