"""Build the planner's view of a host from a Machine, its RKEBootstrap, its plan Secret and its Node. Pure.

Roles, the init mark, labels and addresses come from objects that no host can write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.machine.deletion import awaits_last_hooks
from remuda.capi.machine.workload import Node as WorkloadNode
from remuda.capi.types import Machine, MachineDeployment
from remuda.kube import clock, conditions
from remuda.kube.core import Secret
from remuda.kube.objects import Condition
from remuda.kube.wait import Wait
from remuda.providers.controlplane import plan_secrets
from remuda.providers.controlplane.planner.observation import (
    Drain,
    ObservedHost,
    ObservedNode,
    Orphan,
    PlanReport,
    Pool,
    Roles,
)
from remuda.providers.shared import names
from remuda.providers.shared.distros import Distro
from remuda.providers.shared.types.bootstrap import AGENT_CONNECTED, RKE_BOOTSTRAP, RKEBootstrap
from remuda.providers.shared.types.configuration import Taint
from remuda.providers.shared.types.controlplane import RECONCILED_MACHINE

POOL_NAME = "rke.cattle.io/rke-machine-pool-name"  # label of Machines: the pool they are of
HOOK = f"{capi_names.PRE_TERMINATE_HOOK}/rke-bootstrap-cleanup"  # annotation of Machines: their end waits for us
HOOK_OWNER = "rke-bootstrap-controller"
FORCE_REMOVE = ("rke.cattle.io/etcd-force-remove", "provisioning.cattle.io/force-machine-remove")  # annotations

ETCD_NODE = "node-role.kubernetes.io/etcd"  # label of Nodes
ETCD_IS_VOTER = "EtcdIsVoter"  # condition of Nodes that are members of etcd
_BEFORE = ("InfrastructureReady", "BootstrapConfigReady")
_TRUE = "true"


class BadNote(ValueError):
    """Error for an annotation that cannot be read; the message says why."""


def is_ours(machine: Machine) -> bool:
    """Return whether this controller plans the Machine: its bootstrap is an RKEBootstrap."""
    reference = machine.spec.bootstrap.config_ref
    return reference is not None and (reference.api_group, reference.kind) == (RKE_BOOTSTRAP.group, RKE_BOOTSTRAP.name)


def roles(labels: Mapping[str, str]) -> Roles:
    return Roles(
        labels.get(names.ETCD_ROLE) == _TRUE,
        labels.get(names.CONTROL_PLANE_ROLE) == _TRUE,
        labels.get(names.WORKER_ROLE) == _TRUE,
    )


def pool(deployment: MachineDeployment) -> Pool:
    labels = deployment.spec.template.metadata.labels
    replicas = deployment.spec.replicas
    return Pool(
        name=labels.get(POOL_NAME) or deployment.metadata.name,
        roles=roles(labels),
        replicas=1 if replicas is None else replicas,
    )


def host(
    machine: Machine,
    bootstrap: RKEBootstrap | None,
    plan: Secret | None,
    node: WorkloadNode | None,
    distro: Distro,
    *,
    notes: bool = True,
) -> ObservedHost:
    """Return a host. `notes`: also read the desired labels and taints of its Node. Raise BadNote."""
    metadata, status = machine.metadata, machine.status
    said = {**(bootstrap.metadata.annotations if bootstrap is not None else {}), **metadata.annotations}
    seen = bootstrap.status.conditions if bootstrap is not None else ()
    return ObservedHost(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        created=clock.parse(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0,
        roles=roles(metadata.labels),
        pool=metadata.labels.get(POOL_NAME) or metadata.labels.get(capi_names.DEPLOYMENT_NAME, ""),
        labels=metadata.labels,
        node_name=node_name(machine),
        node_labels=_labels(said.get(names.NODE_LABELS, "")) if notes else {},
        node_taints=_taints(said.get(names.NODE_TAINTS, "")) if notes else (),
        provider_id=machine.spec.provider_id,
        internal_addresses=_addresses(machine, "InternalIP"),
        external_addresses=_addresses(machine, "ExternalIP"),
        machine_id=metadata.labels.get(names.MACHINE_ID, ""),
        init=bootstrap is not None and bootstrap.metadata.labels.get(names.INIT_NODE) == _TRUE,
        connected=conditions.is_true(seen, AGENT_CONNECTED),
        connected_since=_connected_since(seen),
        infrastructure_ready=status.initialization.infrastructure_provisioned,
        failed=_failed(machine),
        deleting_since=clock.parse(metadata.deletion_timestamp) if metadata.deletion_timestamp else None,
        drained=awaits_last_hooks(machine),
        held=HOOK in metadata.annotations,
        force_remove=any(said.get(name) == _TRUE for name in FORCE_REMOVE),
        unsettled_since=_unsettled_since(machine),
        report=plan_secrets.report(plan) if plan is not None else PlanReport(),
        drain=plan_secrets.drain(plan) if plan is not None else Drain(),
        node=_node(node, distro) if node is not None else None,
        waits=_waits(machine),
    )


def orphans(nodes: Iterable[WorkloadNode], machines: Sequence[Machine]) -> list[Orphan]:
    """Return the Nodes that carry the uid of a Machine, belong to none of these Machines, and are not ready. A Node
    that is ready may belong to a Machine that this manager does not know, for instance after a restore."""
    uids = {machine.metadata.uid for machine in machines}
    servers = {machine.spec.provider_id for machine in machines}
    return [
        Orphan(node.metadata.name, ETCD_NODE in node.metadata.labels)
        for node in nodes
        if node.metadata.labels.get(names.NODE_MACHINE, "") not in ("", *uids)
        and node.spec.provider_id not in servers
        and not node.ready
    ]


def _unsettled_since(machine: Machine) -> float | None:
    found = conditions.find(machine.status.conditions, RECONCILED_MACHINE)
    if found is not None and found.status == conditions.TRUE:
        return None
    began = machine.metadata.creation_timestamp if found is None else found.last_transition_time
    return clock.parse(began) if began else None


def _connected_since(seen: Sequence[Condition]) -> float | None:
    found = conditions.find(seen, AGENT_CONNECTED)
    if found is None or found.status != conditions.TRUE or not found.last_transition_time:
        return None
    return clock.parse(found.last_transition_time)


def node_name(machine: Machine) -> str:
    hostnames = _addresses(machine, "Hostname")
    return machine.metadata.labels.get(names.NODE_NAME) or (hostnames[0] if hostnames else machine.metadata.name)


def _addresses(machine: Machine, type: str) -> list[str]:
    return [one.address for one in machine.status.addresses if one.type == type]


def _failed(machine: Machine) -> str:
    found = conditions.find(machine.status.conditions, "InfrastructureReady")
    return (
        found.message if found is not None and found.reason == names.STALLED and found.status != conditions.TRUE else ""
    )


def _waits(machine: Machine) -> list[Wait]:
    found = []
    for type in _BEFORE:
        seen = conditions.find(machine.status.conditions, type)
        if seen is not None and seen.status != conditions.TRUE:
            found.append(
                Wait(
                    reason=seen.reason or type,
                    on=f"Machine {machine.key}",
                    missing=seen.message or seen.reason or type,
                    since=clock.parse(seen.last_transition_time) if seen.last_transition_time else None,
                    log=f"remuda machine logs {machine.metadata.name} -n {machine.metadata.namespace}",
                )
            )
    return found


def _node(node: WorkloadNode, distro: Distro) -> ObservedNode:
    voter = node.condition(ETCD_IS_VOTER)
    said = node.metadata.annotations
    left = f"{distro.etcd_annotation}/removed-node-name"
    return ObservedNode(
        name=node.metadata.name,
        ready=node.ready,
        kubelet_version=str(node.status.node_info.get("kubeletVersion", "")),
        voter=None if voter is None else voter.status == conditions.TRUE,
        leaving=said.get(f"{distro.etcd_annotation}/remove") == _TRUE,
        left=bool(said.get(left)),
    )


# ---- desired labels and taints of the Node -------------------------------------------------------------------------


def _labels(text: str) -> dict[str, str]:
    """A JSON object, or key=value,key=value: hosts that register themselves write it so."""
    if not text.startswith("{"):
        pairs = (part.partition("=") for part in text.split(",") if part.strip())
        return {key.strip(): value.strip() for key, _, value in pairs}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise BadNote(f"the annotation {names.NODE_LABELS} is not a JSON object of strings: {error}") from None


def _taints(text: str) -> Sequence[Taint]:
    """A JSON list, or key=value:Effect,key:Effect."""
    if text.startswith("["):
        try:
            return msgspec.json.decode(text, type=list[Taint])
        except msgspec.MsgspecError as error:
            raise BadNote(f"the annotation {names.NODE_TAINTS} is not a JSON list of taints: {error}") from None
    found = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        pair, _, effect = part.rpartition(":")
        key, _, value = pair.partition("=")
        found.append(Taint(key=key, value=value, effect=effect))
    return found
