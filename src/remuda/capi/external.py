"""Access to objects of providers by references without an API version.

Labels of a kind's definition name the versions that follow each contract; the newest contract wins, and then its
highest version. Definitions are watched, so providers can be installed, upgraded or removed at any time. A kind is
watched from the first access to one of its objects: controllers that follow it (`Externals.follow`) are woken when an
object they refer to is created, changed or deleted. Reads come from the cache, which includes our own writes. Before
an irreversible action because of a missing object, use `fetch`, which asks the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from remuda.capi import contract, names, versions
from remuda.capi.contract import Json, ProviderObject
from remuda.capi.inflection import plural
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, NotFound, ignore_not_found
from remuda.kube.objects import Key, Kind, Object, OwnerReference
from remuda.runtime.caches import Caches, Informer
from remuda.runtime.controller import Controller
from remuda.runtime.outcome import Retryable

T = TypeVar("T", bound=Object)

DEFINITION = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", Object, namespaced=False
)

_NOT_COPIED = frozenset({names.CONVERSION_DATA, names.LAST_APPLIED})


class ProviderReference(Protocol):
    @property
    def api_group(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...


class Resolved(NamedTuple):
    """API target of a kind, and the contract version it follows."""

    target: Target
    contract: str


class UnknownKind(Retryable):
    """Kind without an installed definition, so no object of it can exist."""


class UnlabelledKind(Retryable):
    """Kind whose definition does not name its contract, so its objects cannot be read."""


def definition_name(group: str, kind: str) -> str:
    return f"{plural(kind).lower()}.{group}"


def resolve(group: str, kind: str, labels: Mapping[str, str]) -> Resolved:
    """Return the version by the labels of the kind's definition. Raise UnlabelledKind."""
    for known in names.CONTRACTS:
        served = [version for version in labels.get(names.contract_label(known), "").split("_") if version]
        if served:
            return _resolved(group, kind, max(served, key=versions.api), known)
    wanted = " or ".join(names.contract_label(known) for known in names.CONTRACTS)
    raise UnlabelledKind(
        f"CustomResourceDefinition {definition_name(group, kind)} has no label {wanted}: "
        "install a version of its provider that follows one of these contracts"
    )


@lru_cache(maxsize=256)
def _resolved(group: str, kind: str, version: str, known: str) -> Resolved:
    return Resolved(Target(f"{group}/{version}", plural(kind).lower()), known)


def cloned(
    template: ProviderObject,
    target: Target,
    *,
    name: str,
    owner: OwnerReference,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Json:
    """Return a new object from a template. Labels and annotations of the caller override those of the template."""
    kept = {key: value for key, value in contract.template_annotations(template).items() if key not in _NOT_COPIED}
    return {
        "apiVersion": target.api_version,
        "kind": contract.base_kind(template.kind),
        "metadata": {
            "name": name,
            "namespace": template.key.namespace,
            "labels": {**contract.template_labels(template), **labels},
            "annotations": {
                **kept,
                **annotations,
                names.CLONED_FROM_NAME: template.key.name,
                names.CLONED_FROM_GROUP_KIND: template.group_kind,
            },
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": contract.template_spec(template),
    }


class _Follower(NamedTuple):
    controller: Controller
    informer: Informer[Any]
    index_name: str

    def keys_of(self, value: str) -> list[Key]:
        return self.informer.keys(self.index_name, value)


class Externals:
    """Access to providers' objects, shared by all controllers of a manager."""

    def __init__(self, caches: Caches, client: Client) -> None:
        self._caches = caches
        self._client = client
        self._definitions = caches.of(DEFINITION, metadata_only=True)
        self._followers: list[_Follower] = []
        self._wired: dict[Target, Informer[Any]] = {}

    def follow(
        self, controller: Controller, kind: Kind[T], references: Callable[[T], Iterable[ProviderReference | None]]
    ) -> None:
        """Requeue a controller's objects when an object they refer to changes. Call it before the caches start."""

        def places(obj: T) -> Iterable[str]:
            for ref in references(obj):
                if ref is not None and ref.api_group and ref.kind:
                    yield definition_name(ref.api_group, ref.kind)
                    yield _place(ref.api_group, ref.kind, obj.metadata.namespace, ref.name)

        informer = self._caches.of(kind)
        follower = _Follower(controller, informer, f"provider objects for {controller.name}")
        informer.index(follower.index_name, places)
        self._followers.append(follower)
        controller.watch(
            self._definitions, lambda definition: follower.keys_of(definition.metadata.name), "definitions"
        )

    def resolve(self, group: str, kind: str) -> Resolved:
        """Return the target of a kind. Raise UnknownKind, UnlabelledKind."""
        name = definition_name(group, kind)
        definition = self._definitions.get("", name)
        if definition is None:
            raise UnknownKind(f"there is no CustomResourceDefinition {name}: is the provider of {kind} installed?")
        return resolve(group, kind, definition.metadata.labels)

    async def get(self, ref: ProviderReference, namespace: str) -> ProviderObject | None:
        """Return the object from the cache. Raise UnknownKind, UnlabelledKind, Retryable."""
        resolved = self.resolve(ref.api_group, ref.kind)
        informer = await self._informer(resolved.target)
        value = informer.raw(namespace, ref.name)
        return None if value is None else _read(value, *resolved)

    async def fetch(self, ref: ProviderReference, namespace: str) -> ProviderObject | None:
        """Return the object from the API server; None also if its kind does not exist."""
        try:
            resolved = self.resolve(ref.api_group, ref.kind)
            value = await self._client.get(resolved.target, namespace, ref.name)
        except UnknownKind:
            return None
        except NotFound:
            return None
        return ProviderObject(value, *resolved)

    async def clone(
        self,
        template: ProviderObject,
        *,
        name: str,
        owner: OwnerReference,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
    ) -> ProviderObject:
        """Create an object from a template, or find an earlier one. Raises Retryable if it has another owner."""
        resolved = self.resolve(template.target.group, contract.base_kind(template.kind))
        obj = cloned(template, resolved.target, name=name, owner=owner, labels=labels, annotations=annotations)
        await self._informer(resolved.target)
        try:
            value = await self._client.create(resolved.target, template.key.namespace, obj)
        except AlreadyExists:
            value = await self._client.get(resolved.target, template.key.namespace, name)
        made = ProviderObject(value, *resolved)
        if owner.uid not in {present.uid for present in made.metadata.owner_references}:
            raise Retryable(f"{made} already exists and does not belong to {owner.kind} {owner.name}")
        return made

    async def delete(self, obj: ProviderObject) -> bool:
        """Request the deletion unless it was requested before; return whether a request was sent."""
        if obj.deleting:
            return False
        with ignore_not_found():
            await self._client.delete(obj.target, *obj.key, uid=obj.metadata.uid)
        return True

    async def _informer(self, target: Target) -> Informer[Any]:
        informer = self._wired.get(target)
        if informer is None or informer is not self._caches.known(target):  # a kind may be deleted and installed again
            informer = await self._caches.ensure(target)
            for follower in self._followers:
                follower.controller.watch(informer, self._wake(follower), "provider objects")
            self._wired[target] = informer
        return informer

    @staticmethod
    def _wake(follower: _Follower) -> Callable[[Object], Iterable[Key]]:
        def keys(obj: Object) -> Iterable[Key]:
            group = obj.api_version.rpartition("/")[0]
            return follower.keys_of(_place(group, obj.kind, obj.metadata.namespace, obj.metadata.name))

        return keys


@lru_cache(maxsize=2048)
def _read(value: bytes, target: Target, contract: str) -> ProviderObject:
    """Decode an object. The result is cached: several controllers read each version of an object, and most objects do
    not change."""
    return ProviderObject(value, target, contract)


def _place(group: str, kind: str, namespace: str, name: str) -> str:
    return f"{kind}.{group}/{namespace}/{name}"
