"""RKE2's plans, run: on nano in RKE2 mode, from an artefact of a release's shape (docs/nano.md).

Its components outlive the unit, so these tests see what a restart, a retirement or a changed file does to them.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.lab import rke2_release
from tests.lab.clusters import FLEET_SECRETS, MACHINES, DeclaredCluster, Fleet, pool
from tests.lab.custom_hosts import CustomHost
from tests.lab.missing import missing
from tests.lab.nano import fetch
from tests.lab.nano_plans import version_of
from tests.lab.process_machines import processes_below
from tests.lab.rke2_hosts import RkeHost, Sampler
from tests.lab.rke2_release import VERSION

ARGUMENTS = "rke2.io/node-args"
DATA = "/opt/rke2-data"
ETCD_USER = 52379 if os.geteuid() == 0 else os.geteuid()
AUTHORITIES = ("server-ca.crt", "peer-ca.crt")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        rke2_release.add(fleet, tmp_path_factory.mktemp("releases"))
        yield fleet
    finally:
        fleet.stop()


def declare(fleet: Fleet, name: str, *pools: dict[str, object], **config: object) -> DeclaredCluster:
    cluster = DeclaredCluster(fleet, name, pools, **config)
    cluster.version = VERSION
    return cluster


# ---- three servers -------------------------------------------------------------------------------------------------


def test_rke2_three_server_lifecycle_never_has_two_servers_down(fleet: Fleet) -> None:
    wanted: dict[str, object] = {"cni": "none"}
    cluster = declare(fleet, "mesa", pool("servers", 3, "ec"), pool("work", 1, "w"), machineGlobalConfig=wanted)
    cluster.apply()
    nodes = cluster.has_nodes(4)
    assert {version_of(node) for node in nodes.values()} == {VERSION}
    hosts = [RkeHost(root) for root in fleet.hosts.glob("process/mesa-*/root")]
    servers = [host for host in hosts if host.is_server]
    assert len(servers) == 3
    for server in servers:
        serves_as_rke2(server)
    first = {server.root: (server.components(), server.unit["runs"]) for server in servers}
    edited = servers[0].root / "usr/local/lib/systemd/system/rke2-server.env"
    assert edited.read_text() == "HOME=/root\n"
    edited.write_text("HOME=/root\nEDITED=yes\n")

    with Sampler(servers) as sampler:
        wanted["kube-apiserver-arg"] = ["v=2"]
        cluster.apply()
        cluster.until(
            lambda: all('"v=2"' in arguments(cluster, each) for each in servers_of(cluster)), "all have restarted"
        )
        cluster.has_nodes(4)
        assert sampler.seen_down() == {server.root for server in servers}
        assert sampler.together(servers) == []
        for server in servers:
            components, runs = first[server.root]
            assert server.unit["runs"] == runs + 1, "one restart each"
            assert len(server.components()) == 1
            assert server.components() != components
        # An administrator's edit survives the plan, and the release's own line, too.
        assert edited.read_text() == "HOME=/root\nEDITED=yes\n"
        assert servers[0].environment() >= {"HOME=/root", "EDITED=yes"}

        scaled = time.monotonic()
        cluster.pools["servers"]["quantity"] = 2
        cluster.apply()
        cluster.has_nodes(3)
    left = [server for server in servers if server.root.exists()]
    assert len(left) == 2
    assert sampler.together(left, since=scaled) == []
    cluster.delete()
    cluster.leaves_nothing()


def serves_as_rke2(server: RkeHost) -> None:
    """Components have their own process; the supervisor and the kubelet are the unit's."""
    (components,) = server.components()
    for port in (6443, 2379, 2381, 10257, 10259):
        assert server.listener(port) == components, port
    for port in (9345, 10248):
        assert server.listener(port) == server.unit["pid"], port
    ca = server.data / "server/tls/server-ca.crt"
    url = f"https://{server.address}:9345"
    assert fetch(f"{url}/ping", ca) == (200, b"pong")
    assert fetch(f"{url}/cacerts", ca) == (200, ca.read_bytes())
    assert fetch(f"{url}/v1-rke2/readyz", ca)[0] == 401


def servers_of(cluster: DeclaredCluster) -> list[str]:
    return [cluster.node_of(machine) for machine in cluster.machines("servers")]


def arguments(cluster: DeclaredCluster, node: str) -> str:
    found = cluster.nodes().get(node) or {"metadata": {"annotations": {}}}
    return str(found["metadata"]["annotations"].get(ARGUMENTS, ""))


# ---- profile, data directory, cloud provider -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_and_hosts(
    fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DeclaredCluster, dict[str, RkeHost]]]:
    """Two servers and a worker that register themselves, so that their folders stay when they have left."""
    folder = tmp_path_factory.mktemp("hosts")
    config = {"cni": "none", "profile": "etcd", "cloud-provider-name": "external"}
    cluster = declare(fleet, "butte", machineGlobalConfig=config, dataDirectories={"k8sDistro": DATA})
    cluster.apply()
    secret = fleet.until(FLEET_SECRETS, "butte-registration", lambda obj: "command" in (obj.get("data") or {}))
    line = base64.b64decode(secret["data"]["command"]).decode()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        hosts = {name: CustomHost(folder / name) for name in ("east", "west", "north")}
        for host in hosts.values():
            stack.callback(host.uninstall, f"RKE2_DATA_DIR={DATA}")
            manage_users(host)

        def register(name: str, options: str) -> None:
            done = hosts[name].run(f"{line} --node-name {name} {options}")
            assert done.returncode == 0, done

        register("east", "--all-roles")
        journal = hosts["east"].root / "var/log/rke2-server.log"
        cluster.until(
            lambda: journal.exists() and "missing required: user: unknown user etcd" in journal.read_text(),
            "the first server does not start without user etcd",
        )
        for host in hosts.values():
            write_users(host, f"etcd:x:{ETCD_USER}:{ETCD_USER}::/:/bin/false\n")
        cluster.has_nodes(1)
        register("west", "--all-roles")
        # RKE2 does not start with an external address beside a cloud provider: the plan must leave it out.
        register("north", f"--worker --address 192.0.2.7 --internal-address {hosts['north'].address}")
        cluster.has_nodes(3)
        yield cluster, {name: RkeHost(hosts[name].root, DATA) for name in ("east", "west")}
        cluster.delete()
    cluster.leaves_nothing()
    cluster.until(lambda: not processes_below(folder), "the hosts run nothing any more")


def manage_users(host: CustomHost) -> None:
    """Make a host whose owner manages the users: programs that add users fail."""
    (host.root / "etc").mkdir()
    write_users(host, "root:x:0:0::/root:/bin/sh\n")
    for name in ("useradd", "groupadd"):
        program = host.root / "usr/local/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)


def write_users(host: CustomHost, text: str) -> None:
    (host.root / "etc/passwd").write_text(text)


def test_refused_settings_are_not_rendered_and_not_admitted(
    cluster_and_hosts: tuple[DeclaredCluster, dict[str, RkeHost]], fleet: Fleet
) -> None:
    cluster, _ = cluster_and_hosts
    for node in cluster.nodes().values():
        assert "cloud-provider-name" in node["metadata"]["annotations"][ARGUMENTS]
        assert "node-external-ip" not in node["metadata"]["annotations"][ARGUMENTS]
    for settings, words in (
        ({"cloud-provider-config": "/etc/cloud.conf"}, "cloud-provider-name"),
        ({"kube-scheduler-arg": ["secure-port=10300"]}, "secure-port"),
    ):
        reply = fleet.put(declare(fleet, "refused", pool("all", 1, "ecw"), machineGlobalConfig=settings).manifest())
        assert reply.code in (403, 422), reply
        assert words in str(reply.body), reply


def test_etcd_restarts_after_plans_with_its_own_authorities(
    cluster_and_hosts: tuple[DeclaredCluster, dict[str, RkeHost]],
) -> None:
    if os.geteuid() != 0:
        missing("only root can give files to user etcd")
    cluster, hosts = cluster_and_hosts
    own_authorities(hosts)
    cluster.config["additionalManifest"] = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: added, namespace: default}\n"
    )
    cluster.apply()
    path = "/api/v1/namespaces/default/configmaps/added"
    cluster.until(lambda: cluster.ask("GET", path).code == 200, "the manifest is applied")
    cluster.has_nodes(3)
    own_authorities(hosts)
    for host in hosts.values():
        (components,) = host.components()
        os.kill(components, signal.SIGKILL)
        cluster.until(lambda host=host, old=components: host.listener(2381) not in (0, old), "etcd is back")  # type: ignore[misc]
        assert "permission denied" not in (host.root / "var/log/pods/components.log").read_text()
    cluster.has_nodes(3)


def own_authorities(hosts: dict[str, RkeHost]) -> None:
    for host in hosts.values():
        for name in AUTHORITIES:
            found = (host.data / "server/tls/etcd" / name).stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (ETCD_USER, 0o600), (host.root, name)


def test_retired_host_runs_no_components(
    cluster_and_hosts: tuple[DeclaredCluster, dict[str, RkeHost]], fleet: Fleet
) -> None:
    cluster, hosts = cluster_and_hosts
    leaving = next(machine for machine in cluster.machines() if cluster.node_of(machine) == "west")
    assert hosts["west"].components() != []
    fleet.delete(MACHINES, leaving)
    assert hosts["west"].components() == []
    assert hosts["west"].unit["state"] == "inactive"
    assert hosts["west"].data.exists(), "the host is its owner's"
    cluster.has_nodes(2)
    assert len(hosts["east"].components()) == 1
