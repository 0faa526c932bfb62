"""Deletion of a Machine: each reconcile runs the stages of `deletion` as far as possible.

No stage depends on an earlier one having succeeded in this process, or on the existence of its objects. If the cache
lacks an object, it is fetched from the API server before the finalizer is removed: a cache may lag behind, and a server
that is forgotten costs money for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from remuda.capi import contract, names
from remuda.capi.cluster_index import members
from remuda.capi.contract import ContractError
from remuda.capi.external import UnknownKind
from remuda.capi.machine.deletion import (
    ControlPlane,
    DeletionFacts,
    MachineDeletionStage,
    hooks,
    node_deletion_limit,
    skipped,
)
from remuda.capi.machine.drain_stages import Waiting, await_volumes, drain_node
from remuda.capi.machine.ownership import belongs_to
from remuda.capi.machine.scope import MachineDependencies, MachineScope
from remuda.capi.machine.status import Deleting
from remuda.capi.machine.workload import NODE
from remuda.capi.types import MACHINE, Reference
from remuda.kube import clock
from remuda.kube.errors import StatusError, ignore_not_found
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

DELETE_INFRASTRUCTURE = step(
    "machine.delete-infrastructure",
    "deletes the infrastructure object of a Machine, so that its provider deletes the server",
)
DELETE_BOOTSTRAP = step("machine.delete-bootstrap", "deletes the bootstrap object of a Machine")
DELETE_NODE = step("machine.delete-node", "deletes the Node of a Machine whose server is deleted")

_STAGE_SECONDS = 30.0  # for everything a stage asks of a workload cluster in one run
_EXPECTED = (Retryable, StatusError, OSError, TimeoutError)


async def remove(world: MachineDependencies, scope: MachineScope) -> None:
    try:
        facts = await _facts(world, scope)
    except _EXPECTED as error:
        scope.deleting = Deleting(error=str(error))
        raise
    for stage in MachineDeletionStage:
        if skipped(stage, facts):
            continue
        if stage is MachineDeletionStage.COMPLETED:
            _complete(world, scope)
            return
        try:
            waiting = await _work_on(stage, world, scope, facts)
        except _EXPECTED as error:
            scope.deleting = Deleting(stage, f"{_error_text(error)}; the controller retries")
            raise
        if waiting is not None:
            scope.deleting = Deleting(stage, waiting.message)
            scope.block(stage.value, waiting.on, waiting.message, waiting.check_after)
            return


async def _facts(world: MachineDependencies, scope: MachineScope) -> DeletionFacts:
    machine, cluster = scope.machine, scope.cluster
    infrastructure = scope.infrastructure
    others = members(world.caches, MACHINE, scope.cluster_key)
    return DeletionFacts(
        machine=machine,
        now=scope.now,
        # A Cluster that does not exist counts as being deleted: no connection to its Nodes is left.
        cluster_deleting=cluster.metadata.deleting or not cluster.metadata.name,
        node=_node_name(scope),
        node_unreachable=scope.node is not None and scope.node.unreachable,
        control_plane=await _control_plane(world, scope),
        control_plane_left=any(other.is_control_plane and not other.metadata.deleting for other in others),
        # No object and no error: the server's object is deleted. After a failed lookup it may still exist.
        infrastructure_going=infrastructure.deleting if infrastructure else "infrastructure" not in scope.failures,
    )


def _node_name(scope: MachineScope) -> str:
    """Return the name of the existing Node, or of the last known Node while the cluster is unreachable; else empty."""
    if scope.node is not None:
        return scope.node.metadata.name
    reference = scope.machine.status.node_ref
    return reference.name if reference is not None and not scope.connection.connected else ""


async def _control_plane(world: MachineDependencies, scope: MachineScope) -> ControlPlane:
    ref = scope.cluster.spec.control_plane_ref
    if ref is None:
        return "none"
    try:
        found = await world.externals.get(ref, scope.namespace)
    except UnknownKind:
        found = None
    if found is None:
        return "missing"
    if found.deleting:
        return "deleting"
    return "external" if contract.externally_managed_control_plane(found) else "present"


async def _work_on(
    stage: MachineDeletionStage, world: MachineDependencies, scope: MachineScope, facts: DeletionFacts
) -> Waiting | None:
    match stage:
        case MachineDeletionStage.PRE_DRAIN_HOOK:
            return _await_hooks(scope, names.PRE_DRAIN_HOOK, "waitForPreDrainHookStartTime")
        case MachineDeletionStage.DRAIN:
            return await _with_time_limit(world, scope, drain_node(world, scope, facts))
        case MachineDeletionStage.VOLUMES:
            return await _with_time_limit(world, scope, await_volumes(world, scope, facts))
        case MachineDeletionStage.PRE_TERMINATE_HOOK:
            return _await_hooks(scope, names.PRE_TERMINATE_HOOK, "waitForPreTerminateHookStartTime")
        case MachineDeletionStage.INFRASTRUCTURE:
            return await _delete_provider_object(world, scope, scope.machine.spec.infrastructure_ref, stage)
        case MachineDeletionStage.BOOTSTRAP:
            return await _delete_provider_object(world, scope, scope.machine.spec.bootstrap.config_ref, stage)
        case MachineDeletionStage.NODE:
            return await _delete_node(world, scope, facts.node)
        case MachineDeletionStage.COMPLETED:
            return None


async def _with_time_limit(
    world: MachineDependencies, scope: MachineScope, stage: Awaitable[Waiting | None]
) -> Waiting | None:
    """Run a stage that needs the workload cluster. If the cluster fails or does not answer, return a wait."""
    try:
        async with asyncio.timeout(_STAGE_SECONDS):
            return await stage
    except _EXPECTED as error:
        return Waiting(
            f"{_error_text(error)}; the controller retries",
            f"Cluster {scope.cluster_key}",
            world.options.drain_retry_seconds,
        )


def _await_hooks(scope: MachineScope, prefix: str, began: str) -> Waiting:
    found = hooks(scope.machine, prefix)
    since = scope.begin(began)
    noun, them = ("annotation", "it") if len(found) == 1 else ("annotations", "them")
    text = f"* {noun} {', '.join(found)}: waiting since {since} for removal by the client that set {them}"
    return Waiting(text, f"Machine {scope.machine.key}")


async def _delete_provider_object(
    world: MachineDependencies, scope: MachineScope, ref: Reference | None, stage: MachineDeletionStage
) -> Waiting | None:
    if ref is None or not ref.defined:
        return None
    present = scope.infrastructure if stage is MachineDeletionStage.INFRASTRUCTURE else scope.bootstrap
    # The next stage may remove the finalizer, so a cache that lags behind must not be trusted about a missing object.
    found = present or await world.externals.fetch(ref, scope.namespace)
    # An object that another Machine controls is the server of that Machine, and must survive this deletion.
    if found is None or not belongs_to(found, scope.machine):
        return None
    if not found.deleting:
        async with DELETE_INFRASTRUCTURE if stage is MachineDeletionStage.INFRASTRUCTURE else DELETE_BOOTSTRAP:
            await world.externals.delete(found)
    place = scope.place(ref)
    return Waiting(f"* {place}: {_progress(scope, found)}", place)


def _progress(scope: MachineScope, found: contract.ProviderObject) -> str:
    since = found.metadata.deletion_timestamp or clock.rfc3339(scope.now)
    try:
        ready = contract.condition(found, "Ready")
    except ContractError:
        ready = None
    report = f", reports: {ready.message}" if ready is not None and ready.message and found.deleting else ""
    return f"being deleted by its provider since {since}{report}"


async def _delete_node(world: MachineDependencies, scope: MachineScope, name: str) -> Waiting | None:
    """Delete the Node, within nodeDeletionTimeoutSeconds: an unreachable cluster must not block a deletion for ever."""
    since = world.node_deletions.setdefault(scope.machine.key, scope.now)
    limit = node_deletion_limit(scope.machine)
    try:
        await _ask_to_delete_node(scope, name)
        return None
    except _EXPECTED as error:
        if limit and scope.now >= since + limit:
            text = f"Gave up deleting Node {name}: {_error_text(error)}"
            world.events.warning(scope.machine, "FailedDeleteNode", text)
            return None
        end = (
            f"nodeDeletionTimeoutSeconds ends the wait at {clock.rfc3339(since + limit)}" if limit else "no time limit"
        )
        text = f"* Cannot delete Node {name}: {_error_text(error)}; {end}"
        return Waiting(text, f"Node {name}", world.options.node_deletion_retry_seconds)


async def _ask_to_delete_node(scope: MachineScope, name: str) -> None:
    client = scope.connection.client
    if client is None:
        raise Retryable(f"Cluster {scope.cluster_key} does not answer ({scope.connection.error or 'not connected'})")
    with ignore_not_found():
        async with asyncio.timeout(node_deletion_limit(scope.machine) or None), DELETE_NODE:
            await client.delete(NODE.target, "", name)


def _complete(world: MachineDependencies, scope: MachineScope) -> None:
    world.node_deletions.pop(scope.machine.key, None)
    scope.deleting = Deleting(MachineDeletionStage.COMPLETED)
    scope.draft.remove_finalizer(names.MACHINE_FINALIZER)


def _error_text(error: Exception) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
