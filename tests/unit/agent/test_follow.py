"""The real agent as a process, from the zipapp as delivered, with a Secret on a real API server."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ours import Ours
from tests.unit.agent.conftest import Pair
from tests.unit.agent.host import MERGE, PlanSecret, account, encoded, eventually, host, shell, wait_for_file

ROOT = "$REMUDA_HOST_ROOT"

_RUN = "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
A_DAY_BEHIND = f"import runpy, sys, time; real = time.time; time.time = lambda: real() - 86400; {_RUN}"
CLOCK_STOPPED = f"import runpy, sys, time; now = time.time(); time.time = lambda: now; {_RUN}"


def test_plan_writes_files_before_running_instructions_in_order(pair: Pair) -> None:
    secret, host = pair
    host.start()
    checksum = secret.put(
        {
            "files": [
                {"path": "/etc/demo/config", "content": encoded("a: 1\n"), "permissions": "0640"},
                {"path": "/var/demo", "directory": True, "permissions": "0750"},
            ],
            "instructions": [
                shell(f"cat {ROOT}/etc/demo/config; echo noise >&2", "first", saveOutput=True),
                shell(f"echo second >> {ROOT}/order", env=["GREETING=hello"]),
                shell(
                    'echo "$GREETING $CATTLE_AGENT_ATTEMPT_NUMBER"; pwd', "third", saveOutput=True, env=["GREETING=hi"]
                ),
            ],
        }
    )
    data = secret.applied(checksum)
    assert secret.output("first") == b"a: 1\n"
    greeting, folder = secret.output("third").decode().splitlines()
    assert greeting == "hi 1"
    assert folder.endswith(f"{checksum}_2")
    assert not os.path.exists(folder)
    assert host.lines("order") == ["second"]
    assert stat.S_IMODE((host.root / "etc/demo/config").stat().st_mode) == 0o640
    assert stat.S_IMODE((host.root / "var/demo").stat().st_mode) == 0o750
    assert (data["failure-count"], data["success-count"], data["failed-checksum"]) == (b"0", b"1", b"")
    assert time.strptime(data["last-apply-time"].decode(), "%a %b %d %H:%M:%S UTC %Y")
    history = list((host.var / "applied").iterdir())
    assert [json.loads(path.read_text())["Checksum"] for path in history] == [checksum]


def test_failed_instruction_stops_plan_and_new_plan_is_applied_at_once(pair: Pair) -> None:
    secret, host = pair
    host.start("-c", CLOCK_STOPPED)  # the pause after a failure never ends: the next plan does not wait for it
    wrong = secret.put(
        {
            "instructions": [
                shell("echo out; echo broken >&2; exit 7", "install", saveOutput=True),
                shell(f"touch {ROOT}/never"),
            ]
        }
    )
    data = secret.failed(wrong)
    assert data["failed-message"] == b"instruction 0 (install) ended with exit code 7: out\nbroken"
    assert secret.output("install", "failed-output") == b"out\nbroken\n"
    assert data["success-count"] == b"0"
    assert "applied-checksum" not in data
    right = secret.put({"instructions": [shell("true")]})
    data = secret.applied(right)
    assert (data["failure-count"], data["failed-checksum"], data["failed-message"]) == (b"0", b"", b"")
    assert not (host.root / "never").exists()


def test_file_path_with_dotdot_fails_plan_with_reason_in_secret(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {
        "files": [{"path": "/etc/../../escaped", "content": encoded("x")}],
        "instructions": [shell(f"touch {ROOT}/ran")],
    }
    data = secret.failed(secret.put(plan))
    assert data["failed-message"] == b"file '/etc/../../escaped': the path contains .."
    assert not (host.folder / "escaped").exists()
    assert not (host.root / "ran").exists()


def test_unparsable_plan_is_reported_and_next_plan_is_applied(pair: Pair) -> None:
    secret, host = pair
    host.start()
    data = secret.failed(secret.put(b'{"files": 7}'))
    assert data["failed-message"] == b"plan.files is not a list"
    secret.applied(secret.put({}))


def test_plan_state_pending_requests_exactly_one_run(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {"instructions": [shell(f"echo x >> {ROOT}/runs; test -e {ROOT}/well")]}
    secret.put(plan, plan_state=b"pending")
    eventually(lambda: secret.text("plan-state") == "failed")
    first = secret.data()
    assert (first["plan-revision"], first["failure-count"]) == (b"1", b"1")
    time.sleep(0.5)
    assert host.lines("runs") == ["x"]  # no retry that nobody asked for
    assert secret.data()["failed-checksum"] == first["failed-checksum"]  # the failure stays readable
    (host.root / "well").touch()
    secret.put(plan_state=b"pending")
    eventually(lambda: secret.text("plan-state") == "succeeded")
    assert secret.text("plan-revision") == "2"
    assert host.lines("runs") == ["x", "x"]
    secret.put(plan_state=b"pending")
    eventually(lambda: secret.text("plan-revision") == "3" and secret.text("plan-state") == "succeeded")
    assert host.lines("runs") == ["x", "x", "x"]


def test_plan_is_not_retried_beyond_max_failures(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {"instructions": [shell(f"echo x >> {ROOT}/runs; exit 1")]}
    checksum = secret.put(plan, max_failures=b"2", last_apply_time=b"Thu Jan  1 00:00:00 UTC 2026")
    secret.failed(checksum, 1)
    # the pause is over as soon as the last attempt is long ago, and a time in the future is no reason to wait
    secret.put(last_apply_time=b"Mon Jan  1 00:00:00 UTC 2125")
    secret.failed(checksum, 2)
    secret.put(last_apply_time=b"Thu Jan  1 00:00:00 UTC 2026")
    time.sleep(0.5)
    assert host.lines("runs") == ["x", "x"]
    assert secret.text("failure-count") == "2"


def test_agent_restart_does_not_rerun_applied_plan(pair: Pair) -> None:
    secret, host = pair
    host.start()
    checksum = secret.put({"instructions": [shell(f"echo x >> {ROOT}/runs")]})
    secret.applied(checksum)
    before = secret.version()
    assert host.stop() == 0
    host.start()
    eventually(lambda: f"received plan {checksum[:12]}" in host.said().split("stopped", 1)[-1])
    host.stop()
    assert host.lines("runs") == ["x"]
    assert secret.version() == before


def test_unreported_result_is_reported_after_agent_restart(pair: Pair, server: Ours) -> None:
    """Finished while the server was away, killed before it came back."""
    secret, host = pair
    host.start()
    script = f"echo x >> {ROOT}/runs; {wait_for_file(f'{ROOT}/go')}"
    checksum = secret.put({"instructions": [shell(script, "a", saveOutput=True)]})
    eventually(lambda: host.lines("runs"))
    server.kill()
    try:
        (host.root / "go").touch()
        eventually(lambda: "attempt-1 succeeded" in host.said())
        host.kill()
    finally:
        server.start_again()
    host.start()
    secret.applied(checksum)
    assert host.lines("runs") == ["x"]
    assert "had already finished" in host.said()


def test_agent_killed_during_plan_reruns_the_same_attempt(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {
        "instructions": [
            shell(f"echo one-$CATTLE_AGENT_ATTEMPT_NUMBER >> {ROOT}/runs"),
            shell(f"echo two >> {ROOT}/runs; test -e {ROOT}/go || sleep 600"),
        ]
    }
    checksum = secret.put(plan)
    eventually(lambda: "two" in host.lines("runs"))
    host.kill()
    (host.root / "go").touch()
    host.start()
    secret.applied(checksum)
    assert host.lines("runs") == ["one-1", "two", "one-1", "two"]


def test_agent_stop_kills_running_command_and_its_children(pair: Pair) -> None:
    secret, host = pair
    host.start()
    for kind in ("periodicInstructions", "instructions"):
        secret.put({kind: [shell(f"echo $$ >> {ROOT}/pid; sleep 1000 & echo $! >> {ROOT}/pid; wait", "p")]})
        eventually(lambda kind=kind: len(host.lines("pid")) == (2 if kind[0] == "p" else 4))
    assert host.stop() == 0
    for pid in host.lines("pid"):
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_stuck_instruction_does_not_block_probes_and_periodic_instructions(pair: Pair, server: Ours) -> None:
    secret, host = pair
    host.start()
    probe = {"httpGet": {"url": f"{server.url}/livez", "insecure": True}, "timeoutSeconds": int(LIMIT_SECONDS)}
    stuck = {"instructions": [shell(f"touch {ROOT}/stuck; sleep 1000")], "probes": {"api": probe}}
    secret.put(stuck, probe_period_seconds=b"0.2")
    eventually(lambda: (host.root / "stuck").exists())
    eventually(lambda: '"healthy":true' in secret.text("probe-statuses"))
    secret.put({"periodicInstructions": [shell("echo newer", "p")], "instructions": [shell("true")]})
    eventually(lambda: "p" in secret.periodic())
    assert base64.b64decode(secret.periodic()["p"]["stdout"]) == b"newer\n"
    assert "applied-checksum" not in secret.data()
    eventually(lambda: "waits for the run of" in host.said())


def test_newer_plan_supersedes_running_plan_when_enabled(server: Ours, secret: PlanSecret, tmp_path: Path) -> None:
    secret.create()
    with host(tmp_path / "host", account(server, secret.name), secret.name, supersede=True) as found:
        found.start()
        secret.put({"instructions": [shell(f"touch {ROOT}/stuck; sleep 1000")]})
        eventually(lambda: (found.root / "stuck").exists())
        secret.applied(secret.put({"instructions": [shell("true")]}))


def test_instruction_timeout_fails_the_plan(server: Ours, secret: PlanSecret, tmp_path: Path) -> None:
    secret.create()
    with host(tmp_path / "host", account(server, secret.name), secret.name, instructionTimeoutSeconds=1) as found:
        found.start()
        data = secret.failed(secret.put({"instructions": [shell("echo begun; sleep 1000", "slow")]}))
        assert b"ended after 1 seconds" in data["failed-message"]


def test_large_instruction_output_is_truncated_with_bounded_memory(pair: Pair) -> None:
    secret, host = pair
    host.start()
    script = "echo first; head -c 100000000 /dev/urandom; echo; echo last"
    secret.applied(secret.put({"instructions": [shell(script, "much", saveOutput=True)]}))
    output = secret.output("much")
    assert output.startswith(b"first\n")
    assert output.endswith(b"last\n")
    assert b"bytes left out]" in output
    assert sum(len(value) for value in secret.data().values()) < 1 << 20
    assert host.memory() < 40_000


def test_periodic_instructions_run_by_their_period_and_are_recorded(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {
        "periodicInstructions": [
            shell(f"echo x >> {ROOT}/often; echo out; echo err >&2", "often", periodSeconds=1, saveStderrOutput=True),
            shell(f"echo x >> {ROOT}/broken; echo no >&2; exit 3", "broken", periodSeconds=1),
            shell(f"touch {ROOT}/behind", "behind", periodSeconds=1),
        ]
    }
    secret.applied(secret.put(plan))
    records = eventually(lambda: (found := secret.periodic()).keys() >= {"often", "broken"} and found)
    assert (records["often"]["stdout"], records["often"]["stderr"]) == (encoded("out\n"), encoded("err\n"))
    assert records["often"]["exitCode"] == 0
    assert (records["broken"]["exitCode"], records["broken"]["failures"]) == (3, 1)
    assert records["broken"]["lastSuccessfulRunTime"] == ""
    eventually(lambda: len(host.lines("often")) >= 3)
    assert len(host.lines("broken")) < 3  # what fails waits for longer than its period
    eventually(lambda: (host.root / "behind").exists())  # not in the pass in which the one before it failed


def test_unchanged_periodic_instruction_result_is_not_written(pair: Pair) -> None:
    secret, host = pair
    host.start()
    noise = f"head -c 300000 /dev/urandom | tee {ROOT}/noise >/dev/null; cat {ROOT}/fixed; echo x >> {ROOT}/often"
    (host.root / "fixed").write_bytes(bytes(range(256)) * 2000)  # longer than what is kept of it
    secret.applied(secret.put({"periodicInstructions": [shell(noise, "p", periodSeconds=1)]}))
    eventually(lambda: "p" in secret.periodic())
    quiet, before = secret.version(), len(host.lines("often"))
    eventually(lambda: len(host.lines("often")) >= before + 3)
    assert secret.version() == quiet
    (host.root / "fixed").write_bytes(b"changed")
    eventually(lambda: base64.b64decode(secret.periodic()["p"]["stdout"]) == b"changed")


def test_loopback_probes_use_host_address_and_write_only_changes(pair: Pair, server: Ours) -> None:
    secret, host = pair
    ca = host.root / "ca.pem"
    ca.write_bytes(server.ca_pem)
    port = server.url.rsplit(":", 1)[1]
    host.start()
    get = {"url": f"https://127.0.0.1:{port}/livez", "caCert": "/ca.pem"}
    plan = {
        "probes": {
            "api": {"httpGet": get, "timeoutSeconds": int(LIMIT_SECONDS)},
            "gone": {"httpGet": {"url": "http://127.0.0.1:1/healthz"}, "failureThreshold": 2},
        }
    }
    secret.put(plan, probe_period_seconds=b"0.1")
    eventually(
        lambda: secret.text("probe-statuses") == '{"api":{"healthy":true,"successCount":1},"gone":{"failureCount":2}}'
    )
    quiet = secret.version()
    time.sleep(0.5)
    assert secret.version() == quiet  # nothing changed, so nothing is written


def test_recreated_plan_secret_runs_the_plan_again(pair: Pair) -> None:
    secret, host = pair
    host.start()
    plan = {"instructions": [shell(f"echo x >> {ROOT}/runs")]}
    checksum = secret.put(plan)
    secret.applied(checksum)
    secret.delete()
    secret.create()
    assert secret.put(plan) == checksum
    secret.applied(checksum)
    assert host.lines("runs") == ["x", "x"]
    assert secret.text("success-count") == "1"


def test_agent_keeps_working_and_reconnects_after_server_outage(pair: Pair, server: Ours) -> None:
    secret, host = pair
    host.start()
    secret.applied(secret.put({"periodicInstructions": [shell(f"echo x >> {ROOT}/often", "often", periodSeconds=1)]}))
    server.kill()
    try:
        before = len(host.lines("often"))
        eventually(lambda: len(host.lines("often")) >= before + 3)
        assert host.process is not None
        assert host.process.poll() is None
    finally:
        server.start_again()
    secret.applied(secret.put({"instructions": [shell("true")]}))
    eventually(lambda: "works again" in host.said())


@pytest.mark.parametrize("verbs", [("get", "list", "watch", "update"), ("get", "list", "watch", "update", "patch")])
def test_concurrent_secret_writes_lose_no_results(
    server: Ours, secret: PlanSecret, tmp_path: Path, verbs: tuple[str, ...]
) -> None:
    """Somebody else writes the Secret all the time."""
    secret.create()
    with host(tmp_path / "host", account(server, secret.name, verbs), secret.name) as found, _storm(secret) as writes:
        found.start()
        for number in range(5):
            plan = {"instructions": [shell(f"echo {number} >> {ROOT}/runs; echo {number}", "n", saveOutput=True)]}
            secret.applied(secret.put(plan))
            assert secret.output("n") == f"{number}\n".encode()
            eventually(lambda number=number: len(writes) > 5 * (number + 1))
        assert secret.text("success-count") == "5"
        assert found.lines("runs") == ["0", "1", "2", "3", "4"]
        assert found.process is not None
        assert found.process.poll() is None
    assert len(writes) > 20


@contextmanager
def _storm(secret: PlanSecret) -> Iterator[list[int]]:
    stop, codes = threading.Event(), []
    connection = secret.server.connect(timeout=LIMIT_SECONDS)

    def disturb() -> None:
        while not stop.is_set():
            body = json.dumps({"metadata": {"annotations": {"disturbed": str(len(codes))}}})
            connection.request("PATCH", secret.path, body, MERGE)
            answer = connection.getresponse()
            answer.read()
            codes.append(answer.status)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join()
        connection.close()


def test_agent_works_with_upstream_role_without_patch(server: Ours, secret: PlanSecret, tmp_path: Path) -> None:
    """It has no right to patch."""
    secret.create()
    rights = account(server, secret.name, ("get", "list", "watch", "update"))
    with host(tmp_path / "host", rights, secret.name) as found:
        found.start()
        data = secret.applied(secret.put({"instructions": [shell("echo hi", "a", saveOutput=True)]}))
        assert json.loads(data["plan"])["instructions"]
        assert secret.output("a") == b"hi\n"
        secret.applied(secret.put({"instructions": [shell("true")]}))


def test_second_agent_on_same_host_exits_immediately(pair: Pair) -> None:
    secret, host = pair
    host.start()
    secret.applied(secret.put({}))
    command = [sys.executable, str(host.program), "run", "--config", str(host.config)]
    second = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS)
    assert second.returncode == 1
    assert b"another agent is running" in second.stderr


def test_plan_waits_while_a_restart_is_pending(pair: Pair) -> None:
    secret, host = pair
    (host.var / "interlock").mkdir()
    pending = host.var / "interlock" / "restart-pending"
    pending.touch()
    host.start()
    checksum = secret.put({"instructions": [shell("true")]})
    eventually(lambda: "restart of this agent is pending" in host.said())
    assert "applied-checksum" not in secret.data()
    pending.unlink()
    secret.applied(checksum)


def test_clock_skew_is_reported_and_does_not_delay_plans(pair: Pair) -> None:
    """Refused by the server for a token that is no longer valid, seen by a host whose clock is a day behind."""
    secret, host = pair
    host.start("-c", A_DAY_BEHIND)
    checksum = secret.put({"instructions": [shell("true")]}, last_apply_time=b"Mon Jan  1 00:00:00 UTC 2125")
    secret.applied(checksum)
    host.stop()
    info = json.loads((host.folder / "connection.json").read_text())
    info["kubeConfig"] = info["kubeConfig"].replace("token: ", "token: not-")
    host.private("connection.json", json.dumps(info))
    host.start("-c", A_DAY_BEHIND)
    eventually(lambda: "the clock of this host is 24 hours behind the server's" in host.said())


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_agent_runs_on_older_and_newer_pythons(pair: Pair, version: str) -> None:
    secret, host = pair
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python{version}"))
    if not beside:
        pytest.skip(f"there is no Python {version} beside this one")
    host.start(python=str(beside[-1]))
    secret.applied(secret.put({"instructions": [shell("echo hi", "a", saveOutput=True)]}))
    assert secret.output("a") == b"hi\n"
    assert host.memory() <= 25_600


def test_idle_agent_uses_little_memory_and_writes_nothing(pair: Pair) -> None:
    secret, host = pair
    host.start()
    secret.applied(secret.put({"instructions": [shell("true")]}))
    before = secret.version()
    time.sleep(0.5)
    assert secret.version() == before
    assert host.memory() <= 25_600
