"""What of a configuration could never work is refused by field; what spells out defaults passes."""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec
import pytest

from remuda.providers.controlplane.rules import configuration, fields, keys
from remuda.providers.shared.distros import Distro, of, parse_version
from remuda.providers.shared.types.configuration import Operations, Taint

SHA256 = base64.b64encode(b"a" * 32).decode()
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DISTRO = Distro(
    name="k3s",
    env_prefix="K3S",
    server_unit="k3s",
    agent_unit="k3s-agent",
    supervisor_port=6443,
    server_arguments={"disable": "list", "cluster-cidr": "string", "secrets-encryption": "boolean", "v": "number"},
    agent_arguments={"node-label": "list"},
)


def read(spec: dict[str, Any]) -> Operations:
    return msgspec.convert(spec, Operations)


def said(spec: dict[str, Any]) -> list[str]:
    return [str(error) for error in configuration.complaints(read(spec), "spec")]


def selecting(selector: dict[str, Any]) -> dict[str, Any]:
    return {"machineSelectorConfig": [{"machineLabelSelector": selector, "config": {}}, {"config": {}}]}


def source(**more: Any) -> dict[str, Any]:
    return {"machineSelectorFiles": [{"fileSources": [more]}]}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"additionalManifest": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\nkind: B\n"},
        {"additionalManifest": "# only a comment\n"},
        {"chartValues": {"rke2-calico": {"installation": {"calicoNetwork": {}}}, "rke2-coredns": None}},
        {"etcd": {"snapshotScheduleCron": "0 */5 * * *", "snapshotRetention": 5, "s3": {}}},
        {"etcd": {"s3": {"cloudCredentialName": "cattle-global-data:cc-1", "folder": "f"}}},
        {"etcd": {"s3": {"bucket": "b", "endpoint": "s3.example", "endpointCA": CERTIFICATE}}},
        {"etcd": {"s3": {"bucket": "b", "endpointCA": "/etc/ssl/ca.crt"}}},
        {"etcd": {"s3": {"bucket": "b", "endpointCA": base64.b64encode(CERTIFICATE.encode()).decode()}}},
        {"dataDirectories": {"systemAgent": "/data/agent", "k8sDistro": "/data/k3s", "provisioning": "/data/capr"}},
        {"registries": {"mirrors": {"docker.io": {"endpoint": ["https://m.example"], "rewrite": {"^x/(.*)": "y/$1"}}}}},
        {"registries": {"configs": {"m.example:5000": {"caBundle": base64.b64encode(CERTIFICATE.encode()).decode()}}}},
        selecting({"matchLabels": {"a": "b"}}),
        source(secret={"name": "s", "items": [{"key": "k", "path": "/etc/x", "permissions": "0644"}]}),
        source(configMap={"name": "s", "defaultPermissions": "600"}),
        source(secret={"name": "s", "items": [{"key": "k", "path": "/x", "hash": SHA256}]}),
        {"upgradeStrategy": {"workerDrainOptions": {"preDrainHooks": [{"annotation": "example.com/hook"}]}}},
    ],
)
def test_valid_configuration_is_accepted(spec: dict[str, Any]) -> None:
    assert said(spec) == []


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"additionalManifest": "a: [1"}, "spec.additionalManifest", "is not valid YAML"),
        ({"additionalManifest": "a: b\n  c: d\n"}, "spec.additionalManifest", "in line 2"),
        ({"additionalManifest": "- a\n- b\n"}, "spec.additionalManifest", "a list"),
        ({"additionalManifest": "kubectl apply"}, "spec.additionalManifest", "not plain text"),
        ({"additionalManifest": "a: \x00"}, "spec.additionalManifest", "is not valid YAML"),
        ({"chartValues": {"rke2-calico": "yes"}}, "spec.chartValues[rke2-calico]", "a map of values"),
        ({"etcd": {"snapshotScheduleCron": "every day"}}, "spec.etcd.snapshotScheduleCron", "5 fields"),
        ({"etcd": {"snapshotScheduleCron": "0 25 * * *"}}, "spec.etcd.snapshotScheduleCron", "above maximum"),
        ({"etcd": {"s3": {"region": "eu"}}}, "spec.etcd.s3.bucket", "need a bucket"),
        ({"etcd": {"s3": {"bucket": "b", "endpointCA": "what"}}}, "spec.etcd.s3.endpointCA", ".crt"),
        ({"dataDirectories": {"systemAgent": "data"}}, "spec.dataDirectories.systemAgent", "absolute"),
        ({"dataDirectories": {"k8sDistro": "/a/../b"}}, "spec.dataDirectories.k8sDistro", "absolute"),
        (
            {"dataDirectories": {"systemAgent": "/data", "k8sDistro": "/data/k3s"}},
            "spec.dataDirectories.systemAgent",
            "must not hold k8sDistro",
        ),
        ({"registries": {"mirrors": {"a": {"endpoint": ["m.example"]}}}}, "mirrors[a].endpoint[0]", "must be a URL"),
        ({"registries": {"mirrors": {"a": {"rewrite": {"(": "x"}}}}}, "mirrors[a].rewrite", "missing closing )"),
        (
            {"registries": {"mirrors": {"a": {"rewrite": {"(?=x)": "x"}}}}},
            "mirrors[a].rewrite",
            "invalid or unsupported",
        ),
        ({"registries": {"mirrors": {"a": {"rewrite": {r"\pL": "x"}}}}}, "mirrors[a].rewrite", "Unicode classes"),
        ({"registries": {"mirrors": {"a": {"rewrite": {"(.{1,100}){1,10}": "x"}}}}}, "mirrors[a].rewrite", "too large"),
        ({"registries": {"mirrors": {"a": {"rewrite": {"a|" * 200: "x"}}}}}, "mirrors[a].rewrite", "Too long"),
        (
            {"registries": {"mirrors": {"a": {"rewrite": {f"a{number}": "x" for number in range(101)}}}}},
            "registries.mirrors",
            "Too many",
        ),
        ({"registries": {"configs": {"a": {"caBundle": "what"}}}}, "configs[a].caBundle", "base64"),
        ({"registries": {"configs": {"a": {"tlsSecretName": "A_B"}}}}, "configs[a].tlsSecretName", "RFC 1123"),
        (
            {"machineSelectorConfig": [{"machineLabelSelector": {"matchLabels": {"a b": "c"}}}]},
            "spec.machineSelectorConfig[0].machineLabelSelector",
            "name part",
        ),
        (
            selecting({"matchExpressions": [{"key": "a", "operator": "is"}]}),
            "machineLabelSelector",
            "not a valid label selector operator",
        ),
        (source(), "fileSources[0]", "exactly one"),
        (source(secret={"name": "a"}, configMap={"name": "b"}), "fileSources[0]", "exactly one"),
        (source(secret={"name": "a", "items": [{"key": "k", "path": "etc"}]}), "items[0].path", "absolute"),
        (source(secret={"name": "a", "defaultPermissions": "rw"}), "secret.defaultPermissions", "octal"),
        (source(secret={"name": "a", "items": [{"key": "k", "path": "/a", "hash": "x"}]}), "items[0].hash", "sha256"),
        (
            {"upgradeStrategy": {"controlPlaneDrainOptions": {"postDrainHooks": [{"annotation": ""}]}}},
            "controlPlaneDrainOptions.postDrainHooks[0].annotation",
            "",
        ),
    ],
)
def test_invalid_configuration_is_rejected_by_field(spec: dict[str, Any], path: str, words: str) -> None:
    complaint = said(spec)[0]
    assert path in complaint.partition(": ")[0]
    assert words in complaint


def test_secrets_are_not_repeated_in_complaints() -> None:
    assert "swordfish" not in "".join(said({"additionalManifest": "password: swordfish\n bad"}))


def test_large_manifest_is_judged_quickly() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\ndata:\n" + "".join(
        f"  key{n}: value of some length {n}\n" for n in range(8000)
    )
    began = time.process_time()
    assert configuration.manifest_problem(text) == ""
    assert configuration.manifest_problem(text) == ""
    assert time.process_time() - began < 2


def test_yaml_anchors_are_not_expanded() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
    )
    assert configuration.manifest_problem(bomb) == ""


def test_data_directories_are_immutable() -> None:
    old, new = read({"dataDirectories": {"k8sDistro": "/a"}}), read({"dataDirectories": {"k8sDistro": "/b"}})
    assert "cannot be changed" in str(configuration.transitions(old, new, "spec")[0])
    assert configuration.transitions(old, old, "spec") == []


def test_duplicate_taint_is_rejected() -> None:
    taint = Taint(key="a", value="b", effect="NoSchedule")
    assert configuration.taints([taint], "t") == []
    assert "is a duplicate" in str(configuration.taints([taint, taint], "t")[0])
    assert configuration.taints([Taint(key="no spaces", effect="NoSchedule")], "t") != []


@pytest.mark.parametrize(
    ("reference", "fine"),
    [
        ("", True),
        ("cattle-global-data:cc-1", True),
        ("mine", True),
        ("here:mine", True),
        ("kube-system:admin", False),
        ("cattle-global-data:", False),
        ("No Name", False),
    ],
)
def test_credential_reference_namespace_is_restricted(reference: str, fine: bool) -> None:
    assert (configuration.credential(reference, "here", "p") == []) is fine


# ---- keys ------------------------------------------------------------------------------------------------------------


def judged(config: dict[str, Any], distro: Distro | None = DISTRO) -> list[str]:
    return [str(error) for error in keys.complaints(read({"machineGlobalConfig": config}), distro, "spec")]


@pytest.mark.parametrize(
    "config",
    [
        {"disable": ["traefik"]},
        {"disable": "traefik"},
        {"disable+": ["servicelb"]},
        {"secrets-encryption": True},
        {"secrets-encryption": "true"},
        {"v": 3},
        {"v": "3"},
        {"cluster-cidr": None},
        {"profile": None, "never-heard-of": 4},
    ],
)
def test_convertible_config_values_are_accepted(config: dict[str, Any]) -> None:
    assert judged(config) == []
    assert judged(config, None) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"disable": {"traefik": True}}, "or a list of these"),
        ({"disable": [["traefik"]]}, "or a list of these"),
        ({"cluster-cidr": ["10.0.0.0/8"]}, "must be a single value"),
        ({"secrets-encryption": "yes please"}, "neither true nor false"),
        ({"secrets-encryption": 3}, "neither true nor false"),
        ({"v": "much"}, "not an integer"),
        ({"v": True}, "not an integer"),
        ({"never-heard-of": {"a": 1}}, "or a list of these"),
    ],
)
def test_inconvertible_config_values_are_rejected(config: dict[str, Any], words: str) -> None:
    (complaint,) = judged(config)
    assert words in complaint
    assert f"spec.machineGlobalConfig.{next(iter(config))}" in complaint


def test_unknown_keys_are_warned_of_by_name_and_distribution() -> None:
    config = read(
        {
            "machineGlobalConfig": {"disable": ["a"], "disable+": ["b"], "dissable": ["c"], "nothing": None},
            "machineSelectorConfig": [{"config": {"node-label": ["a=b"], "lables": ["a=b"]}}],
        }
    )
    first, second = keys.warnings(config, DISTRO, "spec")
    assert first.startswith("spec.machineGlobalConfig.dissable: k3s has no known key dissable")
    assert second.startswith("spec.machineSelectorConfig[0].config.lables: ")


def test_manager_owned_keys_are_warned() -> None:
    config = read({"machineGlobalConfig": {"token": "mine", "disable-apiserver": False}})
    (said,) = keys.warnings(config, DISTRO, "spec")
    assert said == "spec.machineGlobalConfig.token: is not passed to nodes: the manager makes tokens"


# ---- what a distribution refuses -------------------------------------------------------------------------------------

CLOUD = {"cloud-provider-name": "external"}


def refused(version: str, **spec: Any) -> list[str]:
    parsed = parse_version(version)
    return [str(error) for error in keys.complaints(read(spec), of(parsed), "spec", parsed)]


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ({**CLOUD, "node-external-ip": ["203.0.113.5"]}, "node-external-ip", "beside a cloud provider"),
        ({"cloud-provider-config": "x"}, "cloud-provider-config", "needs cloud-provider-name"),
        ({"kube-scheduler-arg": "secure-port=1"}, "kube-scheduler-arg", "secure-port than 10259"),
        ({"kube-controller-manager-arg+": ["--secure-port=1"]}, "kube-controller-manager-arg", "than 10257"),
        ({"cni": "multus"}, "cni", "must be one of calico"),
        ({"cni": ["calico", "multus"]}, "cni", "must be one of calico"),
        ({"ingress-controller": "haproxy"}, "ingress-controller", "must be none"),
        ({"profile": "cis-1.5"}, "profile", "must be cis or etcd"),
        ({"profile": "cis", "protect-kernel-defaults": "false"}, "protect-kernel-defaults", "must be true"),
        ({"secrets-encryption": False}, "secrets-encryption", "always encrypts"),
        ({"cloud-provider-name": "aws"}, "cloud-provider-name", "set external"),
        ({"node-name-from-cloud-provider-metadata": "true"}, "node-name-from-cloud-provider-metadata", "rename"),
    ],
)
def test_settings_that_stop_rke2_are_rejected_by_key(config: dict[str, Any], path: str, words: str) -> None:
    (complaint,) = refused("v1.36.4+rke2r1", machineGlobalConfig=config)
    assert complaint.startswith(f"spec.machineGlobalConfig.{path}: ")
    assert words in complaint
    assert not [told for told in refused("v1.36.4+k3s1", machineGlobalConfig=config) if words in told]


@pytest.mark.parametrize(
    "config",
    [
        {**CLOUD, "cloud-provider-config": "x"},
        {"kube-scheduler-arg": ["secure-port=10259", "v=2"]},
        {"cni": ["multus", "cilium"]},
        {"cni": "multus,calico"},
        {"ingress-controller": ["traefik", "ingress-nginx"]},
        {"profile": "cis", "protect-kernel-defaults": True},
        {"secrets-encryption": "true", "node-name-from-cloud-provider-metadata": False},
    ],
)
def test_valid_rke2_settings_are_accepted(config: dict[str, Any]) -> None:
    assert refused("v1.36.4+rke2r1", machineGlobalConfig=config) == []


def test_selector_config_is_validated_with_global_config() -> None:
    selectors = [{"config": {"debug": True}}, {"config": {"node-external-ip": ["203.0.113.5"]}}]
    (complaint,) = refused("v1.36.4+rke2r1", machineGlobalConfig=CLOUD, machineSelectorConfig=selectors)
    assert complaint.startswith("spec.machineSelectorConfig[1].config.node-external-ip: ")


def test_limits_apply_only_to_their_versions() -> None:
    assert refused("v1.33.2+rke2r1", machineGlobalConfig={"profile": "cis-1.23"}) != []
    assert refused("v1.33.1+rke2r1", machineGlobalConfig={"profile": "cis-1.23"}) == []


def test_key_of_other_versions_is_warned_of() -> None:
    config, version = read({"machineGlobalConfig": {"prime": True}}), parse_version("v1.31.4+rke2r1")
    (said,) = keys.warnings(config, of(version), "spec", version)
    assert said.endswith("is not passed to nodes: rke2 has it in other versions than v1.31.4+rke2r1")


# ---- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"etcdSnapshotCreate": {"generation": 0}},
        {"rotateCertificates": {"generation": 0, "services": []}},
        {"upgradeStrategy": {"workerDrainOptions": {"ignoreErrors": False}}},
        {"etcdSnapshotRestore": {"name": ""}},
    ],
)
def test_unsupported_field_with_default_value_is_accepted(spec: dict[str, Any]) -> None:
    assert fields.complaints(fields.CONFIGURATION, read(spec), "spec") == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"etcdSnapshotCreate": {"generation": 3}}, "spec.etcdSnapshotCreate"),
        ({"etcdSnapshotRestore": {"name": "a"}}, "spec.etcdSnapshotRestore"),
        ({"rotateCertificates": {"generation": 1}}, "spec.rotateCertificates"),
        ({"rotateEncryptionKeys": {"generation": 1}}, "spec.rotateEncryptionKeys"),
        (
            {"upgradeStrategy": {"workerDrainOptions": {"ignoreErrors": True}}},
            "spec.upgradeStrategy.workerDrainOptions.ignoreErrors",
        ),
    ],
)
def test_refused_field_is_named_in_error(spec: dict[str, Any], path: str) -> None:
    (complaint,) = fields.complaints(fields.CONFIGURATION, read(spec), "spec")
    assert complaint.path == path
    assert "not supported" in complaint.detail


def test_manifest_with_too_many_nodes_is_refused() -> None:
    started = time.process_time()
    assert (
        configuration.manifest_problem("a: b\n---\n" * 300_000) == "is too large: must have at most 100000 YAML nodes"
    )
    assert time.process_time() - started < 0.5
