"""How Machines are found from Nodes, and what of a Node is copied into its Machine."""

from __future__ import annotations

import msgspec

from remuda.capi.machine.node_link import BY_NODE, machines_of, node_info, places
from remuda.capi.machine.workload import Node
from remuda.capi.types import MACHINE, Machine
from remuda.kube.objects import Key
from remuda.runtime.informer import Informer
from tests.unit.capi.machine.objects import machine, node

CLUSTER = Key("ns", "c")


def known(*machines: Machine) -> Informer[Machine]:
    informer = Informer(MACHINE.decode, MACHINE.target)
    informer.index(BY_NODE, places)
    for revision, one in enumerate(machines, 1):
        raw = msgspec.to_builtins(one)
        raw["metadata"]["resourceVersion"] = str(revision)
        informer.observe(msgspec.json.encode(raw))
    return informer


def named(name: str, **kwargs: object) -> Machine:
    return machine(meta={"name": name}, **kwargs)  # type: ignore[arg-type]


LINKED = named("linked", providerID="id-1", status={"nodeRef": {"name": "n-1"}})
PROVISIONED = named("provisioned", providerID="id-2")
YOUNG = named("young")
ELSEWHERE = named("elsewhere", providerID="id-1", clusterName="other")
MACHINES = (LINKED, PROVISIONED, YOUNG, ELSEWHERE)


def woken(found: Node) -> set[str]:
    return {key.name for key in machines_of(known(*MACHINES), CLUSTER, found)}


def test_node_event_requeues_machine_by_provider_id_or_name() -> None:
    assert woken(node("n-1", provider_id="id-1")) == {"linked"}
    assert woken(node("n-1")) == {"linked"}
    assert woken(node("n-2", provider_id="id-2")) == {"provisioned"}
    assert woken(node("n-1", provider_id="id-2")) == {"linked", "provisioned"}


def test_unclaimed_node_requeues_machines_without_node() -> None:
    assert woken(node("stray", provider_id="id-9")) == {"provisioned", "young"}


def test_node_info_copies_only_schema_fields() -> None:
    raw = {"status": {"nodeInfo": {"kubeletVersion": "v1.35.0", "swap": {"capacity": 1}, "fromTheFuture": 1}}}
    found = node_info(msgspec.convert(raw, Node))
    assert found["kubeletVersion"] == "v1.35.0"
    assert found["swap"] == {"capacity": 1}
    assert found["systemUUID"] == ""
    assert "fromTheFuture" not in found
    assert "swap" not in node_info(node())
