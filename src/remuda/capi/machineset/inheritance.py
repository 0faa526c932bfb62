"""In-place propagation of a changed template to Machines and the objects created for them, without replacing them.

Labels and annotations are copied to all three objects, the other in-place fields to the Machine. A Machine that is
being deleted only gets fields that may help its deletion. Nothing is written if nothing differs.
"""

from __future__ import annotations

from typing import NamedTuple

from remuda.capi import contract, names, propagation
from remuda.capi.contract import ProviderObject
from remuda.capi.machineset.scope import MachineSetScope, machine_labels
from remuda.capi.pools import PoolDependencies
from remuda.capi.propagation import BY_SET, BY_SET_METADATA
from remuda.capi.templates import Templates
from remuda.capi.types import MACHINE, Machine
from remuda.runtime.draft import Draft
from remuda.runtime.steps import step

UPDATE_MACHINE = step("machineset.update-machine", "copies in-place changes of the template to a Machine")
UPDATE_PROVIDER_OBJECT = step(
    "machineset.update-provider-object", "copies labels and annotations to a Machine's objects"
)

_MANAGERS = (BY_SET, BY_SET_METADATA)
# Our field manager sets these when it clones a template. No template lists them, so they would look stale.
_PROVENANCE = (names.CLONED_FROM_NAME, names.CLONED_FROM_GROUP_KIND)


class ProviderObjects(NamedTuple):
    """Provider objects of one Machine, as far as they exist."""

    bootstrap: ProviderObject | None
    infrastructure: ProviderObject | None


async def propagate(world: PoolDependencies, scope: MachineSetScope, templates: Templates | None) -> None:
    """Copy in-place changes to all Machines of the set and to their objects. Without templates, labels of the templates
    cannot be told from labels of the set.

    What was found as it should be is not looked at again until it, the set or a template has changed: a set of a
    thousand Machines runs whenever one of them does."""
    key = scope.machine_set.key
    before, seen = world.propagated.get(key, {}), {}
    for machine in scope.machines:
        objects = await _provider_objects(world, scope, machine)
        mark = _mark(scope, machine, objects, templates)
        if before.get(machine.metadata.uid) != mark:
            await _to_machine(world, scope, machine)
            if not machine.metadata.deleting:
                await _to_provider_objects(world, scope, machine, objects, templates)
        seen[machine.metadata.uid] = mark
    world.propagated[key] = seen


async def _provider_objects(world: PoolDependencies, scope: MachineSetScope, machine: Machine) -> ProviderObjects:
    if machine.metadata.deleting:
        return ProviderObjects(None, None)  # they go with it
    config, server = machine.spec.bootstrap.config_ref, machine.spec.infrastructure_ref
    bootstrap = await world.externals.get(config, scope.namespace) if config is not None else None
    return ProviderObjects(bootstrap, await world.externals.get(server, scope.namespace))


def _mark(scope: MachineSetScope, machine: Machine, objects: ProviderObjects, templates: Templates | None) -> object:
    """Everything that decides what is handed down to one Machine."""
    found = (*objects, *((templates.bootstrap, templates.infrastructure) if templates else ()))
    versions = tuple(obj.metadata.resource_version if obj is not None else "" for obj in found)
    return scope.machine_set.metadata.generation, machine.metadata.resource_version, versions


async def _to_machine(world: PoolDependencies, scope: MachineSetScope, machine: Machine) -> None:
    value = world.machines.raw(*machine.key)
    if value is None:
        return
    draft = Draft(MACHINE.target, value)
    if not machine.metadata.deleting:
        labels = machine_labels(scope.machine_set)
        annotations = scope.machine_set.spec.template.metadata.annotations
        stale = await world.ownership.stale(draft, labels, annotations, _MANAGERS)
        propagation.propagate(draft, labels, annotations, stale)
    propagation.propagate_fields(scope.template["spec"], draft.spec)
    if any(draft.patches()):
        async with UPDATE_MACHINE:
            await propagation.send(world.client, draft, BY_SET)


async def _to_provider_objects(
    world: PoolDependencies,
    scope: MachineSetScope,
    machine: Machine,
    objects: ProviderObjects,
    templates: Templates | None,
) -> None:
    bootstrap, server = (templates.bootstrap, templates.infrastructure) if templates else (None, None)
    await _to_provider_object(world, scope, machine, objects.bootstrap, bootstrap)
    await _to_provider_object(world, scope, machine, objects.infrastructure, server)


async def _to_provider_object(
    world: PoolDependencies,
    scope: MachineSetScope,
    machine: Machine,
    obj: ProviderObject | None,
    template: ProviderObject | None,
) -> None:
    owner = obj.metadata.controller if obj is not None else None
    if obj is None or obj.deleting or (owner is not None and owner.uid != machine.metadata.uid):
        return
    draft = obj.draft()
    labels, annotations = machine_labels(scope.machine_set), scope.machine_set.spec.template.metadata.annotations
    own = contract.template_labels(template) if template else obj.metadata.labels
    own_annotations = contract.template_annotations(template) if template else obj.metadata.annotations
    keep = {*own, *own_annotations, *_PROVENANCE}
    stale = await world.ownership.stale(draft, labels, annotations, _MANAGERS, keep=keep)
    propagation.propagate(draft, labels, annotations, stale)
    if any(draft.patches()):
        async with UPDATE_PROVIDER_OBJECT:
            await propagation.send(world.client, draft, BY_SET)
