"""nano on hosts with a real systemd, from the manager's artefacts: the same bundle, script and units as everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.controlplane.planner.observation import ObservedHost, Roles
from remuda.providers.controlplane.render import Placement, render, retire
from tests.lab.hosts import Network, machines
from tests.lab.machines import CLUSTER, make, ready
from tests.lab.nano_plans import Plans, host_of
from tests.lab.ports import free_port
from tests.lab.up import CAPI, Up, eventually

VERSION, NEWER = "v1.36.4+nano1", "v1.36.5+nano1"


@pytest.fixture
def up(network: Network) -> Iterator[Up]:
    """Where hosts can reach it."""
    server = Up("--listen", f"{network.address}:{free_port()}")
    try:
        server.apply(CLUSTER)
        yield server
        for name in server.names(f"{CAPI}/machines"):
            server.delete(f"{CAPI}/machines", name)
        assert machines(server.hosts) == []
    finally:
        for name in server.names(f"{CAPI}/machines"):
            server.http("DELETE", f"{CAPI}/machines/{name}")
        server.stop()


def said(up: Up, host: ObservedHost, command: str) -> str:
    return up.remuda("machine", "ssh", host.name, "--", command).stdout.strip()


def node(up: Up, server: ObservedHost, name: str) -> str:
    """Whether it is Ready and its version, as the cluster's own API says it to its administrator on the server."""
    tls = "/var/lib/rancher/nano/server/tls"
    ask = f"curl -sf --cacert {tls}/server-ca.crt --cert {tls}/client-admin.crt --key {tls}/client-admin.key"
    found = said(up, server, f"{ask} https://{server.internal_addresses[0]}:6443/api/v1/nodes/{name}")
    if not found.startswith("{"):
        return ""
    status = json.loads(found)["status"]
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    return f"{ready} {status['nodeInfo']['kubeletVersion']}"


def test_nano_server_and_worker_upgrade_and_uninstall_under_systemd(up: Up, network: Network, tmp_path: Path) -> None:
    bundles = {version: tmp_path / f"{version}.tar.gz" for version in (VERSION, NEWER)}
    for version, path in bundles.items():
        nano_bundles.build(version, path)
    plans = Plans(Artefacts(up.data / "artefacts"), bundles)
    spec = {"bridge": network.bridge, "subnet": str(network.subnet), "bootstrap": "ssh"}
    for name in ("horse", "mule"):
        make(up, "nspawn", name, spec)
    server = host_of(ready(up, "nspawn", "horse"), Roles(etcd=True, control_plane=True))
    worker = host_of(ready(up, "nspawn", "mule"), Roles(worker=True))

    def follow(host: ObservedHost, plan: bytes) -> None:
        up.follow_plan(host.name, json.loads(plan))

    def diagnosis() -> str:
        return said(up, server, "journalctl -u nano --no-pager | tail -40") + said(
            up, worker, "journalctl -u nano-agent --no-pager | tail -40"
        )

    joined = Placement(servers=[f"https://{server.internal_addresses[0]}:6443"])
    follow(server, render(plans.cluster(VERSION), server, Placement(init=True)))
    eventually(lambda: node(up, server, "horse") == f"True {VERSION}", diagnosis)
    follow(worker, render(plans.cluster(VERSION), worker, joined))
    eventually(lambda: node(up, server, "mule") == f"True {VERSION}", diagnosis)
    assert said(up, server, "systemctl is-active nano; systemctl is-enabled nano") == "active\nenabled"

    follow(worker, render(plans.cluster(NEWER), worker, joined))
    eventually(lambda: node(up, server, "mule") == f"True {NEWER}", diagnosis)
    follow(worker, retire(plans.cluster(NEWER), worker))
    assert said(up, worker, "systemctl is-active nano-agent").endswith("inactive")
    said(up, server, "/usr/local/bin/nano-uninstall.sh")
    left = "ls -d /etc/rancher/nano /var/lib/rancher/nano /usr/local/lib/nano /usr/local/bin/nano 2>/dev/null"
    assert said(up, server, left) == ""
    assert said(up, server, "systemctl is-active nano") == "inactive"
