"""Result of a Job and its message, derived from the Job and its Pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.jobs.types import COMPLETE, Job, Pod
from remuda.providers.shared.jobs import manifests

BAD_OPTIONS_CODE = 3  # of `remuda machine-job`, and of rancher-machine: will not work until somebody changes it
_DEADLINE = "DeadlineExceeded"
_LONGEST = 4096  # characters of last words: the end of them, where the error is

_LONGEST_LINE = 400


class Result(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    message: str = ""
    hopeless: bool = False


def removes(job: Job) -> bool:
    return job.metadata.labels.get(manifests.REMOVES) == "true"


def result(job: Job, pods: Sequence[Pod]) -> Result | None:
    """Return the result of a Job; None while it is running. `pods`: the Job's own."""
    end = job.finished
    if end is None:
        return None
    if end.type == COMPLETE:
        return Result(ok=True)
    if end.reason == _DEADLINE:
        most = job.spec.active_deadline_seconds
        return Result(
            ok=False, message=_joined(f"the Job did not finish within {most} s and was stopped", _words(pods))
        )
    words = _words(pods)
    code = next((pod.terminated.exit_code for pod in _newest_first(pods) if pod.terminated is not None), None)
    return Result(
        ok=False,
        message=words or end.message or "the Job failed without a message",
        hopeless=code == BAD_OPTIONS_CODE,
    )


def _newest_first(pods: Sequence[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or "", reverse=True)


def _words(pods: Sequence[Pod]) -> str:
    """Return the termination message of the newest Pod that has one."""
    for pod in _newest_first(pods):
        ended = pod.terminated
        text = (ended.message if ended is not None else "") or pod.status.message
        if text.strip():
            return shortened(text.strip())
    return ""


def shortened(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"


def error_line(text: str) -> str:
    """Return the last line of what a Job said, which names the error: conditions carry one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shortened(lines[-1], _LONGEST_LINE) if lines else text


def _joined(first: str, second: str) -> str:
    return f"{first}; last output: {second}" if second else first
