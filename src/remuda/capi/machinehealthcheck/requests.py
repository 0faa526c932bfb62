"""Requests to an external remediation: one object per unhealthy Machine, named after it and owned by it.

The kind is the template's without its last word. Requests are watched once there is a template, so one that vanishes is
noticed, and finding none costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.external import cloned
from remuda.capi.inflection import plural
from remuda.capi.machinehealthcheck.marks import Request, request_failed, requested, template_not_found
from remuda.capi.types import MACHINE, Machine
from remuda.capi.types.shared import TemplateReference
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError, ignore_not_found
from remuda.kube.objects import Key, Object, OwnerReference
from remuda.runtime.caches import Caches
from remuda.runtime.controller import Controller
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

ASK = step("machinehealthcheck.request-remediation", "creates the external remediation request of an unhealthy Machine")
WITHDRAW = step(
    "machinehealthcheck.withdraw-remediation", "deletes the remediation request of a Machine that has recovered"
)


class Requests:
    """Remediation requests. `to_keys` returns the health checks of a request, which the controller requeues."""

    def __init__(
        self, client: Client, caches: Caches, controller: Controller, to_keys: Callable[[Object], Iterable[Key]]
    ) -> None:
        self._client = client
        self._caches = caches
        self._controller = controller
        self._to_keys = to_keys

    async def ask(self, machine: Machine, template: TemplateReference) -> Request:
        """Create the request unless it exists; return its state."""
        kind = contract.base_kind(template.kind)
        try:
            present = await self._present(machine, template)
        except Retryable as error:
            return request_failed(str(error))
        if present is not None:
            return _judge(machine, kind, present)
        try:
            source = await self._client.get(_target(template, template.kind), machine.metadata.namespace, template.name)
        except StatusError as error:
            return template_not_found(f"cannot read {template.kind} {template.name}: {error}")
        try:
            async with ASK:
                await self._create(machine, template, source)
        except StatusError as error:
            return request_failed(f"cannot create {kind} {machine.metadata.name}: {error}")
        return requested(kind, machine.metadata.name)

    async def _create(self, machine: Machine, template: TemplateReference, source: bytes) -> None:
        target = _target(template, contract.base_kind(template.kind))
        obj = cloned(
            ProviderObject(source, _target(template, template.kind), contract.V1BETA2),
            target,
            name=machine.metadata.name,
            owner=_owner(machine),
            labels={names.CLUSTER_NAME: machine.spec.cluster_name},
            annotations={},
        )
        await self._client.create(target, machine.metadata.namespace, obj)

    async def withdraw(self, machine: Machine, template: TemplateReference) -> None:
        """Delete the request, unless it is being deleted already."""
        present = await self._present(machine, template)
        if present is None or present.metadata.deleting:
            return
        target = _target(template, contract.base_kind(template.kind))
        with ignore_not_found():
            async with WITHDRAW:
                await self._client.delete(target, *present.key, uid=present.metadata.uid)

    async def _present(self, machine: Machine, template: TemplateReference) -> Object | None:
        """Raises Retryable while requests of that kind cannot be listed: most often, there is no such kind."""
        informer = await self._caches.ensure(_target(template, contract.base_kind(template.kind)))
        self._controller.watch(informer, self._to_keys, "remediation requests")
        found: Object | None = informer.get(*machine.key)
        return found


def _judge(machine: Machine, kind: str, present: Object) -> Request:
    if any(owner.uid == machine.metadata.uid for owner in present.metadata.owner_references):
        return requested(kind, machine.metadata.name)
    return request_failed(f"{kind} {machine.metadata.name} exists already and does not belong to this Machine")


def _owner(machine: Machine) -> OwnerReference:
    return OwnerReference(
        api_version=MACHINE.api_version, kind=MACHINE.name, name=machine.metadata.name, uid=machine.metadata.uid
    )


def _target(template: TemplateReference, kind: str) -> Target:
    return Target(template.api_version, plural(kind).lower())
