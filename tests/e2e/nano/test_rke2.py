"""RKE2 mode: what differs from K3s, as real processes where it matters and as values elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.lab.nano import arguments, component_process, configuration, etcd_user
from remuda.lab.nano.configuration import Configuration, FatalError, read
from remuda.lab.nano.flavour import NANO, RKE2
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import NanoLayout
from remuda.providers.shared.distros.rke2 import RKE2 as DISTRO
from tests.lab.nano import NODES, RKE2_PROGRAM, Host, NanoHosts, ask, eventually, fetch


@pytest.fixture
async def nano_hosts(tmp_path: Path) -> AsyncIterator[NanoHosts]:
    nano_hosts = NanoHosts(tmp_path)
    nano_hosts.program, nano_hosts.flavour = RKE2_PROGRAM, RKE2
    try:
        yield nano_hosts
    finally:
        await nano_hosts.close()


def components(host: Host) -> int:
    """The process id of a server's components."""
    return int(json.loads((host.data / "agent/components.json").read_text())["pid"])


def serves(host: Host, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host.address, port)) == 0


async def test_rke2_components_keep_running_while_server_is_stopped(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one", cni="none", kube_scheduler_arg=["secure-port=10299"])
    await one.up()
    assert one.url.endswith(":9345")
    assert await ask(one, "/ping") == (200, b"pong")
    assert (await ask(one, "/v1-rke2/readyz", user="node:the-token-of-agents"))[0] == 200
    assert (await ask(one, "/api/v1/nodes"))[0] == 404, "the API is on another port"
    ca = one.tls / "server-ca.crt"
    assert (await asyncio.to_thread(fetch, f"https://{one.address}:6443/ping", ca))[0] in (403, 404)
    node = await one.node()
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.4+rke2r1"
    assert "etcd.rke2.cattle.io/node-name" in node["metadata"]["annotations"]
    assert one.flavour.kubeconfig == "/etc/rancher/rke2/rke2.yaml"

    first = components(one)
    program = Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0")[0].decode()
    assert program.startswith(f"{one.data}/data/")
    assert Path(program).name.startswith("containerd-shim")
    assert os.getsid(first) == first
    await eventually(
        lambda: _says(one, "Container kube-scheduler failed startup probe on port 10259"), "a component is killed"
    )
    assert not serves(one, 10259)

    assert one.stop() == 0
    assert not serves(one, 9345)
    assert not serves(one, 10248)
    for port in (6443, 2379, 2381, 10257):
        assert serves(one, port), port
    assert (await one.node())["metadata"]["name"] == "one"

    one.start("server")  # nothing has changed
    await one.up()
    assert components(one) == first

    one.stop()
    one.configure("config.yaml.d/60-more.yaml", kube_apiserver_arg=["v=2"])
    one.start("server")
    await eventually(lambda: _serving(one, 9345), "the supervisor is up", lambda: one.log)
    assert components(one) == first, "the components of before go on for a moment"
    await one.up()
    second = components(one)
    assert second != first
    assert component_process.started(first) == ""

    os.kill(second, signal.SIGKILL)  # as a kubelet, it starts them again
    await eventually(lambda: _other(one, second), "the components are started again", lambda: one.log)
    await eventually(lambda: _serving(one, 6443), "they serve", lambda: one.log)


async def _serving(host: Host, port: int) -> bool:
    return serves(host, port)


async def _other(host: Host, pid: int) -> bool:
    return components(host) != pid


async def _says(host: Host, words: str) -> bool:
    return words in (host.root / "var/log/pods/components.log").read_text()


async def test_etcd_only_server_is_up_once_an_api_server_exists(nano_hosts: NanoHosts) -> None:
    off = {"disable_apiserver": True, "disable_controller_manager": True, "disable_scheduler": True}
    etcd = nano_hosts.server("etcd", **off)
    await eventually(lambda: _serving(etcd, 2381), "etcd serves", lambda: etcd.log)
    assert serves(etcd, 10248)
    assert not serves(etcd, 6443)
    assert "is up" not in etcd.log, "it notifies systemd in that moment"
    plane = nano_hosts.server("plane", by=etcd, disable_etcd=True)
    agent = nano_hosts.agent("agent", by=etcd)
    for host in (plane, etcd, agent):
        await host.up()
    assert not serves(plane, 2381)
    assert json.loads((agent.data / "agent/etc/rke2-agent-load-balancer.json").read_text()) == {
        "ServerAddresses": [f"https://{plane.address}:6443"]
    }
    labels = (await plane.node("etcd"))["metadata"]["labels"]
    assert "node-role.kubernetes.io/control-plane" not in labels


async def test_removed_server_exits_and_leaves_its_components(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one")
    await one.up()
    two = nano_hosts.server("two", by=one)
    await two.up()
    left = components(two)
    patch = {"metadata": {"annotations": {RKE2.etcd("remove"): "true"}}}

    async def annotated() -> bool:
        await one.client().patch(NODES, "", "two", patch)
        return True

    await eventually(annotated, "the member is asked to leave")
    assert await two.ended() == 1
    assert "has been removed from the cluster" in two.log
    assert component_process.started(left) != "", "killall ends them"
    await eventually(lambda: _closed(two, 2381), "etcd has ended", lambda: two.log)


async def _closed(host: Host, port: int) -> bool:
    return not serves(host, port)


async def test_first_rke2_server_without_etcd_starts_a_cluster(nano_hosts: NanoHosts) -> None:
    one = nano_hosts.server("one", disable_etcd=True)
    await one.up()
    node = await one.node()
    assert "node-role.kubernetes.io/etcd" not in node["metadata"]["labels"]
    assert not serves(one, 2379)


def test_rke2_mode_accepts_all_planned_rke2_config_keys() -> None:
    for planned, known in (
        (DISTRO.server_arguments, RKE2.server_arguments),
        (DISTRO.agent_arguments, RKE2.agent_arguments),
    ):
        assert planned.keys() - known.keys() == set()
    assert "cluster-init" not in RKE2.server_arguments
    assert NANO.server_arguments == arguments.SERVER


def test_rke2_mode_reads_rke2_config_file_and_environment(tmp_path: Path) -> None:
    folder = tmp_path / "etc/rancher/rke2"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("cni: none\n")
    found = read("server", [], NanoHost(str(tmp_path)), {"RKE2_TOKEN": "a", "NANO_TOKEN": "b"}, RKE2)
    assert (found.text("cni"), found.text("token"), found.data_dir) == ("none", "a", "/var/lib/rancher/rke2")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"node-external-ip": ("192.0.2.1",), "cloud-provider-name": ("external",)},
            "can't set node-external-ip while using cloud provider",
        ),
        ({"cloud-provider-config": ("/etc/cloud",)}, "--cloud-provider-config requires --cloud-provider-name"),
    ],
)
def test_rke2_mode_rejects_invalid_option_combinations(values: dict[str, tuple[str, ...]], words: str) -> None:
    with pytest.raises(FatalError, match=words):
        configuration.check_cloud_settings(Configuration(role="server", flavour=RKE2, values=values))
    configuration.check_cloud_settings(Configuration(role="server", values=values))


def test_etcd_user_is_looked_up_in_host_passwd_file(tmp_path: Path) -> None:
    listed = tmp_path / "etc/passwd"
    listed.parent.mkdir()
    listed.write_text("root:x:0:0::/root:/bin/sh\n")
    host = NanoHost(str(tmp_path))
    with pytest.raises(FatalError, match="missing required: user: unknown user etcd"):
        etcd_user.find(host)
    listed.write_text("etcd:x:71:72::/:/bin/false\n")
    assert etcd_user.find(host) == etcd_user.Account(71, 72)


def test_etcd_rejects_cas_unreadable_by_its_user(tmp_path: Path) -> None:
    layout = NanoLayout(tmp_path, RKE2)
    layout.make(server=True)
    account = etcd_user.Account(71, 72) if os.geteuid() == 0 else etcd_user.Account(os.getuid(), os.getgid())
    for name in etcd_user.AUTHORITIES:
        (layout.etcd_tls / name).write_text("pem")
    etcd_user.give_authorities(layout, account)
    taken = layout.etcd_tls / "peer-ca.crt"
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600
    assert taken.stat().st_uid == account.user
    etcd_user.check_authorities(layout, account)
    if os.geteuid() == 0:
        os.chown(taken, 0, 0)
    else:
        taken.chmod(0)
    with pytest.raises(FatalError, match=r"peer-ca\.crt: permission denied"):
        etcd_user.check_authorities(layout, account)


def test_component_manifest_changes_with_component_arguments_version_and_ca(tmp_path: Path) -> None:
    layout = NanoLayout(tmp_path, RKE2)
    layout.make(server=True)

    def manifest(version: str = "v1", **values: str) -> component_process.Manifest:
        given = {key.replace("_", "-"): (value,) for key, value in values.items()}
        return component_process.manifest_of(Configuration(role="server", values=given), layout, version)

    first = manifest(node_label="a=b")
    assert manifest(node_label="c=d") == first, "labels are the node's"
    assert manifest(kube_apiserver_arg="v=2") != first
    assert manifest("v2") != first
    (layout.tls / "server-ca.crt").write_text("pem")
    assert manifest() != first
