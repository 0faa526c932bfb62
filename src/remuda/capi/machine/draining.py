"""Emptying a Node: the stages of a deletion that need the workload cluster to answer.

Each look cordons the Node, makes the plan anew from the pods that are there, evicts those whose turn it is and reports
what keeps the rest. Budgets are respected by the eviction API, not by us. Pods and volumes are not watched, so a look
is repeated after a while, at the latest when the time allowed for the stage is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.capi.machine import drain, volumes
from remuda.capi.machine.deletion import Facts, deadline
from remuda.capi.machine.drain import DrainPlan, Refusal, Surroundings
from remuda.capi.machine.scope import Scope, World
from remuda.capi.machine.workload import (
    DAEMON_SET,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    VOLUME_ATTACHMENT,
    Node,
    Pod,
)
from remuda.kube import clock
from remuda.kube.client import Client, list_all
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, Kind
from remuda.runtime.steps import step

CORDON = step("machine.cordon", "keeps new pods away from a Node that goes")
EVICT = step("machine.evict", "asks one pod to leave a Node that goes")

_DRAIN_LIMIT, _VOLUMES_LIMIT = "nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds"
_PAGE = 100
_GONE, _CONFLICT = 404, 409


class Waiting(NamedTuple):
    """A stage that is not over: what a person is told, what it depends on, and when to look again."""

    message: str
    on: str
    check_after: float | None = None


# ---- pods --------------------------------------------------------------------------------------------------------


async def drain_node(world: World, scope: Scope, facts: Facts) -> Waiting | None:
    limit = scope.machine.spec.deletion.node_drain_timeout_seconds
    started = scope.begin("nodeDrainStartTime")
    again = _look_again(world, scope, started, limit)
    client = scope.connection.client
    if client is None:
        return _unreachable(scope, "drain", _DRAIN_LIMIT, started, limit, again)
    node = await _node(client, facts.node)
    if node is None:
        return None
    await _cordon(client, node)
    plan = await _plan(world, scope, client, node)
    if plan.finished:
        if not scope.machine.status.deletion.wait_for_node_volume_detach_start_time:
            world.events.normal(scope.machine, "SuccessfulDrainNode", f"Node {facts.node} is drained")
        return None
    refusals = await _evict(world, scope, client, node, plan.evict)
    text = f"Drain not completed yet (started at {started}; {_limit(_DRAIN_LIMIT, started, limit)}):"
    return Waiting(f"{text}\n{drain.message(plan, refusals)}", f"Node {facts.node}", again)


async def _node(client: Client, name: str) -> Node | None:
    try:
        return NODE.decode(await client.get(NODE.target, "", name))
    except StatusError as error:
        if error.code != _GONE:
            raise
        return None


async def _cordon(client: Client, node: Node) -> None:
    if not node.spec.unschedulable:
        async with CORDON:
            await client.patch(NODE.target, "", node.metadata.name, {"spec": {"unschedulable": True}})


async def _plan(world: World, scope: Scope, client: Client, node: Node) -> DrainPlan:
    pods = await listed(client, POD, field_selector=f"spec.nodeName={node.metadata.name}")
    rules = drain.rules_for(scope.machine, scope.cluster, world.rules.all(scope.namespace))
    namespaces = await listed(client, NAMESPACE) if drain.need_namespaces(rules) else []
    around = Surroundings(
        now=scope.now,
        unreachable=node.unreachable,
        daemon_sets=await existing_daemon_sets(client, pods),
        namespace_labels={found.metadata.name: found.metadata.labels for found in namespaces},
        rules=rules,
    )
    return drain.plan(pods, around)


async def existing_daemon_sets(client: Client, pods: Sequence[Pod]) -> set[Key]:
    named = {found for found in map(drain.daemon_set_of, pods) if found is not None}
    existing = set()
    for daemon_set in sorted(named):
        try:
            await client.get(DAEMON_SET.target, *daemon_set)
            existing.add(daemon_set)
        except StatusError as error:
            if error.code != _GONE:
                raise
    return existing


async def _evict(world: World, scope: Scope, client: Client, node: Node, pods: Sequence[Pod]) -> list[Refusal]:
    """Asks every pod whose turn it is; those for whom the time of this look did not suffice are asked next time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + world.options.eviction_seconds
    refusals = []
    for pod in pods:
        why = "eviction not asked for yet, there are many"
        if loop.time() < until:
            try:
                async with asyncio.timeout_at(until), EVICT:
                    why = await ask_to_leave(client, pod, grace_seconds=1 if node.unreachable else None)
            except TimeoutError:
                why = "the request to evict it was not answered in time"
        if why:
            refusals.append(Refusal(pod, why))
        else:
            _tell_losses(world, scope, pod)
    for pod, why in refusals:
        world.events.warning(scope.machine, "FailedDrainNode", f"Pod {pod.key} on Node {node.metadata.name}: {why}")
    return refusals


def _tell_losses(world: World, scope: Scope, pod: Pod) -> None:
    losses = drain.warnings(pod)
    if losses:
        world.events.warning(scope.machine, "EvictedPod", f"Pod {pod.key} was evicted: {'; '.join(losses)}")


async def ask_to_leave(client: Client, pod: Pod, *, grace_seconds: int | None) -> str:
    """Why it may not; empty if it goes. A pod of the same name that has come meanwhile is not meant."""
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
    except StatusError as error:
        return "" if error.code in (_GONE, _CONFLICT) else refusal(error)
    return ""


def refusal(error: StatusError) -> str:
    """What the server says, with what it says of the budget or the namespace behind it."""
    causes = [cause for cause in error.details.get("causes") or () if isinstance(cause, dict)]
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return f"{error.message}: it goes with its namespace, which is being deleted"
    more = [str(cause.get("message")) for cause in causes if cause.get("message")]
    return " ".join([error.message, *(text for text in more if text not in error.message)])


# ---- volumes -----------------------------------------------------------------------------------------------------


async def await_volumes(world: World, scope: Scope, facts: Facts) -> Waiting | None:
    limit = scope.machine.spec.deletion.node_volume_detach_timeout_seconds
    started = scope.begin("waitForNodeVolumeDetachStartTime")
    again = _look_again(world, scope, started, limit)
    client = scope.connection.client
    if client is None:
        return _unreachable(scope, "wait for volumes", _VOLUMES_LIMIT, started, limit, again)
    node = await _node(client, facts.node)
    if node is None:
        return None
    found = volumes.attached(node, await listed(client, VOLUME_ATTACHMENT))
    if found:
        plan = await _plan(world, scope, client, node)
        found = set(volumes.blocking(found, plan.stay, await listed(client, PERSISTENT_VOLUME)))
    if not found:
        if scope.machine.status.deletion.wait_for_node_volume_detach_start_time:
            world.events.normal(scope.machine, "NodeVolumesDetached", f"No volume is attached to Node {facts.node}")
        return None
    text = f"Waiting for volumes to be detached (since {started}; {_limit(_VOLUMES_LIMIT, started, limit)}):"
    return Waiting(f"{text}\n{volumes.message(sorted(found))}", f"Node {facts.node}", again)


# ---- what both need ----------------------------------------------------------------------------------------------


async def listed(client: Client, kind: Kind[Any], *, field_selector: str = "") -> list[Any]:
    listing = await list_all(client, kind.target, field_selector=field_selector, page=_PAGE)
    return [kind.decode(item) for item in listing.items]


def _look_again(world: World, scope: Scope, started: str, limit: int | None) -> float:
    end = deadline(started, limit)
    usual = world.options.drain_retry_seconds
    return usual if end is None else max(0.0, min(usual, end - scope.now))


def _limit(field: str, started: str, limit: int | None) -> str:
    end = deadline(started, limit)
    return f"without limit, {field} is not set" if end is None else f"{field} ends it at {clock.rfc3339(end)}"


def _unreachable(scope: Scope, what: str, field: str, started: str, limit: int | None, again: float) -> Waiting:
    cluster = f"Cluster {scope.cluster_key}"
    why = scope.connection.error or "not connected"
    text = f"Cannot {what}: {cluster} does not answer ({why}); tried since {started}, {_limit(field, started, limit)}"
    return Waiting(text, cluster, again)
