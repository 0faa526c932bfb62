"""One step of a MachineDeployment: adopt MachineSets, plan and carry out the next sizes, delete obsolete sets.

`rollout` makes the plan. A set is created with its final size, and a set that changes is patched once, with all its
changes. A patch carries the resource version that the plan was based on: if the set has changed since, the rest of the
plan is dropped, and the next reconcile makes a new one.
"""

from __future__ import annotations

from remuda.capi import names, revisions
from remuda.capi.cluster_index import controlled_by
from remuda.capi.machinedeployment import rollout, sets
from remuda.capi.machinedeployment.rollout import MachineSetCounts, RolloutLimits, RolloutPlan
from remuda.capi.machinedeployment.scope import MachineDeploymentScope
from remuda.capi.pools import BY_CONTROLLER, PoolDependencies, uncontrolled_key
from remuda.capi.propagation import BY_DEPLOYMENT, Keys, send
from remuda.capi.types import MACHINE_DEPLOYMENT, MACHINE_SET, MachineDeployment, MachineSet
from remuda.capi.types.shared import selective_selector
from remuda.kube import errors
from remuda.kube.errors import ignore_not_found
from remuda.kube.selectors import LabelSelector
from remuda.runtime.draft import Draft, save
from remuda.runtime.outcome import Blocked
from remuda.runtime.steps import step

ADOPT_SET = step("machinedeployment.adopt", "makes the MachineDeployment the controller of a matching MachineSet")
CREATE_SET = step("machinedeployment.create-set", "creates the MachineSet of a new revision")
UPDATE_SET = step(
    "machinedeployment.update-set", "resizes a MachineSet, or copies in-place changes of the template to it"
)
DELETE_SET = step("machinedeployment.delete-set", "deletes a MachineSet that is no longer needed")


def sets_of(world: PoolDependencies, deployment: MachineDeployment) -> list[MachineSet]:
    return world.sets.select(BY_CONTROLLER, deployment.metadata.uid)


def selector_of(deployment: MachineDeployment) -> LabelSelector | None:
    """Return the selector; None if it also selects Machines of others, or does not match the template's labels."""
    selector = selective_selector(deployment.spec.selector)
    return selector if selector is not None and selector.matches(sets.labels(deployment, "")) else None


async def adopt(world: PoolDependencies, scope: MachineDeploymentScope, selector: LabelSelector) -> bool:
    """Adopt matching sets without a controller; return whether there were any."""
    orphans = [
        one
        for one in world.sets.select(BY_CONTROLLER, uncontrolled_key(scope.namespace))
        if not one.metadata.deleting
        and one.spec.cluster_name == scope.deployment.spec.cluster_name
        and selector.matches(one.metadata.labels)
    ]
    for one in orphans:
        draft = _draft(world, one)
        draft.set_owner(controlled_by(MACHINE_DEPLOYMENT, scope.deployment.metadata))
        draft.set_label(names.DEPLOYMENT_NAME, names.label_value(scope.deployment.metadata.name))
        await save(world.client, draft, ADOPT_SET)
        world.events.normal(scope.deployment, "SuccessfulAdopt", f"Adopted MachineSet {one.metadata.name}")
    return bool(orphans)


def plan(scope: MachineDeploymentScope, limits: RolloutLimits) -> RolloutPlan:
    new, old = scope.sets.new, [counts(one) for one in scope.sets.old]
    present = counts(new) if new is not None else MachineSetCounts("", 0)
    if scope.deployment.spec.paused:
        newest_first = [*([present] if new is not None else []), *reversed(old)]
        return rollout.proportional(newest_first, limits)
    if new is None and scope.obstacles:
        return RolloutPlan({one.name: one.wanted for one in (present, *old)}, "; ".join(scope.obstacles), held=True)
    if scope.deployment.spec.rollout.strategy.type == "OnDelete":
        return rollout.on_delete(present, old, limits)
    return rollout.rolling(present, old, limits)


def counts(one: MachineSet) -> MachineSetCounts:
    status, metadata = one.status, one.metadata
    existing = status.replicas or 0
    if metadata.deleting:  # all its Machines are deleted, whatever its spec is
        return MachineSetCounts(metadata.name, 0, existing)
    sized_for = metadata.annotations.get(names.DESIRED_REPLICAS, "")
    return MachineSetCounts(
        metadata.name,
        one.spec.replicas or 0,
        existing,
        status.available_replicas or 0,
        status.observed_generation == metadata.generation,
        int(sized_for) if sized_for.isascii() and sized_for.isdigit() else None,
    )


async def carry_out(
    world: PoolDependencies, scope: MachineDeploymentScope, plan: RolloutPlan, limits: RolloutLimits, number: int
) -> bool:
    """Write the differences, the new set first: its growth never depends on the others shrinking in the same plan.

    Return whether anything was written: then the sets will report a new status.
    """
    resized, changed = None if plan.held else limits, False
    if scope.sets.new is not None:
        draft = _draft(world, scope.sets.new)
        sets.renew(draft, scope.deployment, scope.draft.base, number, await _stale(world, scope, draft))
        changed = await _update(world, scope, draft, plan, resized)
    elif "" in plan.sizes and not plan.held:
        await _create(world, scope, plan.sizes[""], limits, number)
        changed = True
    on_delete = scope.deployment.spec.rollout.strategy.type == "OnDelete"
    for one in scope.sets.old:
        if not one.metadata.deleting:
            draft = _draft(world, one)
            sets.retire(draft, scope.draft.base, on_delete=on_delete)
            changed = await _update(world, scope, draft, plan, resized) or changed
    return changed


async def _stale(world: PoolDependencies, scope: MachineDeploymentScope, draft: Draft) -> Keys:
    """Return the labels and annotations that were propagated to the set before and are no longer desired."""
    labels, annotations = sets.labels(scope.deployment, ""), sets.copied_annotations(scope.deployment)
    return await world.ownership.stale(draft, labels, annotations, (BY_DEPLOYMENT,), keep=sets.BOOKKEEPING)


async def _update(
    world: PoolDependencies,
    scope: MachineDeploymentScope,
    draft: Draft,
    plan: RolloutPlan,
    limits: RolloutLimits | None,
) -> bool:
    name, before = draft.key.name, draft.base["spec"].get("replicas") or 0
    size = plan.sizes[name]
    if limits is not None:
        sets.resize(draft, size, limits)
    if not any(draft.patches()):
        return False
    async with UPDATE_SET:
        await send(world.client, draft, BY_DEPLOYMENT)
    if size != before:
        direction = "up" if size > before else "down"
        text = f"Scaled {direction} MachineSet {name}: {before} -> {size}"
        world.events.normal(scope.deployment, "SuccessfulScale", text)
    return True


async def _create(
    world: PoolDependencies, scope: MachineDeploymentScope, size: int, limits: RolloutLimits, number: int
) -> None:
    identity = revisions.identify(scope.deployment, lambda name: _is_taken(world, scope, name), scope.now)
    obj = sets.made(scope.deployment, scope.draft.base, identity, size, limits, number)
    async with CREATE_SET:
        await world.client.create(MACHINE_SET.target, scope.namespace, obj, field_manager=BY_DEPLOYMENT)
    world.events.normal(scope.deployment, "SuccessfulCreate", f"Created MachineSet {identity.name}")


def _is_taken(world: PoolDependencies, scope: MachineDeploymentScope, name: str) -> bool:
    return world.sets.raw(scope.namespace, name) is not None


async def clear(world: PoolDependencies, scope: MachineDeploymentScope, limits: RolloutLimits) -> None:
    """Delete empty sets of earlier revisions once all replicas of the current revision are available."""
    new = counts(scope.sets.new) if scope.sets.new is not None else None
    if new is None or not new.reported or not (new.wanted == new.available == limits.replicas):
        return
    for one in scope.sets.old:
        seen = counts(one)
        if seen.reported and not seen.held and not one.metadata.deleting:
            await _delete(world, one)


async def remove_all(world: PoolDependencies, scope: MachineDeploymentScope) -> None:
    for one in scope.all_sets:
        if not one.metadata.deleting:
            await _delete(world, one)
    for one in scope.all_sets:
        place = f"MachineSet {one.key}"
        scope.waits.append(Blocked("Deleting", place, f"{place} is being deleted"))
        return


async def _delete(world: PoolDependencies, one: MachineSet) -> None:
    metadata = one.metadata
    with ignore_not_found():
        async with DELETE_SET:
            # The version makes the deletion fail if the set was scaled up after the plan saw it empty.
            await world.client.delete(
                MACHINE_SET.target, *one.key, uid=metadata.uid, resource_version=metadata.resource_version
            )


def _draft(world: PoolDependencies, one: MachineSet) -> Draft:
    """Return a draft of the set as the plan saw it; raise a conflict if the set has changed since."""
    value = world.sets.raw(*one.key)
    if value is None or MACHINE_SET.decode(value).metadata.resource_version != one.metadata.resource_version:
        why = "the MachineSet has changed since the rollout was planned"
        raise errors.conflict(MACHINE_SET.group, MACHINE_SET.plural, one.metadata.name, why)
    return Draft(MACHINE_SET.target, value)
