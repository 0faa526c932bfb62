from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.admission.cluster import admit
from tests.unit.capi.admission.judging import Json, admitted, an_object, complaints, reference

BOTH = {"infrastructureRef": reference("FooCluster"), "controlPlaneRef": reference("FooControlPlane")}


def cluster(**spec: Any) -> Json:
    return an_object({**BOTH, **spec})


def network(field: str, *blocks: str) -> Json:
    return cluster(clusterNetwork={field: {"cidrBlocks": list(blocks)}})


@pytest.mark.parametrize("ref", BOTH)
def test_cluster_with_one_reference_is_admitted(ref: str) -> None:
    new = an_object({ref: BOTH[ref]})
    assert admitted(admit, new) == new


def test_cluster_without_references_is_denied() -> None:
    assert complaints(admit, an_object({"paused": True})) == [
        "spec: Forbidden: one of spec.controlPlaneRef and spec.infrastructureRef must be set"
    ]


@pytest.mark.parametrize("ref", BOTH)
def test_cluster_reference_may_be_added_or_changed_but_not_removed(ref: str) -> None:
    other = {name: value for name, value in BOTH.items() if name != ref}
    assert complaints(admit, cluster(), an_object(other)) == []
    assert complaints(admit, cluster(**{ref: {**BOTH[ref], "name": "two"}}), cluster()) == []
    assert complaints(admit, an_object(other), cluster()) == [f"spec.{ref}: Forbidden: cannot be removed"]


def test_cluster_topology_is_denied_with_explanation() -> None:
    (said,) = complaints(admit, an_object({"topology": {"classRef": {"name": "x"}}}))
    assert said.startswith("spec.topology: Forbidden: ClusterClass is not supported: describe the cluster by")


@pytest.mark.parametrize("field", ["pods", "services"])
@pytest.mark.parametrize("block", ["10.1.0.0/16", "10.1.2.3/16", "fd00::/48", "0.0.0.0/0"])
def test_valid_cidr_blocks_are_admitted(field: str, block: str) -> None:
    assert complaints(admit, network(field, block)) == []


@pytest.mark.parametrize("field", ["pods", "services"])
@pytest.mark.parametrize("block", ["10.1.0.0", "10.1.0.0/33", "10.1.0/16", "10.0.0.0/255.0.0.0", "a/8", "10.0.0.0/²"])
def test_invalid_cidr_block_is_denied(field: str, block: str) -> None:
    (said,) = complaints(admit, network(field, "10.2.0.0/16", block))
    assert said.startswith(f"spec.clusterNetwork.{field}.cidrBlocks[1]: Invalid value:")
    assert said.endswith("must be a CIDR, such as 10.1.0.0/16 or fd00::/48")


def test_cluster_name_must_fit_a_label() -> None:
    assert complaints(admit, an_object(BOTH, name="a" * 63)) == []
    (said,) = complaints(admit, an_object(BOTH, name="a" * 64))
    assert "metadata.name" in said
    assert "is used as a label value of other objects: must be no more than 63" in said
