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


def test_an_address_that_clients_outside_can_reach_comes_first() -> None:
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
def test_a_server_without_address_or_node_or_on_its_way_out_is_none(useless: Machine) -> None:
    assert choose(infrastructure(), cluster(), [useless]) is None


def test_nothing_is_said_before_the_api_answers() -> None:
    assert choose(infrastructure(), cluster(initialized=False), [ONE]) is None


def test_what_somebody_else_has_said_stays() -> None:
    assert choose(infrastructure(OURS), cluster(), [TWO]) is None, "the user's, on this object"
    assert choose(infrastructure(), cluster("api.example"), [TWO]) is None, "the user's, on the Cluster"
    assert choose(infrastructure({"spec": {"infrastructure": {"driver": "x"}}}), cluster(), [TWO]) is None


def test_it_stays_while_its_machine_does_and_moves_when_it_goes() -> None:
    said = infrastructure(OURS, **{ENDPOINT_MACHINE: "one"})
    assert choose(said, cluster("10.0.0.1"), [ONE, TWO]) is None
    found = choose(said, cluster("10.0.0.1"), [TWO])
    assert found is not None
    assert found.machine == "two"
    assert choose(said, cluster("10.0.0.1"), []) is None, "nothing better is known"


def test_the_copy_is_moved_only_where_it_is_what_was_said_before() -> None:
    moved = infrastructure(OURS, **{ENDPOINT_MACHINE: "one", BEFORE: "10.0.0.7:6443"})
    assert outdated(moved, cluster("10.0.0.7"))
    assert not outdated(moved, cluster("10.0.0.1"))
    assert not outdated(moved, cluster("api.example"))
    assert not outdated(moved, cluster())


def test_the_address_of_one_server_does_not_stand_before_them() -> None:
    assert standing_endpoint(infrastructure(OURS, **{ENDPOINT_MACHINE: "one"})) is None
    assert str(standing_endpoint(infrastructure(OURS))) == "10.0.0.1:6443"
    assert standing_endpoint(infrastructure()) is None


def test_a_balancer_stands_before_servers_that_stay_and_before_the_last_ones_until_they_are_gone() -> None:
    leaving = machine("leaving", ("InternalIP", "10.0.0.3"), deleting=True)
    assert backends([ONE, TWO, leaving]) == ["10.0.0.1", "10.0.0.2"]
    assert backends([leaving]) == ["10.0.0.3"]
    worker = msgspec.structs.replace(TWO, metadata=msgspec.structs.replace(TWO.metadata, labels={}))
    assert backends([worker]) == []
