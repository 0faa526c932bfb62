"""The config file of a host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.capi.types import Endpoint
from remuda.capi.types.shared import Selector
from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost, S3Access
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.controlplane.render.config import fingerprint
from remuda.providers.shared import distros
from remuda.providers.shared.types.configuration import S3, Etcd, SelectorConfig, Taint
from tests.lab.certificates import Authority
from tests.unit.providers.controlplane.render import sample


def config(cluster: ClusterFacts, host: ObservedHost) -> dict[str, Any]:
    plan = plans.read(render.render(cluster, host, sample.place("worker")))
    found = plan.file(f"{cluster.distro.config_dir}/config.yaml.d/50-rancher.yaml")
    assert found is not None
    result: dict[str, Any] = json.loads(found.content)
    return result


def of_role(role: str, distro: str = "k3s", **spec: object) -> dict[str, Any]:
    return config(sample.plain(distro, **spec), sample.host(role))


# ---- what users want ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "given", "written"),
    [
        ("write-kubeconfig-mode", 644, "644"),
        ("write-kubeconfig-mode", 644.0, "644"),
        ("etcd-snapshot-retention", "7", 7),
        ("secrets-encryption", "true", True),
        ("secrets-encryption", "False", False),
        ("disable", "traefik", "traefik"),
        ("kube-apiserver-arg", ["v=2", 3], ["v=2", "3"]),
        ("cluster-dns", 10, ["10"]),
    ],
)
def test_values_are_converted_to_distribution_types(key: str, given: object, written: object) -> None:
    cluster = sample.plain(machine_global_config={key: given})
    assert config(cluster, sample.host("server"))[key] == written
    assert render.dropped(cluster, sample.host("server")) == []


@pytest.mark.parametrize(
    ("key", "given", "words"),
    [
        ("colour", "blue", "machineGlobalConfig: colour: k3s has no such key"),
        ("disable", {"a": 1}, "machineGlobalConfig: disable: must be a string"),
        ("disable", [["a"]], "machineGlobalConfig: disable: must be a string"),
        ("secrets-encryption", "perhaps", "machineGlobalConfig: secrets-encryption: is neither true nor false"),
        ("etcd-snapshot-retention", "many", "machineGlobalConfig: etcd-snapshot-retention: is not an integer"),
        ("flannel-backend", ["a"], "machineGlobalConfig: flannel-backend: is a list, but must be a single value"),
        ("token", "mine", "machineGlobalConfig: token: the manager makes tokens"),
        ("disable-etcd", True, "machineGlobalConfig: disable-etcd: the roles of machines decide that"),
    ],
)
def test_invalid_values_are_dropped_and_reported(key: str, given: object, words: str) -> None:
    cluster = sample.plain(machine_global_config={key: given})
    [told] = render.dropped(cluster, sample.host("server"))
    assert told.startswith(words)
    assert config(cluster, sample.host("server")).get(key) != given


def test_server_keys_are_omitted_on_workers_without_report() -> None:
    """An agent of K3s does not start with a key it does not know."""
    cluster = sample.plain(machine_global_config={"cluster-cidr": "10.1.0.0/16", "kubelet-arg": "v=1"})
    assert "cluster-cidr" not in config(cluster, sample.host("worker"))
    assert config(cluster, sample.host("server"))["cluster-cidr"] == "10.1.0.0/16"
    assert render.dropped(cluster, sample.host("worker")) == []


@pytest.mark.parametrize("distro", sample.VERSIONS)
def test_worker_config_has_only_agent_keys(distro: str) -> None:
    cluster = sample.rich(distro)
    assert config(cluster, sample.host("worker")).keys() <= cluster.distro.agent_arguments.keys()


@pytest.mark.parametrize("distro", sample.VERSIONS)
@pytest.mark.parametrize("role", ["init", "server", "etcd", "control-plane"])
def test_server_config_has_only_server_keys(distro: str, role: str) -> None:
    cluster = sample.rich(distro)
    assert config(cluster, sample.host(role)).keys() <= cluster.distro.server_arguments.keys()


def test_later_selectors_win_and_a_plus_adds() -> None:
    cluster = sample.plain(
        machine_global_config={"kubelet-arg": ["a=1"], "debug": False, "selinux": True},
        machine_selector_config=[
            SelectorConfig(config={"kubelet-arg+": ["b=2"], "debug": True}),
            SelectorConfig(machine_label_selector=Selector(match_labels={"pool": "other"}), config={"selinux": False}),
        ],
    )
    found = config(cluster, sample.host("worker", provider_id=""))
    assert (found["kubelet-arg"], found["debug"], found["selinux"]) == (["a=1", "b=2"], True, True)


# ---- roles -------------------------------------------------------------------------------------------------------


def test_roles_disable_unused_components() -> None:
    off = {"disable-apiserver", "disable-controller-manager", "disable-scheduler"}
    assert off <= of_role("etcd").keys()
    assert "disable-etcd" not in of_role("etcd")
    assert of_role("control-plane")["disable-etcd"] is True
    assert not (off | {"disable-etcd"}) & of_role("server").keys()


def test_config_contains_no_join_settings() -> None:
    for role in sample.ROLES:
        for distro in sample.VERSIONS:
            assert not {"server", "cluster-init"} & of_role(role, distro).keys()


@pytest.mark.parametrize(
    ("distro", "role", "taints"),
    [
        ("k3s", "init", []),
        ("k3s", "etcd", ["node-role.kubernetes.io/etcd:NoExecute"]),
        ("k3s", "server", ["node-role.kubernetes.io/control-plane:NoSchedule"]),
        (
            "rke2",
            "server",
            ["node-role.kubernetes.io/control-plane:NoSchedule", "node-role.kubernetes.io/etcd:NoExecute"],
        ),
        ("rke2", "worker", []),
    ],
)
def test_non_worker_nodes_are_tainted(distro: str, role: str, taints: list[str]) -> None:
    found = config(sample.plain(distro), sample.host(role, node_taints=[]))
    assert found.get("node-taint", []) == taints


def test_taints_are_formatted_for_kubelet() -> None:
    taints = [Taint(key="b", effect="NoExecute"), Taint(key="a", value="x", effect="NoSchedule")]
    found = config(sample.plain(), sample.host("worker", node_taints=taints))
    assert found["node-taint"] == ["a=x:NoSchedule", "b:NoExecute"]


def test_forbidden_node_label_is_dropped_and_reported() -> None:
    labels = {
        "node-role.kubernetes.io/worker": "true",
        "topology.kubernetes.io/zone": "z",
        "node.kubernetes.io/mine": "1",
        "example.com/a": "b",
    }
    host = sample.host("worker", node_labels=labels)
    found = config(sample.plain(), host)["node-label"]
    assert "node-role.kubernetes.io/worker=true" not in found
    assert {"topology.kubernetes.io/zone=z", "node.kubernetes.io/mine=1", "example.com/a=b"} <= set(found)
    assert render.dropped(sample.plain(), host) == [
        "label node-role.kubernetes.io/worker: a kubelet does not start with a label of that domain"
    ]


# ---- tokens ------------------------------------------------------------------------------------------------------


def test_worker_token_pins_cluster_ca() -> None:
    found = of_role("worker")
    assert found["token"] == f"K10{fingerprint(sample.CERTIFICATE)}::node:{sample.AGENT_TOKEN}"
    assert "agent-token" not in found


def test_servers_share_both_tokens() -> None:
    for role in ("init", "server", "etcd", "control-plane"):
        found = of_role(role)
        assert (found["token"], found["agent-token"]) == (sample.SERVER_TOKEN, sample.AGENT_TOKEN)


def test_bundle_fingerprint_is_hash_of_root_certificate() -> None:
    root = Authority("root")
    other = Authority("other").pem
    assert fingerprint(root.pem + other) != fingerprint(root.pem)
    assert fingerprint(root.pem + other) == fingerprint(root.pem + root.pem)


# ---- addresses ---------------------------------------------------------------------------------------------------


def test_server_certificate_covers_all_addresses() -> None:
    cluster = sample.with_(sample.plain(), endpoint=Endpoint(host="api.example.com", port=6443))
    found = config(cluster, sample.host("server"))
    assert found["node-ip"] == ["10.0.0.5", "fd00::5"]
    assert found["node-external-ip"] == ["203.0.113.5"]
    assert found["advertise-address"] == "10.0.0.5"
    assert found["tls-san"] == ["api.example.com", "10.0.0.5", "fd00::5", "203.0.113.5"]


def test_primary_address_family_follows_service_cidr() -> None:
    found = of_role("server", machine_global_config={"service-cidr": "fd01::/112,10.43.0.0/16"})
    assert found["node-ip"] == ["fd00::5", "10.0.0.5"]
    assert found["advertise-address"] == "fd00::5"


def test_external_address_is_omitted_with_cloud_provider() -> None:
    found = of_role("server", "rke2", machine_global_config={"cloud-provider-name": "external"})
    assert "node-external-ip" not in found


def test_user_supplied_node_ip_is_kept() -> None:
    assert of_role("worker", machine_global_config={"node-ip": "10.9.9.9"})["node-ip"] == "10.9.9.9"


def test_addresses_are_omitted_when_unknown() -> None:
    host = sample.host("worker", internal_addresses=["a-name.example.com"], external_addresses=[])
    assert not {"node-ip", "node-external-ip"} & config(sample.plain(), host).keys()


# ---- the rest ----------------------------------------------------------------------------------------------------


def test_kubelet_gets_provider_id_unless_user_sets_one() -> None:
    assert of_role("worker")["kubelet-arg"] == ["provider-id=process://prairie-worker-1"]
    mine = of_role("worker", machine_global_config={"kubelet-arg": ["provider-id=mine"]})
    assert mine["kubelet-arg"] == ["provider-id=mine"]


def test_snapshot_settings_apply_only_to_etcd_hosts() -> None:
    cluster = sample.with_(
        sample.plain(etcd=Etcd(disable_snapshots=True)),
        s3=S3Access(s3=S3(bucket="b", endpoint_ca="/etc/ca.crt", skip_ssl_verify=True), access_key="a"),
    )
    found = config(cluster, sample.host("etcd"))
    assert found["etcd-disable-snapshots"] is True
    assert found["etcd-s3"] is True
    assert found["etcd-s3-skip-ssl-verify"] is True
    assert found["etcd-s3-endpoint-ca"] == "/etc/ca.crt"
    assert not [key for key in config(cluster, sample.host("control-plane")) if key.startswith("etcd-")]


def test_s3_without_location_is_ignored() -> None:
    cluster = sample.with_(sample.plain(), s3=S3Access(s3=S3(retention=3), access_key="a"))
    assert "etcd-s3" not in config(cluster, sample.host("etcd"))


def test_unresolved_secret_reference_is_dropped() -> None:
    cluster = sample.plain(
        "rke2", machine_global_config={"cloud-provider-name": "external", "cloud-provider-config": "secret://ns:n"}
    )
    assert "cloud-provider-config" not in config(cluster, sample.host("server"))
    assert render.dropped(cluster, sample.host("server")) == ["cloud-provider-config: secret://ns:n is not known"]


def test_host_path_value_is_kept() -> None:
    found = of_role("server", "rke2", machine_global_config={"audit-policy-file": "/etc/audit.yaml"})
    assert found["audit-policy-file"] == "/etc/audit.yaml"


def test_data_dir_from_config_is_used() -> None:
    cluster = sample.plain(machine_global_config={"data-dir": "/big/k3s/"})
    found = config(cluster, sample.host("server"))
    assert found["data-dir"] == "/big/k3s"
    assert "tls-cert-file=/big/k3s/server/tls/serving-kube-apiserver.crt" in found["kube-scheduler-arg"]


@pytest.mark.parametrize("given", ["relative", "/a/../b", 5, ["/a"]])
def test_invalid_data_dir_is_dropped_and_reported(given: object) -> None:
    cluster = sample.plain(machine_global_config={"data-dir": given})
    assert "data-dir" not in config(cluster, sample.host("server"))
    [told] = render.dropped(cluster, sample.host("server"))
    assert told.startswith("machineGlobalConfig: data-dir: is ")


def test_data_dir_from_selector_is_dropped() -> None:
    elsewhere = [SelectorConfig(config={"data-dir": "/some"})]
    cluster = sample.plain(machine_global_config={"data-dir": "/all"}, machine_selector_config=elsewhere)
    assert config(cluster, sample.host("server"))["data-dir"] == "/all"
    assert len(render.dropped(cluster, sample.host("server"))) == 1


# ---- what RKE2 refuses -------------------------------------------------------------------------------------------

CLOUD = {"cloud-provider-name": "external", "cloud-provider-config": "[Global]\n"}


@pytest.mark.parametrize("role", ["server", "worker"])
def test_node_external_ip_is_dropped_with_cloud_provider(role: str) -> None:
    """RKE2: can't set node-external-ip while using cloud provider."""
    cluster = sample.plain("rke2", machine_global_config={"cloud-provider-name": "external"})
    assert "node-external-ip" not in config(cluster, sample.host(role))
    assert config(sample.plain("rke2"), sample.host(role))["node-external-ip"] == ["203.0.113.5"]
    cluster = sample.plain("rke2", machine_global_config={**CLOUD, "node-external-ip": "203.0.113.9"})
    assert "node-external-ip" not in config(cluster, sample.host(role))
    [told] = render.dropped(cluster, sample.host(role))
    assert told.startswith("node-external-ip: cannot be set beside a cloud provider")


def test_cloud_provider_config_without_provider_name_is_omitted() -> None:
    """RKE2: --cloud-provider-config requires --cloud-provider-name to be provided."""
    cluster = sample.plain("rke2", machine_global_config={"cloud-provider-config": "[Global]\n"})
    found = config(cluster, sample.host("server"))
    assert "cloud-provider-config" not in found
    assert found["node-external-ip"] == ["203.0.113.5"]
    assert render.dropped(cluster, sample.host("server")) == [
        "cloud-provider-config: needs cloud-provider-name beside it"
    ]


@pytest.mark.parametrize(("key", "port"), [("kube-controller-manager-arg", "10257"), ("kube-scheduler-arg", "10259")])
def test_rke2_secure_ports_cannot_be_changed(key: str, port: str) -> None:
    cluster = sample.plain("rke2", machine_global_config={key: ["v=2", "secure-port=20000"]})
    found = config(cluster, sample.host("server"))[key]
    assert "v=2" in found
    assert [item for item in found if "secure-port" in item] == [f"secure-port={port}"]
    k3s = sample.plain("k3s", machine_global_config={key: ["secure-port=20000"]})
    assert "secure-port=20000" in config(k3s, sample.host("server"))[key]


def test_key_unknown_to_version_is_dropped() -> None:
    """An agent of K3s does not start with a key it does not know."""
    cluster = sample.plain("k3s", machine_global_config={"nonroot-devices": True})
    old = sample.with_(cluster, version=distros.parse_version("v1.31.1+k3s1"))
    assert config(cluster, sample.host("worker"))["nonroot-devices"] is True
    assert "nonroot-devices" not in config(old, sample.host("worker"))
    assert render.dropped(old, sample.host("worker")) == [
        "machineGlobalConfig: nonroot-devices: k3s has it in other versions than v1.31.1+k3s1"
    ]
