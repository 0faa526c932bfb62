"""`remuda up --detach`, `remuda status` and `remuda down`: a server in the background, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from remuda.apiserver.storage.directory import DirectoryLock
from remuda.cli import down, local_server
from tests.e2e.program import COMMAND, Ended, mode, run
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import Server
from tests.lab.terminal import Session

MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines"
START = ("--listen", "127.0.0.1:0", "--controllers", "core")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Working directory whose server is stopped at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield tmp_path
    run("down")


def state() -> dict[str, object]:
    ended = run("status", "-o", "json")
    found = json.loads(ended.out)
    assert ended.code == (0 if found["server"] == "ready" else 1), ended
    return dict(found)


def start() -> Ended:
    ended = run("up", "--detach", *START)
    assert ended.code == 0, ended
    return ended


def create_machine(folder: Path) -> None:
    """Create a Machine of a provider that does not exist, so that no host is created."""
    ref = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "RemoteMachine", "name": "m"}
    spec = {"clusterName": "prairie", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": ref}
    machine = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": spec}
    server = Server(folder / "remuda-data" / "admin.kubeconfig")
    assert server.http("POST", MACHINES, machine).code == 201


HOSTS = """\
These hosts go on running without the management plane:
  cluster default/prairie: 1 host of driver remote
To delete them, start it again and delete their clusters:
  remuda up --detach
  remuda delete cluster prairie -n default
"""


def test_server_in_background_is_ready_reported_and_stopped(folder: Path) -> None:
    assert state() == {"server": "not running", "dataDirectory": str(folder / "remuda-data")}
    started = start()
    found = state()
    assert found["server"] == "ready"
    log = folder / "remuda-data" / "log" / "up.log"
    assert started.out == (
        f"remuda is ready at {found['url']}\n"
        f"  pid         {found['pid']}\n"
        "  kubeconfig  remuda-data/admin.kubeconfig\n"
        f"  log         {log}\n"
        "  stop        remuda down\n"
    )
    assert log.read_text().startswith(f"remuda ready at {found['url']} ")
    assert (mode(log), mode(folder / "remuda-data")) == (0o600, 0o700)
    assert os.getsid(int(str(found["pid"]))) == found["pid"], "it survives its terminal"

    again = run("up", "--detach", *START)
    assert (again.code, again.out) == (0, started.out)
    assert "a server runs already on the data directory remuda-data" in again.err

    create_machine(folder)
    ended = run("down")
    assert (ended.code, ended.err) == (0, HOSTS)
    assert ended.out == f"remuda (pid {found['pid']}) has stopped; its state is in remuda-data\n"
    assert state()["server"] == "not running"
    assert run("get", "machines").code == 4
    idle = run("down")
    assert (idle.code, idle.err) == (0, "no server is running on the data directory remuda-data\n")


def test_killed_server_is_not_running_and_its_process_id_is_not_signalled(folder: Path) -> None:
    start()
    pid = int(str(state()["pid"]))
    os.kill(pid, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as bystander:
        for name in ("lock", "server.json"):  # as if the bystander had been given the id of the killed server
            path = folder / "remuda-data" / name
            path.write_text(path.read_text().replace(str(pid), str(bystander.pid)))
        assert state()["server"] == "not running"
        assert run("down").code == 0
        assert bystander.poll() is None
        bystander.communicate()
    start()
    assert state()["server"] == "ready"


def test_down_spares_a_process_that_is_no_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program holds the lock, as `remuda fsck` does."""
    (folder / "remuda-data").mkdir()
    monkeypatch.setattr(local_server, "_WAIT_SECONDS", 0.1)
    lock = DirectoryLock(folder / "remuda-data")
    try:
        refused = CliRunner().invoke(down.command)
    finally:
        lock.release()
    assert refused.exit_code == 1
    assert f"process {os.getpid()} uses the data directory remuda-data" in refused.output


def test_failed_start_in_background_shows_the_reason(folder: Path) -> None:
    ended = run("up", "--detach", "--listen", "127.0.0.1:0", "--controllers", "bogus")
    assert ended.code == 1
    assert "the server exited with code 1 before it was ready:" in ended.err
    assert "unknown controller or group bogus" in ended.err


def test_ctrl_c_of_up_lists_hosts_that_go_on_running(folder: Path) -> None:
    with Session([*COMMAND, "up", *START]) as up:
        up.until("remuda create cluster prairie --wait")
        create_machine(folder)
        up.type("\x03")
        assert up.end(seconds=LIMIT_SECONDS) == 0, up.shown
        assert up.shown.endswith(HOSTS)
