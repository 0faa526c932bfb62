"""Which probes a host has, and whom they trust."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.shared.types.configuration import Networking
from tests.unit.providers.controlplane.render import sample


def probes(cluster: ClusterFacts, role: str) -> dict[str, plans.Probe]:
    return dict(plans.read(render.render(cluster, sample.host(role), sample.place(role))).probes)


@pytest.mark.parametrize(
    ("distro", "role", "names"),
    [
        ("k3s", "init", "etcd kube-apiserver kube-controller-manager kube-scheduler kubelet"),
        ("k3s", "etcd", "etcd"),  # its kubelet comes up only when there is an API
        ("k3s", "control-plane", "kube-apiserver kube-controller-manager kube-scheduler kubelet"),
        ("k3s", "worker", "kubelet"),
        ("nano", "etcd", "etcd"),
        ("rke2", "init", "calico etcd kube-apiserver kube-controller-manager kube-scheduler kubelet rke2-server"),
        ("rke2", "etcd", "etcd kubelet rke2-server"),
        ("rke2", "control-plane", "calico kube-apiserver kube-controller-manager kube-scheduler kubelet rke2-server"),
        ("rke2", "worker", "calico kubelet"),
    ],
)
def test_host_has_probes_of_its_components(distro: str, role: str, names: str) -> None:
    assert sorted(probes(sample.plain(distro), role)) == names.split()


@pytest.mark.parametrize(("cni", "probed"), [("cilium", False), (["multus", "calico"], True), ("multus,canal", False)])
def test_calico_probe_exists_only_when_calico_is_used(cni: object, probed: bool) -> None:
    found = probes(sample.plain("rke2", machine_global_config={"cni": cni}), "worker")
    assert ("calico" in found) is probed


def test_probes_trust_server_ca() -> None:
    found = probes(sample.plain(), "server")
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert found[name].authority == "/var/lib/rancher/k3s/server/tls/server-ca.crt"


def test_rke2_unit_probe_trusts_certificate_only_while_active() -> None:
    found = probes(sample.plain("rke2"), "etcd")["rke2-server"]
    assert found == plans.Probe(
        url="https://localhost:9345/ping", authority="/var/lib/rancher/capr/active-rke2-server.crt"
    )


def test_probes_follow_user_ports_and_certificates() -> None:
    own = {
        "kube-controller-manager-arg": ["tls-cert-file=/etc/own.crt", "secure-port=1234"],
        "kube-scheduler-arg": "cert-dir=/etc/certificates",
    }
    found = probes(sample.plain(machine_global_config=own), "server")
    assert found["kube-controller-manager"] == plans.Probe(
        url="https://localhost:1234/healthz", authority="/etc/own.crt"
    )
    assert found["kube-scheduler"].authority == "/etc/certificates/kube-scheduler.crt"


@pytest.mark.parametrize(("preference", "host"), [("", "localhost"), ("ipv4", "127.0.0.1"), ("ipv6", "[::1]")])
def test_probe_loopback_follows_stack_preference(preference: str, host: str) -> None:
    found = probes(sample.plain(networking=Networking(stack_preference=preference)), "worker")
    assert found["kubelet"].url == f"http://{host}:10248/healthz"
