"""What is to be done about a Job: a pure function of the Job, its Pods and the time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.jobs.decisions import ATTEMPT, DISRUPTED, Attempt, AwaitEvent, Finish, Suspend, decide, pod_name, refusal
from remuda.jobs.types import (
    Container,
    ContainerState,
    ContainerStatus,
    Job,
    JobSpec,
    JobStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PodTemplate,
    Terminated,
)
from remuda.kube import clock
from remuda.kube.objects import ObjectMeta

NOW = clock.parse("2026-01-01T12:00:00Z")
CONTAINER = Container(name="work", command=("remuda", "machine-job"))


def a_job(status: JobStatus | None = None, **spec: Any) -> Job:
    template = PodTemplate(spec=PodSpec(restart_policy="Never", containers=(CONTAINER,)))
    return Job(
        metadata=ObjectMeta(name="job", namespace="default", uid="1"),
        spec=JobSpec(**{"template": template, **spec}),
        status=status or JobStatus(),
    )


def with_container(**changes: Any) -> dict[str, Any]:
    changed = msgspec.structs.replace(CONTAINER, **changes)
    return {"template": PodTemplate(spec=PodSpec(restart_policy="Never", containers=(changed,)))}


def a_pod(index: int, phase: str, *, ended_ago: float = 0.0, disrupted: bool = False) -> Pod:
    ended = Terminated(exit_code=1, finished_at=clock.rfc3339(NOW - ended_ago))
    states = (ContainerStatus(state=ContainerState(terminated=ended)),) if phase in ("Failed", "Succeeded") else ()
    conditions = (PodCondition(type=DISRUPTED, status="True"),) if disrupted else ()
    return Pod(
        metadata=ObjectMeta(name=f"pod-{index}", annotations={ATTEMPT: str(index)}),
        status=PodStatus(phase=phase, conditions=conditions, container_statuses=states),
    )


def test_new_job_gets_its_first_attempt() -> None:
    assert decide(a_job(), [], NOW) == Attempt(0)


def test_succeeded_pod_completes_the_job() -> None:
    decision = decide(a_job(), [a_pod(0, "Failed"), a_pod(1, "Succeeded")], NOW)
    assert isinstance(decision, Finish)
    assert decision.succeeded


def test_pending_pod_is_started_and_running_pod_is_awaited() -> None:
    waiting = a_pod(0, "Pending")
    assert decide(a_job(), [waiting], NOW) == Attempt(0, waiting)
    assert decide(a_job(), [a_pod(0, "Running")], NOW) == AwaitEvent("the program is running")


def test_failed_attempts_back_off_exponentially() -> None:
    waits = []
    for failed in range(1, 5):
        pods = [a_pod(index, "Failed") for index in range(failed)]
        decision = decide(a_job(backoff_limit=6), pods, NOW)
        assert isinstance(decision, AwaitEvent)
        waits.append(decision.seconds)
    assert waits == [10, 20, 40, 80]


def test_attempt_after_backoff_uses_a_new_pod_name() -> None:
    assert decide(a_job(), [a_pod(0, "Failed", ended_ago=11)], NOW) == Attempt(1)
    assert pod_name(a_job(), 0) != pod_name(a_job(), 1)
    assert pod_name(a_job(), 1) == pod_name(a_job(), 1)


@given(limit=st.integers(0, 10), failed=st.integers(0, 12))
def test_job_fails_when_failures_exceed_backoff_limit(limit: int, failed: int) -> None:
    pods = [a_pod(index, "Failed", ended_ago=10_000) for index in range(failed)]
    decision = decide(a_job(backoff_limit=limit), pods, NOW)
    if failed > limit:
        assert decision == Finish(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    else:
        assert decision == Attempt(failed)


def test_failures_of_deleted_pods_count_towards_backoff_limit() -> None:
    assert isinstance(decide(a_job(JobStatus(failed=1), backoff_limit=0), [], NOW), Finish)


def test_disrupted_pods_are_retried_up_to_a_limit() -> None:
    lost = [a_pod(index, "Failed", disrupted=True) for index in range(5)]
    assert decide(a_job(backoff_limit=0), lost[:3], NOW) == Attempt(3)
    decision = decide(a_job(backoff_limit=0), lost[:4], NOW)
    assert isinstance(decision, Finish)
    assert decision.reason == "RunnerRestarted"


def test_active_deadline_counts_from_start_time() -> None:
    started = JobStatus(start_time=clock.rfc3339(NOW - 100))
    running = [a_pod(0, "Running")]
    assert decide(a_job(started, active_deadline_seconds=160), running, NOW) == AwaitEvent("the program is running", 60)
    late = decide(a_job(started, active_deadline_seconds=100), running, NOW)
    assert isinstance(late, Finish)
    assert late.reason == "DeadlineExceeded"


def test_succeeded_pod_takes_precedence_over_exceeded_deadline() -> None:
    started = JobStatus(start_time=clock.rfc3339(NOW - 100))
    decision = decide(a_job(started, active_deadline_seconds=1), [a_pod(0, "Succeeded")], NOW)
    assert isinstance(decision, Finish)
    assert decision.succeeded


def test_suspended_job_suspends_its_running_pod() -> None:
    assert decide(a_job(suspend=True), [a_pod(0, "Running")], NOW) == Suspend()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parallelism": 2}, "are not supported"),
        ({"completions": 3}, "are not supported"),
        ({"completion_mode": "Indexed"}, "are not supported"),
        ({"pod_failure_policy": {"rules": []}}, "podFailurePolicy"),
        ({"template": PodTemplate(spec=PodSpec(restart_policy="OnFailure", containers=(CONTAINER,)))}, "Never"),
        ({"template": PodTemplate(spec=PodSpec(restart_policy="Never", containers=(CONTAINER,) * 2))}, "one container"),
        (
            {"template": PodTemplate(spec=PodSpec(restart_policy="Never", containers=(Container(),)))},
            "must be remuda machine-job",
        ),
        (with_container(args=("--help",)), "must be remuda machine-job"),
        (with_container(command=("remuda", "up")), "must be remuda machine-job"),
        (with_container(env=({"name": "PYTHONPATH", "value": "../root/evil"},)), "env and envFrom must be empty"),
        (with_container(env_from=({"secretRef": {"name": "evil"}},)), "env and envFrom must be empty"),
    ],
)
def test_unsupported_job_spec_is_rejected_with_message(spec: dict[str, Any], words: str) -> None:
    assert words in refusal(a_job(**spec))


def test_supported_job_spec_is_accepted() -> None:
    assert refusal(a_job()) == ""


@given(name=st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), index=st.integers(0, 100))
def test_pod_name_fits_label_length_limit(name: str, index: int) -> None:
    job = Job(metadata=ObjectMeta(name=name, uid="1"))
    assert len(pod_name(job, index)) <= 63
