"""What `clusterctl init` would install: whole, each thing once, and such that the program can run by it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from remuda.cli.manager import command
from remuda.clusterctl.program import NAMESPACE, rights
from remuda.clusterctl.repository import components
from remuda.providers import setup as providers

Json = dict[str, Any]

TYPES = [entry.type for entry in providers.entries("v1.2.3")]


def objects(type: Any) -> list[Json]:
    return list(yaml.safe_load_all(components(type, "v1.2.3")))


def of_kind(type: Any, kind: str) -> list[Json]:
    return [one for one in objects(type) if one["kind"] == kind]


def test_each_provider_crd_belongs_to_exactly_one_component_file() -> None:
    found = [one for type in TYPES for one in of_kind(type, "CustomResourceDefinition")]
    assert sorted(one["metadata"]["name"] for one in found) == sorted(
        one["metadata"]["name"] for one in providers.definitions()
    )


@pytest.mark.parametrize("type", TYPES)
def test_components_define_one_namespace_for_all_namespaced_objects(type: Any) -> None:
    (namespace,) = of_kind(type, "Namespace")
    assert namespace["metadata"]["name"] == NAMESPACE
    assert {one["metadata"].get("namespace", NAMESPACE) for one in objects(type)} == {NAMESPACE}


@pytest.mark.parametrize("type", TYPES)
def test_components_yaml_contains_no_aliases(type: Any) -> None:
    assert "&id" not in components(type, "v1.2.3")


def test_manager_service_account_is_bound_to_core_and_provider_rules() -> None:
    (deployment,) = of_kind("BootstrapProvider", "Deployment")
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    (binding,) = of_kind("BootstrapProvider", "ClusterRoleBinding")
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("ServiceAccount", account)]
    role = next(one for one in of_kind("BootstrapProvider", "ClusterRole") if one["metadata"]["name"] == account)
    assert binding["roleRef"]["name"] == account
    known = rights()
    parts = ("remuda-manager-core", "remuda-manager-providers")
    assert role["rules"] == [rule for name in parts for rule in known["ClusterRole", name]["rules"]]


def test_aggregated_cluster_role_covers_only_remuda_api_groups() -> None:
    label = "cluster.x-k8s.io/aggregate-to-manager"
    given = [one for one in of_kind("BootstrapProvider", "ClusterRole") if label in one["metadata"]["labels"]]
    groups = {group for one in given for rule in one["rules"] for group in rule["apiGroups"]}
    assert groups == {"rke.cattle.io", "rke-machine.cattle.io"}


def test_manager_container_arguments_are_valid_and_ports_match_service() -> None:
    (deployment,) = of_kind("BootstrapProvider", "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "manager", "clusterctl looks for that one"
    name, *arguments = container["args"]
    with command.make_context(name, arguments) as context:
        assert context.params["controllers"] == ("providers",)
        assert context.params["nodes_listen"] == ("0.0.0.0", 8443)
        assert context.params["server_url"] == "${REMUDA_SERVER_URL}"
    ports = {one["containerPort"] for one in container["ports"]}
    assert {
        target["targetPort"] for one in of_kind("BootstrapProvider", "Service") for target in one["spec"]["ports"]
    } <= ports
