"""What keeps a unit from running, as the periodic instruction reports it: run for real beside stand-ins for systemd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from remuda.agent import rules
from remuda.agent.plan import Instruction
from remuda.providers.controlplane import render
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.shared import distros
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.providers.controlplane.render import sample

TOKEN = "f3a9c2d47e51"
FATAL = r'time="2026-11-17T10:00:0{}Z" level=fatal msg="missing required: user: unknown user etcd\n"'


class Host:
    """`folder`: the host is a folder, so its log is a file; else its log is the journal."""

    def __init__(self, path: Path, *, folder: bool = False) -> None:
        self.path, self.folder = path, folder
        self.tool = path / "host-tool.py"
        self.tool.write_bytes(files(distros).joinpath("host_tool.py").read_bytes())
        self.config = path / "etc/rancher/rke2"
        (self.config / "config.yaml.d").mkdir(parents=True)
        settings = {"token": TOKEN, "etcd-s3-secret-key": "S3cr3tK3y", "node-name": "server-1"}
        (self.config / "config.yaml.d/50-rancher.yaml").write_text(json.dumps(settings))
        (path / "bin").mkdir()
        self.program("systemctl", f'#!/bin/sh\ncat "{path}/show"\n')
        self.program("journalctl", f'#!/bin/sh\necho "$*" >>"{path}/asked"\ncat "{path}/journal"\n')
        self.show()
        self.log()

    def program(self, name: str, text: str) -> None:
        (self.path / "bin" / name).write_text(text)
        (self.path / "bin" / name).chmod(0o755)

    def show(self, state: str = "activating", restarts: int = 1, result: str = "exit-code", pid: int = 0) -> None:
        facts = {"LoadState": "loaded", "ActiveState": state, "NRestarts": restarts, "Result": result, "MainPID": pid}
        (self.path / "show").write_text("".join(f"{key}={value}\n" for key, value in facts.items()))

    def log(self, *lines: str) -> None:
        path = self.path / ("var/log/rke2-server.log" if self.folder else "journal")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def run(self, patience: float = 0.1) -> str:
        """`patience`: seconds for which a unit that is starting may become active before it is reported."""
        environment = {"PATH": f"{self.path}/bin:{os.environ['PATH']}", "REMUDA_PATIENCE_SECONDS": str(patience)}
        if self.folder:
            environment["REMUDA_HOST_ROOT"] = str(self.path)
        config = "/etc/rancher/rke2" if self.folder else str(self.config)
        command = [sys.executable, str(self.tool), "status", "rke2-server", config]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run())
        assert found.pop("unit") == "rke2-server"
        return found

    def error(self, *lines: str) -> str:
        self.log(*lines)
        return str(self.status()["error"])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_failed_unit_is_reported_with_last_program_error(host: Host) -> None:
    host.log('time="2026-11-17T10:00:00Z" level=info msg="Starting rke2"', FATAL.format(1))
    assert host.status() == {"state": "activating", "error": "missing required: user: unknown user etcd"}
    asked = (host.path / "asked").read_text()
    assert "_SYSTEMD_UNIT=rke2-server.service" in asked


def test_installation_advice_is_appended_to_error(host: Host) -> None:
    (host.path / "advice").write_text("create user etcd\n")
    assert host.error(FATAL.format(1)) == "missing required: user: unknown user etcd: create user etcd"


@pytest.mark.parametrize("state", ["active", "reloading"])
def test_active_unit_is_not_reported(host: Host, state: str) -> None:
    host.log(FATAL.format(1))
    host.show(state, restarts=0, result="success", pid=os.getpid())
    assert host.run() == ""
    assert not (host.path / "asked").exists(), "no log is read where nothing is wrong"


def test_crash_looping_active_unit_is_reported(host: Host) -> None:
    """Units of agents are called active as soon as their program runs."""
    host.log(FATAL.format(1))
    sleeper = subprocess.Popen(["/bin/sleep", "100"])
    try:
        host.show("active", restarts=3, result="success", pid=sleeper.pid)
        assert host.status()["state"] == "activating"
        host.show("active", restarts=3, result="success", pid=1)
        assert host.run() == "", "it has run for long since"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_uninstalled_unit_is_not_reported(host: Host) -> None:
    (host.path / "show").write_text("LoadState=not-found\nActiveState=inactive\n")
    assert host.run() == ""


def test_manually_stopped_unit_has_no_error(host: Host) -> None:
    host.log(FATAL.format(1))
    host.program("journalctl", "#!/bin/sh\ncase $* in *_SYSTEMD_INVOCATION_ID=*) ;; *) exit 1 ;; esac\n")
    host.show("inactive", restarts=0, result="success")
    (host.path / "show").open("a").write("InvocationID=abc\n")
    assert host.status() == {"state": "inactive", "error": ""}


def test_first_start_ignores_errors_of_previous_runs(host: Host) -> None:
    host.program(
        "journalctl",
        f"#!/bin/sh\ncase $* in *_SYSTEMD_INVOCATION_ID=new*) echo 'level=info msg=\"Waiting for etcd\"' ;; "
        f"*) cat {host.path}/journal ;; esac\n",
    )
    host.log(FATAL.format(1))
    host.show("activating", restarts=0, result="success")
    (host.path / "show").open("a").write("InvocationID=new\n")
    assert host.status() == {"state": "activating", "error": ""}
    host.program("systemctl", f'#!/bin/sh\ncat "{host.path}/show"\nsed -i s/=activating/=active/ "{host.path}/show"\n')
    host.show("activating", restarts=0, result="success")
    assert host.run(patience=LIMIT_SECONDS) == ""


def test_folder_host_error_is_read_from_log_file(tmp_path: Path) -> None:
    host = Host(tmp_path, folder=True)
    assert host.error("nano server: flag needs an argument: --x") == "nano server: flag needs an argument: --x"
    assert not (host.path / "asked").exists(), "that is the journal of the machine it stands on"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["level=fatal msg=first", "level=error msg=second", "level=info msg=third"], "first"),
        (['level=error msg="cannot" error="no \\"route\\""', "level=info msg=retrying"], 'cannot: no "route"'),
        (["E1117 10:11:12.123456    4242 server.go:12] no space left"], "no space left"),
        (["Error: unknown key", "usage"], "Error: unknown key"),
        (["2026-11-17 10:11:12,123 ERROR remuda.lab.nano: port in use"], "ERROR remuda.lab.nano: port in use"),
        (["Traceback (most recent call last):", '  File "x", line 1', "ValueError: bad"], "ValueError: bad"),
        (["panic: boom", "", "goroutine 1 [running]:", "\tmain.go:3"], "panic: boom"),
        (['{"level":"fatal","ts":"2026-11-17T10:00:00Z","msg":"no","error":"disk"}'], "no: disk"),
        (["modprobe: FATAL: Module overlay not found", "it said this last"], "it said this last"),
        (["level=fatal msg=old", *["level=info msg=busy"] * 60, "the end"], "the end"),
        ([r'level=fatal msg="b=0 - expected 1\na=1 - expected 0\n"'], "a=1 - expected 0, b=0 - expected 1"),
        ([], "exit-code"),
    ],
)
def test_error_is_the_worst_of_the_last_lines(host: Host, lines: list[str], error: str) -> None:
    assert host.error(*lines) == error


def test_error_differing_only_in_time_is_not_reported_again(host: Host) -> None:
    for form in (
        FATAL,
        "2026-11-17 10:11:1{},123 ERROR remuda.lab.nano: port in use",
        "E1117 10:11:12.12345{}    4242 server.go:12] lease expired at 2026-11-17T10:11:1{}.5+01:00",
        "2026/11/17 10:11:1{} Error: no",
    ):
        instruction = Instruction(name="unit-status")
        records = []
        for second in range(2):
            host.log(form.format(second, second))
            result = rules.Result(stdout=host.run().encode())
            records.append({"unit-status": rules.recorded(None, instruction, result, 1e9 + second)})
        assert not rules.is_news(records[0], records[1], 1e9 + 2), form


@pytest.mark.parametrize(
    "line",
    [
        f"level=fatal msg=\"cannot join with {TOKEN}\"",
        "level=fatal msg=\"upload failed: S3cr3tK3y\"",
        f"level=fatal msg=\"bad token K10{'a1' * 32}::server:hunter22\"",
        "Error: invalid --token hunter22",
        "Error: token=hunter22 is not valid",
        'Error: {"password": "hunter22"}',
        "Error: datastore postgres://admin:hunter22@db/k3s",
        "Error: Authorization: Bearer hunter22hunter22",
        "Error: eyJhbGciOi.eyJzdWIiOj.c2lnbmF0dXJl",
        "Error: -----BEGIN EC PRIVATE KEY-----hunter22",
        "Error: AKIAIOSFODNN7EXAMPLE",
    ],
)  # fmt: skip
def test_secrets_are_redacted_from_error(host: Host, line: str) -> None:
    error = host.error(line)
    assert "***" in error
    for secret in (TOKEN, "S3cr3tK3y", "hunter22", "a1a1", "c2lnbmF0dXJl", "AKIA"):
        assert secret not in error


def test_error_is_one_short_printable_line(host: Host) -> None:
    error = host.error("Error: \x1b[31mred\x1b[0m \x00\x07 \u2028 " + "x" * 5000)
    assert error.startswith("Error: red x")
    assert len(error) == 300
    assert error.isprintable()


def test_long_log_line_is_processed_quickly(host: Host) -> None:
    began = time.monotonic()
    assert host.error("Error: " + "token" * 12_000)
    assert time.monotonic() - began < LIMIT_SECONDS / 10


@pytest.mark.parametrize("distro", sample.VERSIONS)
@pytest.mark.parametrize("role", ["init", "worker"])
def test_unit_status_is_last_periodic_instruction(distro: str, role: str) -> None:
    """One that fails keeps those behind it from being run in that pass."""
    plan = plans.read(render.render(sample.plain(distro), sample.host(role), sample.place(role, distro)))
    last = plan.periodic[-1]
    assert (last.name, last.period_seconds) == ("unit-status", 30)
    assert f"REMUDA_UNIT={plan.environment()['REMUDA_UNIT']}" in last.env
