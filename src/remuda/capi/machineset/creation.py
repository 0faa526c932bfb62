"""Creation of Machines: the Machine first, then the provider objects it refers to, which it owns from the start.

The references are written before their objects exist, with the Machine's own name. So a later reconcile can complete
what a crash interrupted (`complete`), and no object is ever without an owner. Only objects that never existed are
created: a server that was provisioned once is not replaced under its Machine.

A set that needs many Machines creates one, then two, then four: if creation fails, only one attempt is wasted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import msgspec

from remuda.capi import contract, machine_names, names
from remuda.capi.cluster_index import controlled_by
from remuda.capi.contract import ProviderObject
from remuda.capi.external import cloned
from remuda.capi.machineset.scope import Json, MachineSetScope, machine_labels
from remuda.capi.pools import PoolDependencies
from remuda.capi.propagation import BY_SET
from remuda.capi.templates import Templates
from remuda.capi.types import MACHINE, MACHINE_SET, Machine, Reference
from remuda.kube.errors import AlreadyExists
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import Step, step

CREATE_MACHINE = step("machineset.create-machine", "creates the Machine of one replica")
CREATE_BOOTSTRAP = step("machineset.create-bootstrap", "creates a Machine's bootstrap object from its template")
CREATE_INFRASTRUCTURE = step("machineset.create-infrastructure", "creates a Machine's server object from its template")

MOST_IN_ONE_RUN = 64  # then the set is requeued, so that others get their turn
_MOST_AT_ONCE = 16


async def make(world: PoolDependencies, scope: MachineSetScope, templates: Templates, count: int) -> list[str]:
    """Create up to `count` Machines and return their names. Stops at the first failure."""
    made: list[str] = []
    left, batch = min(count, MOST_IN_ONE_RUN), 1
    while left:
        size = min(batch, left)
        made += await together([_make(world, scope, templates) for _ in range(size)])
        left, batch = left - size, min(2 * batch, _MOST_AT_ONCE)
    return made


async def together(acts: list[Coroutine[Any, Any, str]]) -> list[str]:
    """Results of all; if some fail, the others still come to their end before the first failure is raised."""
    results = await asyncio.gather(*acts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, str)]


async def _make(world: PoolDependencies, scope: MachineSetScope, templates: Templates) -> str:
    naming_template = scope.machine_set.spec.machine_naming.template or machine_names.DEFAULT
    name = machine_names.render(
        naming_template,
        cluster=scope.machine_set.spec.cluster_name,
        machine_set=scope.machine_set.metadata.name,
        random=machine_names.random_part(),
    )
    async with CREATE_MACHINE:
        value = await world.client.create(
            MACHINE.target, scope.namespace, machine(scope, templates, name), field_manager=BY_SET
        )
    await complete(world, scope, templates, MACHINE.decode(value))
    return name


def machine(scope: MachineSetScope, templates: Templates, name: str) -> Json:
    """One Machine as it is sent: the template, with references to objects of its own instead of templates."""
    template = scope.template
    spec = msgspec.json.decode(msgspec.json.encode(template["spec"]))
    spec["infrastructureRef"] = _reference(templates.infrastructure, name)
    if templates.bootstrap is not None:
        spec["bootstrap"]["configRef"] = _reference(templates.bootstrap, name)
    metadata: Json = {
        "name": name,
        "namespace": scope.namespace,
        "labels": machine_labels(scope.machine_set),
        # From the start: a Machine deleted before its first reconcile must not leave a server behind.
        "finalizers": [names.MACHINE_FINALIZER],
        "ownerReferences": [msgspec.to_builtins(controlled_by(MACHINE_SET, scope.machine_set.metadata))],
    }
    if annotations := (template.get("metadata") or {}).get("annotations"):
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": MACHINE.api_version, "kind": MACHINE.name, "metadata": metadata, "spec": spec}


def _reference(template: ProviderObject, name: str) -> Json:
    return {"apiGroup": template.target.group, "kind": contract.base_kind(template.kind), "name": name}


def is_incomplete(machine: Machine) -> bool:
    """Return whether the objects that a Machine of a MachineSet refers to may be missing: none has reported yet."""
    if machine.metadata.deleting or not _named_alike(machine):
        return False
    return _lacks_server(machine) or _lacks_bootstrap(machine)


def _named_alike(machine: Machine) -> bool:
    # A reference with another name was not written here: its object is not ours to create.
    refs = (machine.spec.infrastructure_ref, machine.spec.bootstrap.config_ref)
    return all(ref is None or ref.name == machine.metadata.name for ref in refs)


def _lacks_server(machine: Machine) -> bool:
    return not (machine.spec.provider_id or machine.status.initialization.infrastructure_provisioned)


def _lacks_bootstrap(machine: Machine) -> bool:
    given = machine.spec.bootstrap
    return given.config_ref is not None and not given.data_secret_name


async def complete(world: PoolDependencies, scope: MachineSetScope, templates: Templates, machine: Machine) -> None:
    """Create the objects that a Machine refers to, if they do not exist. Raises Retryable if that is impossible."""
    config = machine.spec.bootstrap.config_ref
    if config is not None and templates.bootstrap is not None and _lacks_bootstrap(machine):
        await _complete(world, scope, machine, config, templates.bootstrap, CREATE_BOOTSTRAP)
    if _lacks_server(machine):
        ref = machine.spec.infrastructure_ref
        await _complete(world, scope, machine, ref, templates.infrastructure, CREATE_INFRASTRUCTURE)


async def _complete(
    world: PoolDependencies,
    scope: MachineSetScope,
    machine: Machine,
    ref: Reference,
    template: ProviderObject,
    act: Step,
) -> None:
    if await world.externals.get(ref, scope.namespace) is not None:
        return
    if ref.kind != contract.base_kind(template.kind):
        raise Retryable(
            f"{ref} does not exist, and {template} creates objects of another kind: delete the Machine to replace it"
        )
    target = world.externals.resolve(ref.api_group, ref.kind).target
    obj = cloned(
        template,
        target,
        name=ref.name,
        owner=controlled_by(MACHINE, machine.metadata),
        labels=machine_labels(scope.machine_set),
        annotations=scope.machine_set.spec.template.metadata.annotations,
    )
    # The name follows from the Machine's, so an existing object was created by an interrupted reconcile.
    with contextlib.suppress(AlreadyExists):
        async with act:
            await world.client.create(target, scope.namespace, obj, field_manager=BY_SET)
