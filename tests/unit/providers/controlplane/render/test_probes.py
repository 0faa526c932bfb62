"""Which probes a host has, and whom they trust."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import Cluster
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.shared.types.configuration import Networking
from tests.unit.providers.controlplane.render import sample


def probes(cluster: Cluster, role: str) -> dict[str, plans.Probe]:
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
def test_a_host_is_asked_for_what_runs_there(distro: str, role: str, names: str) -> None:
    assert sorted(probes(sample.plain(distro), role)) == names.split()


@pytest.mark.parametrize(("cni", "probed"), [("cilium", False), (["multus", "calico"], True), ("multus,canal", False)])
def test_a_network_is_probed_only_where_it_is_the_one_that_answers(cni: object, probed: bool) -> None:
    found = probes(sample.plain("rke2", machine_global_config={"cni": cni}), "worker")
    assert ("calico" in found) is probed


def test_no_probe_trusts_a_certificate_that_nobody_renews() -> None:
    found = probes(sample.plain(), "server")
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert found[name].authority == "/var/lib/rancher/k3s/server/tls/server-ca.crt"


def test_a_unit_whose_components_outlive_it_is_asked_itself_and_trusted_only_while_it_is_active() -> None:
    found = probes(sample.plain("rke2"), "etcd")["rke2-server"]
    assert found == plans.Probe(
        url="https://localhost:9345/ping", authority="/var/lib/rancher/capr/active-rke2-server.crt"
    )


def test_what_the_user_serves_is_what_the_probe_asks() -> None:
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
def test_loopback_is_of_the_family_that_is_preferred(preference: str, host: str) -> None:
    found = probes(sample.plain(networking=Networking(stack_preference=preference)), "worker")
    assert found["kubelet"].url == f"http://{host}:10248/healthz"
