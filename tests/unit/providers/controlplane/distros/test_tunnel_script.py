"""The script that keeps the tunnel's client on a host, run for real: in a folder that stands for a host."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts, Tokens
from remuda.providers.controlplane.render import plan as plans
from tests.lab import certificates
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.providers.controlplane.distros.test_scripts import Machine, Service
from tests.unit.providers.controlplane.render import sample

PROGRAM = "/assets/remuda-agent.pyz"
FOLDER = "/var/lib/rancher/capr/tunnel"
UNIT = "/etc/systemd/system/remuda-tunnel.service"
STARTED = ["daemon-reload", "enable remuda-tunnel.service", "restart remuda-tunnel.service"]
RUNS = "remuda-tunnel.service runs\n"
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HOST/systemctl.log"
case $1 in
is-active) cat "$HOST/state" 2>/dev/null || { echo inactive; exit 3; } ;;
restart) echo active >"$HOST/state" ;;
stop) rm -f "$HOST/state" ;;
esac
"""


class Served(Service):
    """The manager, as far as the program is concerned."""

    def __init__(self, authority: certificates.Authority, folder: Path) -> None:
        self.answers: dict[str, bytes] = {}
        self.authority = authority
        super().__init__(authority.server("127.0.0.1"), folder, self.answers)

    def program(self, content: bytes) -> None:
        self.answers[PROGRAM] = content
        self.answers[f"{PROGRAM}.sha256"] = f"{hashlib.sha256(content).hexdigest()}  remuda-agent.pyz\n".encode()


class Node(Machine):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.program("systemctl", SYSTEMCTL)

    def give(self, content: bytes) -> None:
        """The files of a plan."""
        for file in plans.read(content).files:
            path = self.path(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)

    def keep(self, content: bytes) -> str:
        """What the instruction says."""
        done = self.run(next(one for one in plans.read(content).periodic if one.name == "tunnel"))
        assert done.returncode == 0, done
        return done.stdout

    def looked_long_ago(self) -> None:
        os.utime(self.path(f"{FOLDER}/looked"), (0, 0))


def tunnelled(**spec: object) -> ClusterFacts:
    tokens = Tokens(sample.SERVER_TOKEN, sample.AGENT_TOKEN, sample.TUNNEL_KEY)
    return sample.with_(sample.plain(**spec), tokens=tokens, tunnel=sample.TUNNEL)


def planned(cluster: ClusterFacts) -> bytes:
    return render.render(cluster, sample.host("server"), sample.place("server"))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "service"
    folder.mkdir()
    served = Served(certificates.Authority("manager"), folder)
    served.program(b"the program")
    yield served
    served.stop()


@pytest.fixture
def node(tmp_path: Path, manager: Served) -> Node:
    node = Node(tmp_path / "host")
    node.connect(manager.url, manager.authority)
    node.give(planned(tunnelled()))
    return node


def test_tunnel_program_is_downloaded_and_service_started_once(node: Node, manager: Served) -> None:
    plan = planned(tunnelled())
    for _ in range(3):
        assert node.keep(plan) == RUNS
    assert node.asked_of_systemd() == STARTED
    assert manager.asked == [f"{PROGRAM}.sha256", PROGRAM]
    assert node.path(f"{FOLDER}/remuda-tunnel.pyz").read_bytes() == b"the program"
    unit = node.path(UNIT).read_text()
    folder = node.path(FOLDER)
    assert f"-I -S {folder}/remuda-tunnel.pyz tunnel --config {folder}/config.json".replace(" ", "") in unit.replace(
        '"', ""
    ).replace(" ", "")
    assert "Restart=always" in unit
    assert stat.S_IMODE(folder.joinpath("remuda-tunnel.pyz").stat().st_mode) == 0o600


def test_newer_tunnel_program_replaces_old_and_restarts_service(node: Node, manager: Served) -> None:
    plan = planned(tunnelled())
    node.keep(plan)
    node.asked_of_systemd()
    manager.asked.clear()
    node.looked_long_ago()
    assert node.keep(plan) == RUNS
    assert manager.asked == [f"{PROGRAM}.sha256"]  # it has not changed
    assert node.asked_of_systemd() == []
    manager.program(b"a newer program")
    node.looked_long_ago()
    assert node.keep(plan) == RUNS
    assert node.path(f"{FOLDER}/remuda-tunnel.pyz").read_bytes() == b"a newer program"
    assert node.asked_of_systemd() == STARTED


def test_changed_settings_restart_service_and_changed_token_does_not(node: Node) -> None:
    plan = planned(tunnelled())
    node.keep(plan)
    node.asked_of_systemd()
    node.path(f"{FOLDER}/token").write_text("another")  # read anew before each attempt
    node.keep(plan)
    assert node.asked_of_systemd() == []
    node.path(f"{FOLDER}/config.json").write_text("{}")
    node.keep(plan)
    assert node.asked_of_systemd() == STARTED


def test_changed_settings_trigger_program_update(node: Node, manager: Served) -> None:
    plan = planned(tunnelled())
    node.keep(plan)
    manager.program(b"a newer program")
    node.keep(plan)
    assert node.path(f"{FOLDER}/remuda-tunnel.pyz").read_bytes() == b"the program"  # it was looked at a moment ago
    later = node.path(f"{FOLDER}/looked").stat().st_mtime + 1
    os.utime(node.path(f"{FOLDER}/config.json"), (later, later))
    node.keep(plan)
    assert node.path(f"{FOLDER}/remuda-tunnel.pyz").read_bytes() == b"a newer program"


def test_stopped_service_is_started(node: Node) -> None:
    plan = planned(tunnelled())
    node.keep(plan)
    node.asked_of_systemd()
    (node.root / "state").write_text("failed\n")
    assert node.keep(plan) == RUNS
    assert node.asked_of_systemd() == STARTED


def test_running_tunnel_survives_manager_outage(node: Node, manager: Served) -> None:
    plan = planned(tunnelled())
    node.keep(plan)
    node.asked_of_systemd()
    manager.answers.clear()
    node.looked_long_ago()
    assert node.keep(plan) == RUNS
    assert node.asked_of_systemd() == []


def test_missing_program_is_reported_without_failing_plan(node: Node, manager: Served) -> None:
    manager.answers.clear()
    assert "no tunnel: its program cannot be had: latest:" in node.keep(planned(tunnelled()))
    assert node.asked_of_systemd() == []


def test_program_with_wrong_checksum_is_rejected(node: Node, manager: Served) -> None:
    manager.answers[PROGRAM] = b"something else"
    assert "has the checksum" in node.keep(planned(tunnelled()))
    assert not node.path(f"{FOLDER}/remuda-tunnel.pyz").exists()


@pytest.mark.parametrize(
    ("python", "words"), [("exit 1", "is older than Python 3.9"), ("", "this host has no python3")]
)
def test_missing_or_old_python_is_reported(node: Node, python: str, words: str) -> None:
    one = next(one for one in plans.read(planned(tunnelled())).periodic if one.name == "tunnel")
    name = node.bin / "python-of-the-host"
    if python:
        node.program(name.name, f"#!/bin/sh\n{python}\n")
    environment = dict(pair.split("=", 1) for pair in one.env) | {
        "PATH": os.environ["PATH"],
        "REMUDA_HOST_ROOT": str(node.root),
        "REMUDA_PYTHON": str(name),
    }
    done = subprocess.run(
        [one.command, *one.args], env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0
    assert words in done.stdout
    assert done.stdout.startswith("no tunnel: ")
    assert not node.path(UNIT).exists()


def test_only_proxy_variables_reach_unit_environment(node: Node) -> None:
    variables = [
        sample.EnvVar(name="HTTPS_PROXY", value="http://proxy:3128"),
        sample.EnvVar(name="NO_PROXY", value="127.0.0.1"),
        sample.EnvVar(name="OTHER", value="z"),
    ]
    node.keep(planned(tunnelled(agent_env_vars=variables)))
    lines = node.path(f"{UNIT}.env").read_text().splitlines()
    assert 'HTTPS_PROXY="http://proxy:3128"' in lines
    assert not [line for line in lines if line.startswith("OTHER")]
    assert stat.S_IMODE(node.path(f"{UNIT}.env").stat().st_mode) == 0o600


def test_retired_host_keeps_no_tunnel_files(node: Node) -> None:
    node.keep(planned(tunnelled()))
    node.asked_of_systemd()
    retirement = plans.read(render.retire(tunnelled(), sample.host("server"))).instructions[0]
    for _ in range(2):
        done = node.run(retirement)
        assert done.returncode == 0, done
    assert node.asked_of_systemd() == [
        "disable remuda-tunnel.service",
        "stop remuda-tunnel.service",
        "daemon-reload",
    ]
    assert not node.path(FOLDER).exists()
    assert not node.path(UNIT).exists()


def test_script_is_valid_for_common_shells() -> None:
    script = plans.read(planned(tunnelled())).periodic[0].args[1]
    for shell in ("dash", "bash", "busybox"):
        command = [shell, "sh"] if shell == "busybox" else [shell]
        if subprocess.run(["which", shell], capture_output=True, check=False).returncode == 0:
            done = subprocess.run([*command, "-n"], input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
