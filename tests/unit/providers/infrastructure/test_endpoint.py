"""Which server a cluster's endpoint is, when it is one, and what stands behind a balancer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.providers.infrastructure.endpoint import BEFORE, choose, outdated
from remuda.providers.infrastructure.scope import backends
from remuda.providers.shared.types.infrastructure import ENDPOINT_MACHINE, RKE_CLUSTER, RKECluster, standing_endpoint

OURS = {"spec": {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}}


def infrastructure(obj: dict[str, Any] | None = None, **annotations: str) -> RKECluster:
    metadata = {"name": "c", "namespace": "d", "annotations": annotations}
    return RKE_CLUSTER.decode(msgspec.json.encode({"metadata": metadata, **(obj or {})}))


def cluster(host: str = "", *, initialized: bool = True) -> Cluster:
    spec = {"controlPlaneEndpoint": {"host": host, "port": 6443}} if host else {}
    status = {"initialization": {"controlPlaneInitialized": initialized}}
    return CLUSTER.decode(msgspec.json.encode({"metadata": {"name": "c"}, "spec": spec, "status": status}))


def machine(name: str, *addresses: tuple[str, str], node: bool = True, deleting: bool = False) -> Machine:
    metadata: dict[str, Any] = {"name": name, "labels": {capi_names.CONTROL_PLANE: ""}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status: dict[str, Any] = {"addresses": [{"type": type, "address": address} for type, address in addresses]}
    if node:
        status["nodeRef"] = {"name": name}
    return MACHINE.decode(msgspec.json.encode({"metadata": metadata, "status": status}))


ONE = machine("one", ("Hostname", "one"), ("InternalIP", "10.0.0.1"))
TWO = machine("two", ("InternalIP", "10.0.0.2"), ("ExternalIP", "203.0.113.2"))


def test_external_address_is_preferred() -> None:
    found = choose(infrastructure(), cluster(), [TWO])
    assert found is not None
    assert (str(found.endpoint), found.machine) == ("203.0.113.2:6443", "two")


@pytest.mark.parametrize(
    "useless",
    [
        machine("m"),
        machine("m", ("Hostname", "localhost")),
        machine("m", ("InternalIP", "10.0.0.9"), node=False),
        machine("m", ("InternalIP", "10.0.0.9"), deleting=True),
    ],
)
def test_unusable_server_is_not_chosen(useless: Machine) -> None:
    assert choose(infrastructure(), cluster(), [useless]) is None


def test_endpoint_is_not_set_before_control_plane_is_initialized() -> None:
    assert choose(infrastructure(), cluster(initialized=False), [ONE]) is None


def test_user_supplied_endpoint_is_kept() -> None:
    assert choose(infrastructure(OURS), cluster(), [TWO]) is None, "the user's, on this object"
    assert choose(infrastructure(), cluster("api.example"), [TWO]) is None, "the user's, on the Cluster"
    assert choose(infrastructure({"spec": {"infrastructure": {"driver": "x"}}}), cluster(), [TWO]) is None


def test_endpoint_moves_only_when_its_machine_is_gone() -> None:
    said = infrastructure(OURS, **{ENDPOINT_MACHINE: "one"})
    assert choose(said, cluster("10.0.0.1"), [ONE, TWO]) is None
    found = choose(said, cluster("10.0.0.1"), [TWO])
    assert found is not None
    assert found.machine == "two"
    assert choose(said, cluster("10.0.0.1"), []) is None, "nothing better is known"


def test_cluster_endpoint_is_outdated_only_if_equal_to_previous() -> None:
    moved = infrastructure(OURS, **{ENDPOINT_MACHINE: "one", BEFORE: "10.0.0.7:6443"})
    assert outdated(moved, cluster("10.0.0.7"))
    assert not outdated(moved, cluster("10.0.0.1"))
    assert not outdated(moved, cluster("api.example"))
    assert not outdated(moved, cluster())


def test_server_address_is_no_standing_endpoint() -> None:
    assert standing_endpoint(infrastructure(OURS, **{ENDPOINT_MACHINE: "one"})) is None
    assert str(standing_endpoint(infrastructure(OURS))) == "10.0.0.1:6443"
    assert standing_endpoint(infrastructure()) is None


def test_backends_exclude_deleting_servers_unless_all_are_deleting() -> None:
    leaving = machine("leaving", ("InternalIP", "10.0.0.3"), deleting=True)
    assert backends([ONE, TWO, leaving]) == ["10.0.0.1", "10.0.0.2"]
    assert backends([leaving]) == ["10.0.0.3"]
    worker = msgspec.structs.replace(TWO, metadata=msgspec.structs.replace(TWO.metadata, labels={}))
    assert backends([worker]) == []
