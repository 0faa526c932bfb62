"""Deletion of a Cluster: workers first, then the control plane, then the infrastructure, then the Cluster itself.

A stage ends when none of its objects exist, no matter who deleted them. So users may delete everything at once and in
any order: the controller skips objects that are gone and waits for objects that another client is deleting. It uses
plain background deletion and enforces the order itself; the garbage collector does not. `plan` decides, without I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup
from remuda.capi.contract import ProviderObject
from remuda.capi.inflection import plural
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.objects import Kind, Object

_MOST_NAMES = 3

Remaining = Sequence[tuple[Kind[Any], Sequence[Object]]]


class ClusterDeletionStage(NamedTuple):
    """Stage of a deletion: the objects the controller waits for, and the objects it must delete to make progress."""

    reason: str  # of the Deleting condition
    message: str
    on: str = ""
    delete: Sequence[tuple[Kind[Any], Object]] = ()
    delete_provider: ProviderObject | None = None
    error: Exception | None = None  # why the remaining objects are unknown

    @property
    def completed(self) -> bool:
        return self.reason == "DeletionCompleted"


def plan(
    members: ClusterMembers, control_plane: ProviderLookup, infrastructure: ProviderLookup
) -> ClusterDeletionStage:
    """Return the first stage with remaining objects."""
    workers: Remaining = (
        (MACHINE_DEPLOYMENT, members.deployments),
        (MACHINE_SET, members.sets),
        (MACHINE, members.workers),
    )
    if any(objects for _, objects in workers):
        return _members_stage("WaitingForWorkersDeletion", workers)
    # Without a control plane object, no provider deletes these Machines, so the Cluster controller does.
    if control_plane.ref is None and members.control_plane:
        return _members_stage("WaitingForControlPlaneDeletion", ((MACHINE, members.control_plane),))
    for reason, found in (
        ("WaitingForControlPlaneDeletion", control_plane),
        ("WaitingForInfrastructureDeletion", infrastructure),
    ):
        if found.obj is not None:
            message = f"Waiting for {found.obj.kind} to be deleted"
            return ClusterDeletionStage(reason, message, str(found.obj), delete_provider=found.obj)
        # A failed lookup does not mean that the object is deleted: to go on would delete the infrastructure of a
        # control plane that may still run.
        if found.error is not None:
            return ClusterDeletionStage("InternalError", str(found.error), str(found), error=found.error)
    return ClusterDeletionStage("DeletionCompleted", "Deletion completed")


def _members_stage(reason: str, remaining: Remaining) -> ClusterDeletionStage:
    """Return the stage that waits for these objects. It deletes only objects without a controller; a controlled object
    is deleted with its controller."""
    ours = [
        (kind, obj)
        for kind, objects in remaining
        for obj in objects
        if obj.metadata.controller is None and not obj.metadata.deleting
    ]
    lines = [_line(kind, objects) for kind, objects in remaining if objects]
    first = next((kind, objects[0]) for kind, objects in remaining if objects)
    return ClusterDeletionStage(reason, "\n".join(lines), f"{first[0].name} {first[1].key}", ours)


def _line(kind: Kind[Any], objects: Sequence[Object]) -> str:
    shown = ", ".join(obj.metadata.name for obj in objects[:_MOST_NAMES])
    if len(objects) > _MOST_NAMES:
        shown += f", ... ({len(objects) - _MOST_NAMES} more)"
    return f"* {kind.name if len(objects) == 1 else plural(kind.name)}: {shown}"
