"""Failures, without plan-state: the first stops the list, and after a pause it is tried again, as often as is
allowed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import UNIX_DATE, checksum, outputs


def ago(seconds: float) -> str:
    """A time as agents write it: what a host sees that has waited."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%a %b %e %H:%M:%S UTC %Y")


def test_first_failed_instruction_stops_plan(host: Host) -> None:
    plan = {
        "instructions": [
            host.shell(f"echo fine; {host.note('one')}", name="one", saveOutput=True),
            host.shell(f"echo out; echo err >&2; {host.note('two')}; exit 3", name="two", saveOutput=True),
            host.shell(host.note("three"), name="three", saveOutput=True),
        ]
    }
    data = host.failed(plan)
    assert host.noted == ["one", "two"]
    assert data.get("applied-checksum", b"") == b""
    assert data["success-count"] == b"0"
    assert UNIX_DATE.fullmatch(data["last-apply-time"].decode())
    said = outputs(data["failed-output"])
    assert set(said) == {"one", "two"}
    assert said["one"] == b"fine\n"
    assert said["two"] == host.expected("output of a failed instruction")


@pytest.mark.parametrize(
    "instruction",
    [
        {"command": "there-is-no-such-command"},
        {"command": "/etc/hostname"},
        {},
        {"image": "registry.invalid/nothing:v1"},
        {"command": "sh", "args": ["-c", "kill -9 $$"]},
    ],
    ids=["unknown", "not executable", "no run.sh", "no image", "killed"],
)
def test_unrunnable_instruction_fails_plan(host: Host, instruction: dict[str, object]) -> None:
    data = host.failed({"instructions": [instruction, host.shell(host.note("next"))]})
    assert host.noted == []
    assert data["success-count"] == b"0"


def test_new_plan_skips_retry_delay_of_failed_plan(host: Host) -> None:
    host.failed({"instructions": [host.shell("exit 1")]})
    data = host.applied({"instructions": [host.shell(host.note("at once"))]})
    assert host.noted == ["at once"]
    assert data["failure-count"] == b"0"
    assert data["success-count"] == b"1"


def test_failed_plan_is_not_retried_before_delay(host: Host) -> None:
    plan = {"instructions": [host.shell(f"{host.note('ran')}; exit 1")]}
    host.failed(plan)
    host.write(of_others="changed")
    data = host.settle()
    assert host.noted == ["ran"]
    assert data["failure-count"] == b"1"
    assert data["failed-checksum"] == checksum(plan)


def test_failed_plan_is_retried_after_delay_with_attempt_number(host: Host) -> None:
    plan = {"instructions": [host.shell(f"{host.note('$CATTLE_AGENT_ATTEMPT_NUMBER')}; exit 1")]}
    host.failed(plan)
    for attempt in (2, 3):
        host.write(last_apply_time=ago(31))
        host.has_failed(plan, attempt)
    assert host.noted == ["1", "2", "3"]


def test_success_resets_failure_count(host: Host) -> None:
    flag = host.folder / "flag"
    plan = {
        "instructions": [host.shell(f"echo $CATTLE_AGENT_ATTEMPT_NUMBER; test -e {flag}", name="x", saveOutput=True)]
    }
    host.failed(plan)
    flag.touch()
    host.write(last_apply_time=ago(31))
    data = host.wait(lambda data: data.get("applied-checksum") == checksum(plan), "it is applied in the end")
    assert data["failure-count"] == b"0"
    assert data["failed-checksum"] == b""
    assert data["failed-output"] == b""
    assert data["success-count"] == b"1"
    assert outputs(data["applied-output"]) == {"x": b"2\n"}


@pytest.mark.parametrize("most", ["1", "-1", "", "nonsense"])
def test_max_failures_limits_retries(host: Host, most: str) -> None:
    plan = {"instructions": [host.shell(f"{host.note('ran')}; exit 1")]}
    host.failed(plan, max_failures=most)
    host.write(last_apply_time=ago(31))
    if most == "1":
        data = host.settle()
        assert host.noted == ["ran"]
        assert data["failure-count"] == b"1"
        host.applied({"instructions": [host.shell(host.note("another plan"))]})
        assert host.noted == ["ran", "another plan"]
    else:
        host.has_failed(plan, 2)
