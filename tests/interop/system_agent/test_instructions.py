from __future__ import annotations

import json
import os
import time

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import UNIX_DATE, checksum, outputs


def test_instructions_run_one_after_the_other(host: Host) -> None:
    slow = host.shell(f"sleep 0.3; {host.note('one')}")
    data = host.applied({"instructions": [slow, host.shell(host.note("two")), host.shell(host.note("three"))]})
    assert host.noted == ["one", "two", "three"]
    assert data["success-count"] == b"1"
    assert data["failure-count"] == b"0"
    assert data.get("failed-checksum") == b""
    assert data.get("failed-output") == b""
    assert UNIX_DATE.fullmatch(data["last-apply-time"].decode())


def test_command_gets_working_directory_and_environment(host: Host) -> None:
    show = 'pwd; env; echo "0=$0 1=$1"'
    plan = {
        "instructions": [
            {"command": "sh", "args": ["-c", show, "name", "first argument"], "name": "x", "saveOutput": True,
             "env": ["MINE=a=b c", "FROM_THE_AGENT=changed", "PATH=/nowhere", "EMPTY="]},
            {"command": "/bin/sh", "args": ["-c", "pwd"], "name": "y", "saveOutput": True},
        ]
    }  # fmt: skip
    said = outputs(host.applied(plan)["applied-output"])
    lines = said["x"].decode().splitlines()
    folder = lines[0]
    work = os.path.join(str(host.agent.folder / "work"), "")
    assert folder.startswith(work)
    assert folder.endswith(f"/{checksum(plan).decode()}_0")
    assert time.strptime(folder[len(work) :].split("/")[0][:15], "%Y%m%d-%H%M%S")
    for line in ("MINE=a=b c", "FROM_THE_AGENT=changed", "EMPTY=", "0=name 1=first argument"):
        assert line in lines
    assert f"CATTLE_AGENT_EXECUTION_PWD={folder}" in lines
    assert "CATTLE_AGENT_ATTEMPT_NUMBER=1" in lines
    assert f"PATH={os.environ['PATH']}:{folder}" in lines
    assert said["y"].decode().strip() == folder[:-1] + "1"


def test_outputs_are_saved_under_their_names_and_kept(host: Host) -> None:
    plan = {
        "instructions": [
            host.shell("echo first; echo lost >&2", name="a", saveOutput=True),
            host.shell("echo not asked for", name="b"),
            host.shell("echo without a name", saveOutput=True),
            host.shell("true", name="silent", saveOutput=True),
            host.shell("printf '\\377\\000x\\n'", name="bytes", saveOutput=True),
        ]
    }
    data = host.applied(plan)
    assert data["applied-output"][:2] == b"\x1f\x8b"
    assert outputs(data["applied-output"]) == {"a": b"first\n", "silent": b"", "bytes": b"\xff\x00x\n"}
    data = host.applied({"instructions": [host.shell("echo again", name="a", saveOutput=True)]})
    assert outputs(data["applied-output"]) == {"a": b"again\n", "silent": b"", "bytes": b"\xff\x00x\n"}
    assert data["success-count"] == b"2"


def test_output_without_final_newline_is_saved_as_listed_per_agent(host: Host) -> None:
    plan = {"instructions": [host.shell("printf 'a\\r\\nb'", name="x", saveOutput=True)]}
    said = outputs(host.applied(plan)["applied-output"])
    assert said["x"] == host.expected("output without a final line break")


def test_very_long_output_line_has_listed_outcome_per_agent(host: Host) -> None:
    plan = {
        "instructions": [
            host.shell(f"head -c 200000 /dev/zero | tr '\\0' x; {host.note('done')}", name="x", saveOutput=True)
        ]
    }
    host.give(plan)
    if host.expected("a line of 200,000 bytes") == "succeeded":
        data = host.wait(lambda data: data.get("applied-checksum") == checksum(plan), "the plan is applied")
        assert outputs(data["applied-output"])["x"] == b"x" * 200_000
    else:
        host.settle()
        assert host.noted == []


def test_checksum_covers_exact_plan_bytes(host: Host) -> None:
    for odd in (
        b'\n{ "instructions" :[ ] ,"unknown":{"a":[1,2]}, "probes":{} }\n\n',
        '{"files": null, "instructions": [], "error": "\u00fc \U0001f40e"}'.encode(),
        b'{"instructions":[],"instructions":[]}',
    ):
        data = host.applied(odd)
        assert data["applied-checksum"] == checksum(odd)
        assert data["plan"] == odd


def test_foreign_secret_data_and_labels_are_kept(host: Host) -> None:
    host.applied({"instructions": [host.shell(host.note("ran"))]}, max_failures="7")
    host.settle()
    found = host.secret.read()
    assert found["metadata"]["labels"] == {"kept": "yes"}
    assert found["type"] == "rke.cattle.io/machine-plan"
    assert host.secret.data["of-others"] == b"kept"
    assert host.secret.data["max-failures"] == b"7"


def test_agent_without_plan_does_nothing_until_plan_arrives(host: Host) -> None:
    host.agent.start()
    data = host.settle()
    assert set(data) == {"probe-period-seconds", "of-others"}
    host.applied({"instructions": [host.shell(host.note("ran"))]})
    assert host.noted == ["ran"]


def test_applied_plan_is_not_applied_again_and_nothing_is_written(host: Host) -> None:
    host.applied({"instructions": [host.shell(host.note("ran"))]})
    host.settle()
    version = host.secret.read()["metadata"]["resourceVersion"]
    host.settle(4)
    assert host.secret.read()["metadata"]["resourceVersion"] == version
    host.write(of_others="changed")
    host.settle(2)
    assert host.noted == ["ran"]


def test_invalid_json_plan_does_not_stop_agent(host: Host) -> None:
    broken = b'{"instructions": ['
    if host.expected("a plan that is no JSON") == "failed":
        host.failed(broken)
    else:
        host.give(broken)
        assert "failure-count" not in host.settle()
    assert host.agent.running
    host.applied({"instructions": [host.shell(host.note("ran"))]})
    assert host.noted == ["ran"]


def test_applied_plans_are_kept_as_history(host: Host) -> None:
    plan = {"instructions": [host.shell(host.note("ran"))]}
    host.applied(plan)
    host.until(lambda: len([*(host.agent.folder / "applied").glob("*-applied.plan")]) == 1, "it is kept")
    (kept,) = (host.agent.folder / "applied").iterdir()
    assert kept.name.endswith("-applied.plan")
    assert kept.stat().st_mode & 0o777 == 0o600
    found = json.loads(kept.read_text())
    assert found["Checksum"] == checksum(plan).decode()
    assert found["Plan"]["instructions"][0]["command"] == "sh"


def test_pending_restart_interlock_delays_plans(host: Host) -> None:
    pending = host.agent.folder / "interlock" / "restart-pending"
    pending.touch()
    host.give({"instructions": [host.shell(host.note("ran"))]})
    host.until(lambda: UNIX_DATE.fullmatch(pending.read_text()), "it has noted since when it waits")
    host.settle()
    assert host.noted == []
    pending.unlink()
    host.applied({"instructions": [host.shell(host.note("ran later"))]})
    assert host.noted[-1] == "ran later"
    assert not pending.exists()


def test_running_command_sets_active_interlock(host: Host) -> None:
    active = host.agent.folder / "interlock" / "applyinator-active"
    host.applied({"instructions": [host.shell(f"test -e {active} && {host.note('active')}")]})
    assert host.noted == ["active"]
    host.until(lambda: not active.exists(), "it announces nothing any more")
