"""The command line of the book of Cluster API, with the real clusterctl and kubectl, on `remuda up` and real hosts: no
provisioning Cluster is above these objects. A template's variables, its defaults and the repository are ours."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import run
from tests.lab.clusterctl import Tools
from tests.lab.clusters import VERSION, Fleet, is_ready
from tests.lab.drivers import processes_below
from tests.lab.hosts import Network, machines, mounts, require_hosts
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.up import eventually

NAMESPACE = "default"
PATIENCE = "1200s"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Where hosts of a bridge of their own can reach it: at an address of this machine that is on another one."""
    require_hosts()
    require_peer("kubectl", "clusterctl")
    network = Network(tmp_path / "network")
    asyncio.run(network.open())
    found = None
    try:
        found = Fleet("nspawn", {}, "--listen", f"{network.address}:{free_port()}")
        found.add_nano(tmp_path, VERSION)
        yield found
        assert machines(found.hosts) == []
        assert mounts(found.hosts) == []
    finally:
        if found is not None:
            for pid in (*machines(found.hosts), *processes_below(found.hosts)):
                os.kill(pid, signal.SIGKILL)
            found.stop()
        asyncio.run(network.close())


def test_clusterctl_generates_describes_and_deletes_working_cluster(fleet: Fleet, tmp_path: Path) -> None:
    written = run("clusterctl-repository", tmp_path / "repository")
    assert (written.code, written.err) == (0, "")
    tools = Tools(tmp_path, fleet.kubeconfig, NAMESPACE, {"NSPAWN_BOOTSTRAP": "ssh"})
    manifest = tools.clusterctl(
        *("--config", str(tmp_path / "repository" / "clusterctl.yaml"), "generate", "cluster", "prairie"),
        *("--infrastructure", "remuda", "--flavor", "nspawn", "--kubernetes-version", VERSION),
        *("--control-plane-machine-count", "3", "--worker-machine-count", "1"),
    )
    tools.kubectl("apply", "-f", "-", stdin=manifest)
    try:
        tools.available("prairie", PATIENCE)
        tools.wait("rkecontrolplane/prairie", "--for=condition=Ready", patience=PATIENCE)
        tools.wait("machines", "--all", "--for=condition=Available", patience=PATIENCE)
        found = tools.list("machines", "-l", "cluster.x-k8s.io/cluster-name=prairie")
        members = {one["metadata"]["name"]: one["status"]["nodeRef"]["name"] for one in found}

        nodes = tools.nodes("prairie")
        assert nodes.keys() == set(members.values())
        assert len(nodes) == 4
        assert all(map(is_ready, nodes.values()))
        servers = [
            one for one in nodes.values() if "node-role.kubernetes.io/control-plane" in one["metadata"]["labels"]
        ]
        assert len(servers) == 3

        told = tools.described("prairie")
        assert told["Cluster/prairie"][-3:-1] == ["True", "Available"]
        assert "Available" in told["ControlPlane - RKEControlPlane/prairie"]
        assert "Provisioned" in told["ClusterInfrastructure - RKECluster/prairie"]
        for pool, size in (("servers", "3/3"), ("workers", "1/1")):
            assert told[f"MachineDeployment/prairie-{pool}"][:6] == [
                size,
                size[0],
                size[0],
                size[0],
                "True",
                "Available",
            ]
        for name in members:
            assert told[f"Machine/{name}"][4:6] == ["True", "Ready"], told
    finally:
        tools.kubectl("delete", "clusters.cluster.x-k8s.io", "prairie", "-n", NAMESPACE, f"--timeout={PATIENCE}")
    eventually(lambda: not left(fleet), lambda: f"left: {left(fleet)}")


def left(fleet: Fleet) -> list[str]:
    return [one for one in fleet.everything() if "prairie" in one]
