from __future__ import annotations

import os
import signal
import time

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import checksum
from tests.lab.limits import LIMIT_SECONDS


def test_restart_after_success_without_plan_state_reruns_as_listed_per_agent(host: Host) -> None:
    plan = {"instructions": [host.shell(host.note("ran"))]}
    host.applied(plan)
    host.agent.stop()
    host.agent.start()
    runs = host.expected("runs after a restart, without plan-state")
    if runs > 1:
        host.wait(lambda data: data.get("success-count") == str(runs).encode(), "it has run again")
    data = host.settle()
    assert host.noted == ["ran"] * runs
    assert data["applied-checksum"] == checksum(plan)


def test_restart_after_success_with_plan_state_does_not_rerun(host: Host) -> None:
    host.give({"instructions": [host.shell(host.note("ran"))]}, plan_state="pending")
    host.wait(lambda data: data.get("plan-state") == b"succeeded", "it has succeeded")
    host.agent.stop()
    host.agent.start()
    host.settle(4)
    assert host.noted == ["ran"]


def test_interrupted_plan_restarts_from_first_instruction(host: Host) -> None:
    number, gate = host.folder / "number", host.folder / "gate"
    wait = f"echo $$ > {number}; test -e {gate} || exec sleep 600"
    plan = {"instructions": [host.shell(host.note("one")), host.shell(wait), host.shell(host.note("three"))]}
    host.give(plan, plan_state="pending")
    host.until(lambda: number.exists() and number.read_text().endswith("\n"), "its second instruction runs")
    host.agent.kill()
    os.kill(int(number.read_text()), signal.SIGKILL)
    assert host.secret.data["plan-state"] == b"in-progress"
    gate.touch()
    host.agent.start()
    data = host.wait(lambda data: data.get("plan-state") == b"succeeded", "it has succeeded")
    assert host.noted == ["one", "one", "three"]
    assert data["plan-revision"] == b"1"


def test_recreated_secret_reapplies_plan(host: Host) -> None:
    plan = {"instructions": [host.shell(host.note("ran"))]}
    host.applied(plan)
    host.settle()
    before = len(host.secret.states)
    host.secret.delete()
    host.secret.create()
    host.secret.write(plan)
    host.until(lambda: host.noted == ["ran", "ran"], "it has run again")
    data = host.wait(lambda data: data.get("applied-checksum") == checksum(plan), "it is applied again", since=before)
    assert host.noted == ["ran", "ran"]
    assert data["success-count"] == b"1"
    assert host.agent.running


def test_newer_plan_waits_for_running_plan(host: Host) -> None:
    gate = host.folder / "gate"
    slow = {
        "instructions": [
            host.shell(f"{host.note('begun')}; while ! test -e {gate}; do sleep 0.05; done; {host.note('ended')}")
        ]
    }
    host.give(slow)
    host.until(lambda: host.noted, "it has begun")
    newer = {"instructions": [host.shell(host.note("newer"))]}
    host.secret.write(newer)
    host.settle(2)
    assert host.noted == ["begun"]
    gate.touch()
    deadline = time.monotonic() + LIMIT_SECONDS
    while host.secret.data.get("applied-checksum") != checksum(newer) and time.monotonic() < deadline:
        if not host.agent.running:
            host.agent.start()  # upstream's ends when its result meets a newer plan; systemd starts it again
        time.sleep(0.05)
    assert [line for line in host.noted if line != "newer"] == ["begun", "ended"]
    assert "newer" in host.noted
