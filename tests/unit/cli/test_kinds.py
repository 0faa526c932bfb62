"""How kinds are found by what people call them."""

from __future__ import annotations

import click
import pytest

from remuda.cli.kinds import Kinds, Resource
from remuda.kube.client import Target


def resource(api_version: str, kind: str, *short: str) -> Resource:
    plural = f"{kind.lower()}s"
    names = frozenset({plural, kind.lower(), *short})
    return Resource(Target(api_version, plural), kind, True, names, frozenset({"get", "list"}))


KINDS = Kinds(
    [
        resource("v1", "Event", "ev"),
        resource("events.k8s.io/v1", "Event", "ev"),
        resource("management.cattle.io/v3", "Cluster"),
        resource("cluster.x-k8s.io/v1beta2", "Cluster", "cl"),
        resource("cluster.x-k8s.io/v1beta1", "Cluster", "cl"),
        resource("cluster.x-k8s.io/v1beta2", "MachineDeployment", "md"),
        resource("provisioning.cattle.io/v1", "Cluster"),
    ]
)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("machinedeployments", "cluster.x-k8s.io/v1beta2"),
        ("MachineDeployment", "cluster.x-k8s.io/v1beta2"),
        ("md", "cluster.x-k8s.io/v1beta2"),
        ("ev", "v1"),  # what the server lists first
        ("events.events.k8s.io", "events.k8s.io/v1"),
        ("cluster", "provisioning.cattle.io/v1"),
        ("clusters.cluster.x-k8s.io", "cluster.x-k8s.io/v1beta2"),
        ("clusters.cluster", "cluster.x-k8s.io/v1beta2"),
        ("clusters.v1beta1.cluster.x-k8s.io", "cluster.x-k8s.io/v1beta1"),
        ("clusters.management.cattle.io", "management.cattle.io/v3"),
    ],
)
def test_kind_is_found_by_plural_kind_short_or_qualified_name(said: str, found: str) -> None:
    assert KINDS.find(said).target.api_version == found


def test_clusters_resolves_to_provisioning_then_cluster_api_kind() -> None:
    versions = [one.target.api_version for one in KINDS.meanings("clusters")]
    assert versions == ["provisioning.cattle.io/v1", "cluster.x-k8s.io/v1beta2"]


def test_clusters_resolves_to_cluster_api_without_provisioning_kind() -> None:
    kinds = Kinds([resource("cluster.x-k8s.io/v1beta2", "Cluster")])
    assert [one.target.group for one in kinds.meanings("clusters")] == ["cluster.x-k8s.io"]


def test_unknown_kind_error_suggests_similar_kinds() -> None:
    with pytest.raises(click.ClickException) as caught:
        KINDS.find("machinedeploymets")
    assert "machinedeployments.cluster.x-k8s.io" in caught.value.message
    assert "remuda get nodedrivers" in caught.value.message


def test_unknown_manifest_kind_error_explains_how_to_install_kind() -> None:
    assert "metadata: {name: azure}" in KINDS.why_unknown("rke-machine-config.cattle.io/v1", "AzureConfig")
    assert "provisioning.cattle.io/v1" in KINDS.why_unknown("provisioning.cattle.io/v2", "Cluster")
