"""nano on hosts that are processes of this machine, installed from the manager's artefacts by plans that are rendered
and written by hand into the Secrets of these hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost, Roles
from remuda.providers.controlplane.render import Placement, render, retire
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.machines import CLUSTER, make, ready
from tests.lab.nano_plans import Json, Plans, host_of, is_ready, node, version_of
from tests.lab.up import CAPI, Up

T = TypeVar("T")

VERSION, NEWER = "v1.36.4+nano1", "v1.36.5+nano1"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    found = {version: folder / f"{version}.tar.gz" for version in (VERSION, NEWER)}
    for version, path in found.items():
        nano_bundles.build(version, path)
    return found


@pytest.fixture
def up() -> Iterator[Up]:
    up = Up()
    try:
        yield up
        for name in up.names(f"{CAPI}/machines"):
            up.delete(f"{CAPI}/machines", name)
        assert list(up.hosts.glob("*/*/root")) == []
    finally:
        _end_hosts(up.hosts)
        up.stop()


class PlannedHosts:
    """A cluster's plans, and the hosts that follow them."""

    def __init__(self, up: Up, bundles: dict[str, Path]) -> None:
        self.up = up
        self._plans = Plans(Artefacts(up.data / "artefacts"), bundles)
        up.apply(CLUSTER)

    def cluster(self, version: str = VERSION, **config: object) -> ClusterFacts:
        return self._plans.cluster(version, **config)

    def host(self, name: str, roles: Roles) -> ObservedHost:
        make(self.up, "process", name, {})
        return host_of(ready(self.up, "process", name), roles)

    def follow(self, host: ObservedHost, plan: bytes) -> None:
        self.up.follow_plan(host.name, json.loads(plan))

    def root(self, host: ObservedHost) -> Path:
        (found,) = self.up.hosts.glob(f"**/{host.name}*/root")
        return found

    def systemctl(self, host: ObservedHost, *words: str) -> str:
        done = subprocess.run(
            [str(self.root(host) / "usr/local/bin/systemctl"), *words],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        return done.stdout.strip()

    def node(self, server: ObservedHost, name: str) -> Json:
        """{} also when the cluster's API does not answer in time."""
        return node(server, self.root(server), name)

    def existing_node(self, server: ObservedHost, name: str) -> Json:
        return _eventually(lambda: self.node(server, name), f"the API shows Node {name}", self, server)


def test_plans_install_restart_upgrade_and_uninstall_nano(up: Up, bundles: dict[str, Path]) -> None:
    planned_hosts = PlannedHosts(up, bundles)
    server = planned_hosts.host("horse", Roles(etcd=True, control_plane=True))
    worker = planned_hosts.host("mule", Roles(worker=True))
    joined = Placement(servers=[f"https://{server.internal_addresses[0]}:6443"])

    planned_hosts.follow(server, render(planned_hosts.cluster(), server, Placement(init=True)))
    _eventually(lambda: is_ready(planned_hosts.node(server, "horse")), "the server is Ready", planned_hosts, server)
    planned_hosts.follow(worker, render(planned_hosts.cluster(), worker, joined))
    _eventually(lambda: is_ready(planned_hosts.node(server, "mule")), "the worker is Ready", planned_hosts, worker)
    assert planned_hosts.existing_node(server, "mule")["spec"]["providerID"] == worker.provider_id
    first = planned_hosts.systemctl(worker, "show", "-p", "MainPID", "--value", "nano-agent")

    # The agent dies: its unit does not notice.
    _kill_agent(planned_hosts.root(worker))
    again = json.loads(render(planned_hosts.cluster(), worker, joined))
    again["instructions"].append({"name": "again", "command": "/bin/true"})
    planned_hosts.follow(worker, json.dumps(again).encode())
    assert planned_hosts.systemctl(worker, "show", "-p", "MainPID", "--value", "nano-agent") == first
    planned_hosts.follow(worker, render(planned_hosts.cluster(debug=True), worker, joined))
    assert _becomes_other(
        lambda: planned_hosts.systemctl(worker, "show", "-p", "MainPID", "--value", "nano-agent"), first
    )

    # Another version is another bundle, and a restart.
    planned_hosts.follow(server, render(planned_hosts.cluster(NEWER), server, Placement(init=True)))
    _eventually(
        lambda: version_of(planned_hosts.node(server, "horse")) == NEWER,
        "the server is upgraded",
        planned_hosts,
        server,
    )
    assert version_of(planned_hosts.existing_node(server, "mule")) == VERSION

    planned_hosts.follow(worker, retire(planned_hosts.cluster(), worker))
    assert planned_hosts.systemctl(worker, "is-active", "nano-agent") == "inactive"
    root = planned_hosts.root(server)
    done = subprocess.run(
        [str(root / "usr/local/bin/nano-uninstall.sh")],
        env={**os.environ, "REMUDA_HOST_ROOT": str(root), "PATH": f"{root}/usr/local/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done
    gone = ("etc/rancher/nano", "var/lib/rancher/nano", "usr/local/lib/nano", "etc/systemd/system/nano.service")
    assert [path for path in gone if (root / path).exists()] == []
    assert list((root / "usr/local/bin").glob("nano*")) == []


def _end_hosts(hosts: Path) -> None:
    """Whatever became of a test, no host outlives it."""
    mark = f"REMUDA_HOST_ROOT={hosts}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def _kill_agent(root: Path) -> None:
    """Without a word, as a crash would."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"run" in words and str(root).encode() in words and b"--address" in words:
                os.kill(int(entry.name), signal.SIGKILL)
                return
    raise AssertionError(f"no agent runs below {root}")


def _becomes_other(look: Callable[[], str], value: str) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while look() in (value, "0", ""):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _eventually(look: Callable[[], T], what: str, planned_hosts: PlannedHosts, host: ObservedHost) -> T:
    """Return what `look` gives as soon as that is something."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            logs = {path.name: path.read_text()[-3000:] for path in (planned_hosts.root(host) / "var/log").glob("*")}
            raise AssertionError(f"not within {LIMIT_SECONDS} s: {what}; {logs}")
        time.sleep(0.1)
    return found
