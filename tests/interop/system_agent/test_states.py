"""The flow by plan-state: each run is asked for by `pending`, and told by `in-progress` and what came of it."""

from __future__ import annotations

import pytest

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import Data, checksum, outputs


def state(name: str) -> object:
    return lambda data: data.get("plan-state") == name.encode()


def test_plan_state_moves_from_pending_to_succeeded(host: Host) -> None:
    plan = {
        "instructions": [
            host.shell(f"sleep 0.2; {host.note('$CATTLE_AGENT_ATTEMPT_NUMBER')}", name="x", saveOutput=True)
        ]
    }
    host.give(plan, plan_state="pending")
    during = host.wait(state("in-progress"), "it is in progress")
    assert host.noted == [], "in-progress is written before anything runs"
    assert during["plan-revision"] == b"1"
    data = host.wait(state("succeeded"), "it has succeeded")
    assert host.noted == ["1"]
    assert host.secret.changes("plan-state")[-3:] == ["pending", "in-progress", "succeeded"]
    assert data["applied-checksum"] == checksum(plan)
    assert data["success-count"] == b"1"
    assert outputs(data["applied-output"]) == {"x": b""}


def test_pending_state_reruns_same_plan(host: Host) -> None:
    plan = {"instructions": [host.shell(host.note("$CATTLE_AGENT_ATTEMPT_NUMBER"))]}
    for revision in (b"1", b"2", b"3"):
        host.give(plan, plan_state="pending")

        def done(data: Data, revision: bytes = revision) -> bool:
            return data.get("plan-revision") == revision and data.get("plan-state") == b"succeeded"

        data = host.wait(done, f"revision {revision.decode()} has succeeded")
        assert data["success-count"] == revision
    assert host.noted == ["1", "1", "1"]


def test_failed_plan_state_is_not_retried(host: Host) -> None:
    plan = {"instructions": [host.shell(f"echo out; {host.note('ran')}; exit 1", name="x", saveOutput=True)]}
    host.give(plan, plan_state="pending", max_failures="5")
    data = host.wait(state("failed"), "it has failed")
    assert data["failed-checksum"] == checksum(plan)
    assert data["failure-count"] == b"1"
    assert outputs(data["failed-output"]) == {"x": b"out\n"}
    host.write(last_apply_time="Thu Jan  1 00:00:00 UTC 2026")
    count = host.expected("failure-count after a failure, by plan-state")
    host.wait(lambda data: data.get("failure-count") == count, f"its failures are {count}")
    data = host.settle()
    assert host.noted == ["ran"]
    assert data["plan-state"] == b"failed"
    assert data["failure-count"] == count
    is_applied = data.get("applied-checksum") == checksum(plan)
    assert is_applied is host.expected("a failed plan as applied-checksum, by plan-state")
    host.write(plan_state="pending")
    host.wait(lambda data: data.get("plan-revision") == b"2" and data.get("plan-state") == b"failed", "asked for again")
    assert host.noted == ["ran", "ran"]


@pytest.mark.parametrize("word", ["succeeded", "failed", "cancelled", "something new"])
def test_finished_plan_state_is_left_unchanged(host: Host, word: str) -> None:
    host.give({"instructions": [host.shell(host.note("ran"))]}, plan_state=word)
    data = host.settle()
    assert host.noted == []
    assert data["plan-state"] == word.encode()
    assert "plan-revision" not in data


def test_in_progress_plan_is_restarted(host: Host) -> None:
    plan = {"instructions": [host.shell(host.note("one")), host.shell(host.note("two"))]}
    host.give(plan, plan_state="in-progress", plan_revision="4")
    data = host.wait(state("succeeded"), "it has succeeded")
    assert host.noted == ["one", "two"]
    assert data["plan-revision"] == b"4"
