"""Custom resources: serves the resources of CustomResourceDefinitions, and stops serving deleted ones.

A listener on the store updates the table of served resources with every committed definition, so an acknowledged change
is effective. When a definition is deleted, the watches of its objects end. A definition is served while its Established
condition is True. `upkeep.definitions` writes the conditions and deletes the objects of a definition that is being
deleted; no new objects can then be created.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remuda.apiserver.registry.crd_schemas import compiled, is_large, schema_errors
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.scale import scale_errors, scale_status_errors
from remuda.apiserver.registry.served import Served, Shape
from remuda.apiserver.resource import Behaviour, Obj, Path, Resource, ScalePaths, TableColumn
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import ObjectsDamaged, Revision, StoreEvent
from remuda.kube.cost import DEFINITION_LIMITS
from remuda.kube.schema import Schema

Names = Mapping[str, Any]  # names of a definition: plural, singular, shortNames, kind, listKind, categories

TABLE = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"

# Verbs in upstream's order, and those that discovery still lists while a definition is being deleted; all of them still
# work.
_DISCOVERED = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_DISCOVERED_AT_THE_END = ("delete", "deletecollection", "get", "list", "watch")
_CLOSED = "create not allowed while custom resource definition is terminating"


def with_schema_validation(resource: Resource) -> Resource:
    """Return the CRD kind with additional validation of the schemas inside its objects."""
    own = resource.behaviour.validate
    behaviour = replace(
        resource.behaviour,
        validate=lambda crd: own(crd) or schema_errors(crd),
        is_slow=is_large,
    )
    return replace(resource, behaviour=behaviour, limits=DEFINITION_LIMITS)


def is_established(crd: Obj) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


class Definitions:
    """Serves the resources of the stored definitions."""

    def __init__(self, store: Store, served: Served) -> None:
        self._served = served
        self._store = store
        self._resources: dict[str, list[Resource]] = {}
        self._specs: dict[str, Any] = {}
        served.unreadable = {one.name: ObjectsDamaged([one]) for one in store.damaged if one.table == TABLE}
        for entry in store.intact(TABLE):
            self._follow(entry.name, decode(entry.value), entry.revision)
        self._unsubscribe = store.subscribe(self._on_events)

    def close(self) -> None:
        self._unsubscribe()

    def _on_events(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            if event.entry.table != TABLE:
                continue
            if event.type == "DELETED":
                self._forget(event.entry.name)
                self._store.end_watches(event.entry.name)  # a definition has the same name as the table of its objects
            else:
                self._follow(event.entry.name, decode(event.entry.value), event.revision)

    def _follow(self, name: str, crd: Obj, revision: Revision) -> None:
        if not is_established(crd):
            self._forget(name)
            return
        terminating = "deletionTimestamp" in crd["metadata"]
        wanted = (crd["spec"], crd["status"].get("acceptedNames"), terminating)
        if self._specs.get(name) == wanted:
            return
        self._forget(name)
        self._specs[name] = wanted
        self._resources[name] = [
            self._serve(crd, version, revision) for version in _by_priority(crd) if version["served"]
        ]

    def _serve(self, crd: Obj, version: dict[str, Any], revision: Revision) -> Resource:
        schema, rules = compiled(version)
        resource = resource_of(crd, version, schema)
        self._served.add(resource, Shape(resource, Structural(schema, rules=rules), revision))
        return resource

    def _forget(self, name: str) -> None:
        self._specs.pop(name, None)
        for resource in self._resources.pop(name, ()):
            self._served.remove(resource)


def resource_of(crd: Obj, version: dict[str, Any], schema: Schema) -> Resource:
    spec = crd["spec"]
    names = (crd.get("status") or {}).get("acceptedNames") or spec["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    subresources = version.get("subresources") or {}
    scale = _scale_paths(subresources.get("scale"))
    ending = "deletionTimestamp" in crd["metadata"]
    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", "") or f"{names['kind']}List",
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        discovered_verbs=_DISCOVERED_AT_THE_END if ending else _DISCOVERED,
        closed=_CLOSED if ending else "",
        plain_finalizers=True,
        schema=schema,
        has_status="status" in subresources,
        scale=scale,
        columns=tuple(_column(c) for c in version.get("additionalPrinterColumns") or ()),
        selectable={f["jsonPath"].lstrip("."): _path(f["jsonPath"]) for f in version.get("selectableFields") or ()},
        behaviour=_behaviour(scale),
        custom=True,
        storage_version=storage,
        allow_unconditional_update=False,
        deprecation_warning=_deprecation(spec["group"], names["kind"], version),
    )


def _scale_paths(scale: dict[str, Any] | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=_path(scale["specReplicasPath"]),
        status_replicas=_path(scale["statusReplicasPath"]),
        selector=_path(scale.get("labelSelectorPath") or ""),
    )


def _behaviour(scale: ScalePaths | None) -> Behaviour:
    if scale is None:
        return Behaviour()
    return Behaviour(
        validate=lambda obj: scale_errors(scale, obj),
        validate_status=lambda new, old: scale_status_errors(scale, new),
    )


def _path(json_path: str) -> Path:
    return tuple(part for part in json_path.split(".") if part)


def _column(column: dict[str, Any]) -> TableColumn:
    return TableColumn(
        name=column["name"],
        type=column["type"],
        format=column.get("format", ""),
        description=column.get("description", ""),
        priority=column.get("priority", 0),
        path=column["jsonPath"],
    )


def _deprecation(group: str, kind: str, version: dict[str, Any]) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


_KUBE_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {None: 2, "beta": 1, "alpha": 0}


def version_priority(version: str) -> tuple[int, int, int, int, str]:
    """Return the sort key of a version, in order of preference: v2, v1, v1beta2, v1beta1, v1alpha1, then others by
    name.
    """
    match = _KUBE_VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, 0, version)
    major, stability, minor = match.groups()
    return (0, -_STABILITY[stability], -int(major), -int(minor or 0), "")


def _by_priority(crd: Obj) -> list[dict[str, Any]]:
    return sorted(crd["spec"]["versions"], key=lambda v: version_priority(v["name"]))


def stored_resource(crd: Obj) -> Resource:
    """Return the resource in its stored version, served or not, through which the objects of a definition
    are deleted.
    """
    storage = next(version for version in crd["spec"]["versions"] if version.get("storage"))
    return resource_of(crd, storage, compiled(storage).schema)


def accept_names(
    wanted: Names, accepted: Names, taken: Iterable[Names]
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """Return the names that a definition gets, given those `taken` in its group, and reason and message if some are
    refused.

    A refused name keeps its previous value. A definition's own names are not taken.
    """
    every = [accepted, *taken]
    resources = {names.get(field) for names in every for field in ("plural", "singular")}
    resources.update(name for names in every for name in names.get("shortNames") or ())
    kinds = {names.get(field) for names in every for field in _KINDS}
    result = {**accepted, "categories": wanted.get("categories")}
    refused: tuple[str, str] | None = None
    for field in ("plural", "singular", "shortNames", "kind", "listKind"):
        clashes = _clashes(wanted.get(field), accepted.get(field), kinds if field in _KINDS else resources)
        if clashes:
            sentences = [f'"{name}" is already in use' for name in clashes]
            message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
            refused = (f"{field[0].upper()}{field[1:]}Conflict", message)
        else:
            result[field] = wanted.get(field)
    return {field: value for field, value in result.items() if value is not None}, refused


_KINDS = ("kind", "listKind")


def _clashes(wanted: Any, accepted: Any, taken: Container[Any]) -> list[str]:
    if not isinstance(wanted, list):
        return [wanted] if wanted and wanted != accepted and wanted in taken else []
    own = set(accepted or ())
    return [name for name in wanted if name not in own and name in taken]
