"""Custom resources: from a CustomResourceDefinition to served resources, and back to nothing.

A listener on the store keeps the table of served resources in step with every committed definition, so an acknowledged
change is in force. A definition is served while its Established condition is True; `upkeep.definitions` writes
conditions and empties the resources of a definition that is being deleted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remuda.apiserver.cel.rules import compile_rules
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.served import Served, Shape
from remuda.apiserver.resource import ALL_VERBS, Behaviour, Column, Obj, Path, Resource, ScalePaths
from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import Event, Revision
from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema

TABLE = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"

_FREE_FORM: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def schema_errors(crd: Obj) -> list[FieldError]:
    """What is wrong with the schemas and CEL rules of a definition, version by version."""
    errors: list[FieldError] = []
    versions = crd.get("spec", {}).get("versions", [])
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    if len(schemas) > 1 and all(schema == schemas[0] for schema in schemas):
        versions, schemas = versions[:1], schemas[:1]  # upstream checks what all versions share once, and says so
    for i, (version, given) in enumerate(zip(versions, schemas, strict=True)):
        if given is None:
            continue  # reported as required by the kind's own validation
        shared = len(schemas) == 1
        path = "spec.validation.openAPIV3Schema" if shared else f"spec.versions[{i}].schema.openAPIV3Schema"
        schema, found = parse_crd_schema(given, path=path, has_status="status" in (version.get("subresources") or {}))
        errors.extend(found)
        if not found:
            errors.extend(compile_rules(schema, path)[1])
    return errors


def with_schema_validation(resource: Resource) -> Resource:
    """The CRD kind, validating the schemas inside its objects as well."""
    own = resource.behaviour.validate
    behaviour = replace(resource.behaviour, validate=lambda crd: own(crd) or schema_errors(crd))
    return replace(resource, behaviour=behaviour)


def is_established(crd: Obj) -> bool:
    return condition(crd, "Established").get("status") == "True"


def condition(crd: Obj, kind: str) -> dict[str, Any]:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind), {})


class Definitions:
    """Serves what the stored definitions say."""

    def __init__(self, store: Store, served: Served) -> None:
        self._served = served
        self._resources: dict[str, list[Resource]] = {}
        self._specs: dict[str, Any] = {}
        for entry in store.scan(TABLE):
            self._follow(entry.name, decode(entry.value), entry.revision)
        self._unsubscribe = store.subscribe(self._on_events)

    def close(self) -> None:
        self._unsubscribe()

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.entry.table != TABLE:
                continue
            if event.type == "DELETED":
                self._forget(event.entry.name)
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
        schema, _ = parse_crd_schema(_schema_of(version), path="")
        rules, _ = compile_rules(schema, "")
        resource = resource_of(crd, version, schema)
        self._served.add(resource, Shape(resource, Structural(schema, rules=rules), revision))
        return resource

    def _forget(self, name: str) -> None:
        self._specs.pop(name, None)
        for resource in self._resources.pop(name, ()):
            self._served.remove(resource)


def _schema_of(version: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or _FREE_FORM
    return given


def resource_of(crd: Obj, version: dict[str, Any], schema: Schema) -> Resource:
    spec = crd["spec"]
    names = (crd.get("status") or {}).get("acceptedNames") or spec["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    subresources = version.get("subresources") or {}
    verbs = tuple(v for v in ALL_VERBS if v != "create") if "deletionTimestamp" in crd["metadata"] else ALL_VERBS
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
        verbs=verbs,
        schema=schema,
        has_status="status" in subresources,
        scale=_scale_paths(subresources.get("scale")),
        columns=tuple(_column(c) for c in version.get("additionalPrinterColumns") or ()),
        selectable={f["jsonPath"].lstrip("."): _path(f["jsonPath"]) for f in version.get("selectableFields") or ()},
        behaviour=Behaviour(),
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


def _path(json_path: str) -> Path:
    return tuple(part for part in json_path.split(".") if part)


def _column(column: dict[str, Any]) -> Column:
    return Column(
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
    """Sorts versions as clients should prefer them: v2, v1, v1beta2, v1beta1, v1alpha1, then anything else by name."""
    match = _KUBE_VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, 0, version)
    major, stability, minor = match.groups()
    return (0, -_STABILITY[stability], -int(major), -int(minor or 0), "")


def _by_priority(crd: Obj) -> list[dict[str, Any]]:
    return sorted(crd["spec"]["versions"], key=lambda v: version_priority(v["name"]))


def names_in_use(crd: Obj, others: Sequence[Obj]) -> tuple[dict[str, Any], str, str]:
    """The names a definition may have beside the accepted ones of its group, and why not all of them, if so."""
    wanted = crd["spec"]["names"]
    taken_resources: set[str] = set()
    taken_kinds: set[str] = set()
    for other in others:
        accepted = (other.get("status") or {}).get("acceptedNames") or {}
        if other["metadata"]["name"] == crd["metadata"]["name"] or other["spec"]["group"] != crd["spec"]["group"]:
            continue
        taken_resources.update((accepted.get("plural", ""), accepted.get("singular", "")))
        taken_resources.update(accepted.get("shortNames", ()))
        taken_kinds.update((accepted.get("kind", ""), accepted.get("listKind", "")))
    accepted = dict(wanted)
    reason = message = ""
    for field, taken in (
        ("listKind", taken_kinds),
        ("kind", taken_kinds),
        ("shortNames", taken_resources),
        ("singular", taken_resources),
        ("plural", taken_resources),
    ):
        values = wanted.get(field) or []
        clash = next((v for v in (values if isinstance(values, list) else [values]) if v in taken), None)
        if clash is not None:
            accepted.pop(field, None)
            reason, message = f"{field[0].upper()}{field[1:]}Conflict", f'"{clash}" is already in use'
    return accepted, reason, message
