"""Drain of a Node: the stages of a deletion that need an answer from the workload cluster.

Each pass cordons the Node, makes a new plan from its current pods, evicts the pods that are due and reports what keeps
the others. The eviction API enforces disruption budgets. Pods and volumes are not watched, so a pass is repeated after
a while, at the latest when the time limit of the stage is reached.

Attached volumes delay the deletion of a server, unless they belong to pods that stay on it to the end. A volume still
attached when its server vanishes may be locked for minutes, or damaged. Volumes of pods that the drain leaves alone
never detach, so waiting for them would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from remuda.capi import CapiError
from remuda.capi.machine import drain_rules
from remuda.capi.machine.deletion import DeletionFacts, deadline
from remuda.capi.machine.drain_rules import DrainFacts, EvictionRefusal
from remuda.capi.machine.scope import MachineDependencies, MachineScope
from remuda.capi.machine.workload import (
    DAEMON_SET,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    VOLUME_ATTACHMENT,
    Node,
    PersistentVolume,
    Pod,
    VolumeAttachment,
)
from remuda.kube import clock
from remuda.kube.client import Client, list_all
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError, ignore_not_found
from remuda.kube.objects import Key, Kind
from remuda.runtime.steps import step

CORDON = step("machine.cordon", "cordons the Node of a Machine that is being deleted")
EVICT = step("machine.evict", "evicts one Pod from the Node of a Machine that is being deleted")

_DRAIN_LIMIT, _VOLUMES_LIMIT = "nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds"
_PAGE = 100  # objects per list request, as upstream
_SHOWN = 3  # attached volumes in a message


class Waiting(NamedTuple):
    """A stage that is not complete: the message for users, the object it waits for, and when to check again."""

    message: str
    on: str
    check_after: float | None = None


# ---- pods --------------------------------------------------------------------------------------------------------


async def drain_node(world: MachineDependencies, scope: MachineScope, facts: DeletionFacts) -> Waiting | None:
    limit = scope.machine.spec.deletion.node_drain_timeout_seconds
    # The start time is stored in the status, so that a restart of the manager does not extend the time limit.
    started = scope.begin("nodeDrainStartTime")
    again = _look_again(world, scope, started, limit)
    client = scope.connection.client
    if client is None:
        return _unreachable(scope, "drain", _DRAIN_LIMIT, started, limit, again)
    node = await _node(client, facts.node)
    if node is None:
        return None
    # Cordon before listing: a Pod that is scheduled in between would be missing from the plan.
    await _cordon(client, node)
    pods, around = await _look(world, scope, client, node)
    plan = drain_rules.plan(pods, around)
    refusals: list[EvictionRefusal] = []
    while not plan.finished:
        gone, refusals = await _evict(world, scope, client, node, plan.evict)
        plan = plan.without(gone)
        if not gone or plan.is_at_work:
            break
        # Pods that cannot be found count as gone, as they do upstream: a server may list them for ever.
        keys = {pod.key for pod in gone}
        pods = [pod for pod in pods if pod.key not in keys]
        plan = drain_rules.plan(pods, around)
    if plan.finished:
        # The next stage has not begun, so this pass has completed the drain: later passes emit no event.
        if not scope.machine.status.deletion.wait_for_node_volume_detach_start_time:
            world.events.normal(scope.machine, "SuccessfulDrainNode", f"Node {facts.node} is drained")
        return None
    text = f"Drain not completed yet (started at {started}; {_limit(_DRAIN_LIMIT, started, limit)}):"
    return Waiting(f"{text}\n{drain_rules.message(plan, refusals)}", f"Node {facts.node}", again)


async def _node(client: Client, name: str) -> Node | None:
    try:
        return NODE.decode(await client.get(NODE.target, "", name))
    except NotFound:
        return None


async def _cordon(client: Client, node: Node) -> None:
    if not node.spec.unschedulable:
        async with CORDON:
            await client.patch(NODE.target, "", node.metadata.name, {"spec": {"unschedulable": True}})


async def _look(
    world: MachineDependencies, scope: MachineScope, client: Client, node: Node
) -> tuple[list[Pod], DrainFacts]:
    pods = await listed(client, POD, field_selector=f"spec.nodeName={node.metadata.name}")
    rules = drain_rules.rules_for(scope.machine, scope.cluster, world.rules.all(scope.namespace))
    namespaces = await listed(client, NAMESPACE) if drain_rules.need_namespaces(rules) else []
    around = DrainFacts(
        now=scope.now,
        unreachable=node.unreachable,
        daemon_sets=await existing_daemon_sets(client, pods),
        namespace_labels={found.metadata.name: found.metadata.labels for found in namespaces},
        rules=rules,
    )
    return pods, around


async def existing_daemon_sets(client: Client, pods: Sequence[Pod]) -> set[Key]:
    named = {found for found in map(drain_rules.daemon_set_of, pods) if found is not None}
    existing = set()
    for daemon_set in sorted(named):
        with ignore_not_found():
            await client.get(DAEMON_SET.target, *daemon_set)
            existing.add(daemon_set)
    return existing


async def _evict(
    world: MachineDependencies, scope: MachineScope, client: Client, node: Node, pods: Sequence[Pod]
) -> tuple[list[Pod], list[EvictionRefusal]]:
    """Evict the pods of the current order; return those that do not exist any more, and those that were refused.

    Pods that do not fit into the time of this pass are evicted in the next one.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + world.options.eviction_seconds
    gone, refusals = [], []
    for pod in pods:
        why = "eviction not requested yet: too many Pods for one pass"
        if loop.time() < until:
            try:
                async with asyncio.timeout_at(until), EVICT:
                    # Upstream's grace period too: the kubelet of an unreachable Node cannot confirm that
                    # a Pod has ended.
                    why = await evict_pod(client, pod, grace_seconds=1 if node.unreachable else None)
            except PodGone:
                gone.append(pod)
                continue
            except TimeoutError:
                why = "the eviction request timed out"
        if why:
            refusals.append(EvictionRefusal(pod, why))
        else:
            _warn_of_losses(world, scope, pod)
    for pod, why in refusals:
        world.events.warning(scope.machine, "FailedDrainNode", f"Pod {pod.key} on Node {node.metadata.name}: {why}")
    return gone, refusals


def _warn_of_losses(world: MachineDependencies, scope: MachineScope, pod: Pod) -> None:
    losses = drain_rules.warnings(pod)
    if losses:
        world.events.warning(scope.machine, "EvictedPod", f"Pod {pod.key} was evicted: {'; '.join(losses)}")


class PodGone(CapiError):
    """Raised if the Pod does not exist any more."""


async def evict_pod(client: Client, pod: Pod, *, grace_seconds: int | None) -> str:
    """Evict a pod. Return why it was refused; empty if it leaves, or another has its name. Raises PodGone if no pod
    has its name."""
    # Pods of a StatefulSet reuse names: without the uid, an eviction could hit the successor on another Node.
    options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "deleteOptions": options,
    }
    try:
        await client.create(POD.target, *pod.key[:1], eviction, name=pod.metadata.name, subresource="eviction")
    except NotFound:
        raise PodGone from None
    # The uid does not match: another Pod has the name, and the planned one is gone.
    except (AlreadyExists, Conflict):
        return ""
    except StatusError as error:
        return refusal(error)
    return ""


def refusal(error: StatusError) -> str:
    """Return the server's message, with its causes: the disruption budget or the namespace that is being deleted."""
    causes = [cause for cause in error.details.get("causes") or () if isinstance(cause, dict)]
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return f"{error.message}: it is deleted with its namespace, which is being deleted"
    more = [str(cause.get("message")) for cause in causes if cause.get("message")]
    return " ".join([error.message, *(text for text in more if text not in error.message)])


# ---- volumes -----------------------------------------------------------------------------------------------------


async def await_volumes(world: MachineDependencies, scope: MachineScope, facts: DeletionFacts) -> Waiting | None:
    limit = scope.machine.spec.deletion.node_volume_detach_timeout_seconds
    started = scope.begin("waitForNodeVolumeDetachStartTime")
    again = _look_again(world, scope, started, limit)
    client = scope.connection.client
    if client is None:
        return _unreachable(scope, "wait for volumes", _VOLUMES_LIMIT, started, limit, again)
    node = await _node(client, facts.node)
    if node is None:
        return None
    found = attached_volumes(node, await listed(client, VOLUME_ATTACHMENT))
    if found:
        plan = drain_rules.plan(*await _look(world, scope, client, node))
        found = set(blocking_volumes(found, plan.stay, await listed(client, PERSISTENT_VOLUME)))
    if not found:
        if scope.machine.status.deletion.wait_for_node_volume_detach_start_time:
            world.events.normal(scope.machine, "NodeVolumesDetached", f"No volume is attached to Node {facts.node}")
        return None
    text = f"Waiting for volumes to be detached (since {started}; {_limit(_VOLUMES_LIMIT, started, limit)}):"
    return Waiting(f"{text}\n{volumes_message(sorted(found))}", f"Node {facts.node}", again)


def attached_volumes(node: Node, attachments: Iterable[VolumeAttachment]) -> set[str]:
    """Return everything that is attached, by PersistentVolume if known, else by its name on the Node."""
    by_volume = {
        attachment.spec.source.persistent_volume_name or attachment.metadata.name
        for attachment in attachments
        if attachment.spec.node_name == node.metadata.name
    }
    return by_volume | {volume.name for volume in node.status.volumes_attached}


def blocking_volumes(found: set[str], staying: Sequence[Pod], volumes: Iterable[PersistentVolume]) -> list[str]:
    """Return the volumes to wait for, sorted; a volume that the Node and an attachment name differently is listed
    once."""
    claims = {(pod.metadata.namespace, claim) for pod in staying for claim in pod.claims}
    left = set(found)
    for volume in volumes:
        claim = volume.spec.claim_ref
        stays = claim is not None and (claim.namespace, claim.name) in claims
        if stays:
            left.discard(volume.metadata.name)
        if stays or volume.metadata.name in left:
            left.discard(name_on_node(volume))
    return sorted(left)


def name_on_node(volume: PersistentVolume) -> str:
    """Return the name under which a Node lists the volume once attached; empty if the volume does not reveal it."""
    csi = volume.spec.csi
    return "" if csi is None else f"kubernetes.io/csi/{csi.driver}^{csi.volume_handle}"


def volumes_message(volumes: Sequence[str]) -> str:
    more = f", ... ({len(volumes) - _SHOWN} more)" if len(volumes) > _SHOWN else ""
    noun = "volume is" if len(volumes) == 1 else "volumes are"
    return f"* {len(volumes)} {noun} still attached: {', '.join(volumes[:_SHOWN])}{more}"


# ---- shared ------------------------------------------------------------------------------------------------------


async def listed(client: Client, kind: Kind[Any], *, field_selector: str = "") -> list[Any]:
    listing = await list_all(client, kind.target, field_selector=field_selector, page=_PAGE)
    return [kind.decode(item) for item in listing.items]


def _look_again(world: MachineDependencies, scope: MachineScope, started: str, limit: int | None) -> float:
    end = deadline(started, limit)
    usual = world.options.drain_retry_seconds
    return usual if end is None else max(0.0, min(usual, end - scope.now))


def _limit(field: str, started: str, limit: int | None) -> str:
    end = deadline(started, limit)
    return f"no time limit, {field} is not set" if end is None else f"{field} ends the wait at {clock.rfc3339(end)}"


def _unreachable(scope: MachineScope, what: str, field: str, started: str, limit: int | None, again: float) -> Waiting:
    cluster = f"Cluster {scope.cluster_key}"
    why = scope.connection.error or "not connected"
    text = f"Cannot {what}: {cluster} does not answer ({why}); tried since {started}, {_limit(field, started, limit)}"
    return Waiting(text, cluster, again)
