"""Link between a Machine and its Node: finds the Node by providerID, records it, and copies metadata to it.

Nothing here waits for the workload cluster: the Machine is requeued when the cluster connects or a Node changes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi import contract
from remuda.capi.machine.nodes import desired, patch_for
from remuda.capi.machine.scope import MachineDependencies, MachineScope
from remuda.capi.machine.workload import NODE, Node
from remuda.capi.revisions import is_outdated
from remuda.capi.types import Machine, NodeInfo
from remuda.kube.objects import Key
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Retryable
from remuda.runtime.remote import PROVIDER_ID
from remuda.runtime.steps import step

SYNC_NODE = step("machine.sync-node", "copies labels, annotations and taints of the Machine to its Node")

BY_NODE = "machines by node"  # an index of Machines

_FEW_NODES = 200  # in a larger cluster, likely Nodes are not searched


def places(machine: Machine) -> list[str]:
    """Return the index keys under which a Node finds this Machine: its provider ID, and its Node's name or, without a
    Node, the key of the cluster's waiting Machines."""
    cluster = Key(machine.metadata.namespace, machine.spec.cluster_name)
    found = [_by_id(cluster, machine.spec.provider_id)] if machine.spec.provider_id else []
    reference = machine.status.node_ref
    return [*found, _waiting(cluster) if reference is None else _by_name(cluster, reference.name)]


def machines_of(machines: Informer[Machine], cluster: Key, node: Node) -> list[Key]:
    """Return the Machines to reconcile when a Node changes; for a Node without a Machine, the Machines that wait for a
    Node."""
    mine = machines.keys(BY_NODE, _by_id(cluster, node.spec.provider_id)) if node.spec.provider_id else []
    mine += [key for key in machines.keys(BY_NODE, _by_name(cluster, node.metadata.name)) if key not in mine]
    return mine or machines.keys(BY_NODE, _waiting(cluster))


def _by_id(cluster: Key, provider_id: str) -> str:
    return f"{cluster} id {provider_id}"


def _by_name(cluster: Key, name: str) -> str:
    return f"{cluster} name {name}"


def _waiting(cluster: Key) -> str:
    return f"{cluster} waiting"


async def link(world: MachineDependencies, scope: MachineScope) -> None:
    scope.node = _find(scope)
    if scope.node is None:
        _await(world, scope)
        return
    status = scope.draft.status
    status["nodeRef"] = {"name": scope.node.metadata.name}
    if scope.node.status.node_info:
        status["nodeInfo"] = node_info(scope.node)
    if not scope.machine.metadata.deleting:
        await _sync(world, scope, scope.node.metadata.name)


def _find(scope: MachineScope) -> Node | None:
    """Return the Node with the Machine's providerID; else the Node of its nodeRef, unless that is of another server."""
    nodes: Informer[Node] | None = scope.connection.nodes
    if not scope.connection.connected or nodes is None:
        return None
    provider_id = scope.draft.spec.get("providerID", "")
    same = nodes.select(PROVIDER_ID, provider_id) if provider_id else []
    # Do not guess: the Machine would label, and later drain and delete, the Node of another server.
    if len(same) > 1:
        listed = ", ".join(node.metadata.name for node in same)
        raise Retryable(f"several Nodes have spec.providerID {provider_id}: {listed}")
    if same:
        return same[0]
    reference = scope.machine.status.node_ref
    known = nodes.get("", reference.name) if reference is not None else None
    return known if known is not None and not known.spec.provider_id else None


def _await(world: MachineDependencies, scope: MachineScope) -> None:
    cluster = f"Cluster {scope.cluster_key}"
    provider_id = scope.draft.spec.get("providerID", "")
    if not provider_id:
        return  # the infrastructure phase reports it
    if not scope.connection.connected:
        scope.block("WaitingForConnection", cluster, scope.connection.error or "not connected")
    elif scope.machine.status.node_ref is None:
        scope.unclaimed = _unclaimed(world, scope)
        scope.block("WaitingForNode", cluster, f"no Node with spec.providerID {provider_id} exists")


def _unclaimed(world: MachineDependencies, scope: MachineScope) -> list[Node]:
    nodes: Informer[Node] | None = scope.connection.nodes
    if nodes is None or len(nodes) > _FEW_NODES:
        return []
    cluster = scope.cluster_key
    return [
        node
        for node in nodes.all()
        if not world.machines.keys(BY_NODE, _by_id(cluster, node.spec.provider_id))
        and not world.machines.keys(BY_NODE, _by_name(cluster, node.metadata.name))
    ]


_INFO_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(NodeInfo) if field.encode_name != "swap")


def node_info(node: Node) -> dict[str, Any]:
    """Return the fields of nodeInfo that the Machine's schema has. The API server would prune any other field, and each
    reconcile would write it again."""
    info = node.status.node_info
    found: dict[str, Any] = {name: info.get(name, "") for name in _INFO_FIELDS}
    swap = info.get("swap")
    return found | {"swap": swap} if swap else found


async def _sync(world: MachineDependencies, scope: MachineScope, name: str) -> None:
    client, nodes = scope.connection.client, scope.connection.nodes
    if client is None or nodes is None or (value := nodes.raw("", name)) is None:
        return
    infrastructure = scope.infrastructure
    wanted = desired(
        scope.current,
        scope.cluster,
        interruptible=infrastructure is not None and contract.interruptible(infrastructure),
        outdated=bool(scope.machine_set and scope.deployment and is_outdated(scope.machine_set, scope.deployment)),
        more_labels=world.options.node_labels,
        more_annotations=world.options.node_annotations,
    )
    patch = patch_for(msgspec.json.decode(value), wanted)
    if patch:
        async with SYNC_NODE:
            # The next reconcile must read this result, or it would send the same patch again with an old version.
            nodes.observe(await client.patch(NODE.target, "", name, patch))
