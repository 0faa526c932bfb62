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
def test_a_kind_is_found_by_any_of_its_names(said: str, found: str) -> None:
    assert KINDS.find(said).target.api_version == found


def test_a_bare_clusters_means_the_declared_ones_and_then_those_of_cluster_api() -> None:
    versions = [one.target.api_version for one in KINDS.meanings("clusters")]
    assert versions == ["provisioning.cattle.io/v1", "cluster.x-k8s.io/v1beta2"]


def test_where_nothing_is_declared_clusters_are_those_of_cluster_api() -> None:
    kinds = Kinds([resource("cluster.x-k8s.io/v1beta2", "Cluster")])
    assert [one.target.group for one in kinds.meanings("clusters")] == ["cluster.x-k8s.io"]


def test_of_a_kind_that_is_not_there_those_that_are_meant_perhaps_are_told() -> None:
    with pytest.raises(click.ClickException) as caught:
        KINDS.find("machinedeploymets")
    assert "machinedeployments.cluster.x-k8s.io" in caught.value.message
    assert "remuda get nodedrivers" in caught.value.message


def test_of_a_manifest_s_kind_that_is_not_there_it_is_told_what_brings_it() -> None:
    assert "metadata: {name: azure}" in KINDS.why_unknown("rke-machine-config.cattle.io/v1", "AzureConfig")
    assert "provisioning.cattle.io/v1" in KINDS.why_unknown("provisioning.cattle.io/v2", "Cluster")
