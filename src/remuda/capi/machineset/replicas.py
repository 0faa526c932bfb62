"""Scaling of a MachineSet to its desired size, and replacement of Machines that failed their health check.

Machines that are being deleted count until they are deleted, so a set never exceeds its desired size, and a replacement
is created when there is room for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.capi import names, templates
from remuda.capi.conditions import SCALING_UP_BLOCKED
from remuda.capi.external import UnknownKind, UnlabelledKind
from remuda.capi.machineset import creation, members, preflight, remediation
from remuda.capi.machineset.scope import MachineSetScope
from remuda.capi.pools import PoolDependencies
from remuda.capi.templates import MissingTemplate, Templates
from remuda.capi.types import MACHINE, Machine
from remuda.kube import conditions
from remuda.kube.errors import Conflict, StatusError, ignore_not_found
from remuda.kube.objects import Condition
from remuda.kube.quotas import Exceeded, find_exceeded
from remuda.runtime.draft import Draft, save
from remuda.runtime.outcome import Blocked, Requeue, Retryable
from remuda.runtime.steps import step

DELETE_MACHINE = step("machineset.delete-machine", "deletes one Machine")
MARK_MACHINE = step("machineset.mark-machine", "writes the progress of its remediation to a Machine")

PREFLIGHT_SECONDS = 15.0  # until failed checks are made again, though nothing that is watched has changed
QUOTA_SECONDS = 60.0


async def find_templates(world: PoolDependencies, scope: MachineSetScope) -> Templates | None:
    """Return the templates; None if one is missing, which blocks only sets that need more Machines."""
    try:
        return await templates.find(world.externals, scope.machine_set.spec.template.spec, scope.namespace)
    except (MissingTemplate, UnknownKind, UnlabelledKind) as error:
        scope.obstacles.append(str(error))
        return None


async def check(world: PoolDependencies, scope: MachineSetScope, found: Templates | None) -> None:
    """Record the reasons why no Machine may be created now."""
    annotations = scope.machine_set.metadata.annotations
    if annotations.get(names.DISABLE_MACHINE_CREATE) == "true":
        scope.obstacles.append(f"the {names.DISABLE_MACHINE_CREATE} annotation is set")
    if problem := members.mismatch(scope.machine_set):
        scope.obstacles.append(problem)
    reference = scope.cluster.spec.control_plane_ref if scope.cluster is not None else None
    if reference is None:
        return
    control_plane = await world.externals.get(reference, scope.namespace)
    if control_plane is None:
        scope.obstacles.append(f"{reference.kind} {scope.namespace}/{reference.name} does not exist")
        return
    of_template = found.bootstrap.metadata.annotations if found is not None and found.bootstrap is not None else {}
    skip = preflight.skipped(annotations, of_template)
    scope.failed_checks += preflight.complaints(scope.machine_set, preflight.facts(control_plane), skip)


async def resize(world: PoolDependencies, scope: MachineSetScope, found: Templates | None) -> None:
    wanted = scope.machine_set.spec.replicas
    if wanted is None:
        return
    surplus = len(scope.machines) - wanted
    if surplus < 0:
        await _grow(world, scope, found, -surplus)
    elif surplus > 0 and not members.mismatch(scope.machine_set):
        await _shrink(world, scope, surplus)


async def _grow(world: PoolDependencies, scope: MachineSetScope, found: Templates | None, count: int) -> None:
    if scope.obstacles or scope.failed_checks or found is None:
        why = "; ".join([*scope.obstacles, *scope.failed_checks])
        place = f"MachineSet {scope.machine_set.key}"
        scope.waits.append(Blocked(SCALING_UP_BLOCKED, place, why, PREFLIGHT_SECONDS))
        return
    try:
        made = await creation.make(world, scope, found, count)
    except Conflict:
        raise  # another writer was faster: the next run decides anew
    except (StatusError, Retryable, ValueError) as error:
        if (exceeded := find_exceeded(str(error))) is not None:
            _wait_for_quota(world, scope, exceeded)
            return
        scope.obstacles.append(f"cannot create Machines: {error}")
        world.events.warning(scope.machine_set, "FailedCreate", f"Failed to create a Machine: {error}")
        raise Retryable(f"cannot create Machines: {error}") from error
    world.events.normal(scope.machine_set, "SuccessfulCreate", f"Created {_named(made)}")
    if len(made) < count:
        scope.waits.append(Requeue(0.0, f"{count - len(made)} more Machines are to be created"))


def _wait_for_quota(world: PoolDependencies, scope: MachineSetScope, exceeded: Exceeded) -> None:
    """Retry seldom: an administrator must raise the quota or delete objects, and neither is watched. The name of the
    refused Machine is left out, which is another one each time and would make each retry a change of status."""
    scope.obstacles.append(str(exceeded))
    world.events.warning(scope.machine_set, "FailedCreate", f"Failed to create a Machine: {exceeded}")
    place = f"MachineSet {scope.machine_set.key}"
    scope.waits.append(Blocked("QuotaExceeded", place, str(exceeded), QUOTA_SECONDS))


async def _shrink(world: PoolDependencies, scope: MachineSetScope, count: int) -> None:
    """Delete surplus Machines one after the other: if a deletion fails, the later ones are not started."""
    chosen = members.choose_victims(scope.machines, count, scope.machine_set.spec.deletion.order)
    deleted = [await _delete(world, machine) for machine in chosen if not machine.metadata.deleting]
    if deleted:
        world.events.normal(scope.machine_set, "SuccessfulDelete", f"Deleted {_named(deleted)}")


async def _delete(world: PoolDependencies, machine: Machine) -> str:
    with ignore_not_found():
        async with DELETE_MACHINE:
            await world.client.delete(MACHINE.target, *machine.key, uid=machine.metadata.uid)
    return machine.metadata.name


async def remediate(world: PoolDependencies, scope: MachineSetScope) -> None:
    remedy = remediation.plan(
        scope.machines,
        limit=remediation.limit_of(scope.deployment),
        outdated=_is_outdated(scope),
        obstacles=[*scope.obstacles, *scope.failed_checks],
    )
    # All conditions before the first deletion: after a crash they show which deletions were announced, and these
    # go first (`remediation.plan`).
    for machine in scope.machines:
        if machine.metadata.name in remedy.conditions:
            await _mark(world, machine, remedy.conditions[machine.metadata.name])
    for machine in remedy.delete:
        await _delete(world, machine)
        # The Machine's own conditions go with it; this event is what remains to be read afterwards.
        why = _complaints(machine)
        world.events.warning(scope.machine_set, "MachineRemediated", f"Deleted Machine {machine.metadata.name}: {why}")


def needs_remediation(scope: MachineSetScope) -> bool:
    return any(conditions.find(m.status.conditions, remediation.OWNER_REMEDIATED) for m in scope.machines)


def _is_outdated(scope: MachineSetScope) -> bool:
    """Return whether the MachineDeployment has another revision, so that the rollout replaces these Machines anyway."""
    if scope.deployment is None:
        return False
    mine = scope.machine_set.metadata.annotations.get(names.REVISION)
    return mine != scope.deployment.metadata.annotations.get(names.REVISION)


async def _mark(world: PoolDependencies, machine: Machine, mark: Condition | None) -> None:
    value = world.machines.raw(*machine.key)
    if value is None:
        return
    draft = Draft(MACHINE.target, value)
    generation = machine.metadata.generation
    if mark is None:
        conditions.put(draft.status, (), generation=generation, remove=(remediation.OWNER_REMEDIATED,))
    else:
        conditions.put(draft.status, (mark,), generation=generation)
    await save(world.client, draft, MARK_MACHINE)


def _complaints(machine: Machine) -> str:
    """Return the failures of a Machine, as reported by its conditions."""
    found = (
        conditions.find(machine.status.conditions, type)
        for type in ("HealthCheckSucceeded", "BootstrapConfigReady", "InfrastructureReady")
    )
    reports = [f"{one.type}: {one.message or one.reason}" for one in found if one is not None and one.status == "False"]
    return "; ".join(reports)


def _named(machines: Sequence[str]) -> str:
    shown = ", ".join(machines[:3]) + (f" and {len(machines) - 3} more" if len(machines) > 3 else "")
    return f"{'Machine' if len(machines) == 1 else 'Machines'} {shown}"


async def remove_all(world: PoolDependencies, scope: MachineSetScope) -> None:
    await creation.together([_delete(world, machine) for machine in scope.machines if not machine.metadata.deleting])
