"""CustomResourceDefinitions, generated from the Python types of kinds.

The types are the only source: their names, fields, docstrings and `Field` annotations become the structural schema. The
server's defaults are written out, so that a definition can be compared with the one on a server.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from remuda.kube.objects import Condition, Field, Kind, Object, ObjectMeta, Part
from remuda.kube.schema import Rule

OWNERSHIP_LABEL, OWNER = "app.kubernetes.io/managed-by", "remuda"  # on every definition we install

WIDE = 10  # priority of columns that only `-o wide` shows


class DefinitionStatus(Part):
    """Status of a CustomResourceDefinition, as the server writes it."""

    conditions: Sequence[Condition] | None = None  # null in a new one


class CustomResourceDefinition(Object):
    """CustomResourceDefinition, with the fields that controllers read."""

    status: DefinitionStatus = DefinitionStatus()


DEFINITION = Kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    CustomResourceDefinition,
    namespaced=False,
)

_UNSAID = Field()
_SCALARS: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_KEYWORDS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "format": "format",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
}


class PrinterColumn(msgspec.Struct, frozen=True):
    """One column of `kubectl get`."""

    name: str
    path: str
    doc: str = ""
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    priority: int = 0


def label_path(label: str) -> str:
    """Return the JSONPath of a label, for use in a Column."""
    escaped = label.replace(".", "\\.")
    return f".metadata.labels['{escaped}']"


class Scale(msgspec.Struct, frozen=True):
    """JSONPaths of the scale subresource."""

    replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ".status.selector"


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a CustomResourceDefinition besides its schema."""

    kind: Kind[Any]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    status: bool = True
    scale: Scale | None = None
    labels: Mapping[str, str] = {}
    nullable: bool = False  # null in an optional field of spec means absent, as existing manifests use it


def custom_resource_definition(definition: Definition) -> dict[str, Any]:
    kind = definition.kind
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": list(definition.short_names),
        "categories": list(definition.categories),
    }
    version = {
        "name": kind.target.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(definition)},
        "subresources": _subresources(definition),
        "additionalPrinterColumns": [_column(column) for column in definition.columns],
    }
    return {
        "apiVersion": DEFINITION.api_version,
        "kind": DEFINITION.name,
        "metadata": {"name": f"{kind.plural}.{kind.group}", "labels": {**definition.labels, OWNERSHIP_LABEL: OWNER}},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": _without_empty(names),
            "versions": [_without_empty(version)],
            "conversion": {"strategy": "None"},
        },
    }


def _schema(definition: Definition) -> dict[str, Any]:
    found = schema(definition.kind.type)
    if definition.nullable:
        _allow_null(found["properties"]["spec"])
    return found


def _allow_null(node: dict[str, Any]) -> None:
    """Not where a list is a map: its keys must be there. Not where values are named: null is none of them."""
    if "items" in node:
        _allow_null(node["items"])
    elif isinstance(node.get("additionalProperties"), dict):
        _allow_null(node["additionalProperties"])
    for name, inner in node.get("properties", {}).items():
        if name not in node.get("required", ()) and "enum" not in inner:
            inner["nullable"] = True
        _allow_null(inner)


def schema(type: type[Part]) -> dict[str, Any]:
    """Return the structural schema of an object, or of a part of one."""
    return _part(type)


def _subresources(definition: Definition) -> dict[str, Any]:
    found: dict[str, Any] = {"status": {}} if definition.status else {}
    if definition.scale is not None:
        found["scale"] = {
            "specReplicasPath": definition.scale.replicas,
            "statusReplicasPath": definition.scale.status_replicas,
            "labelSelectorPath": definition.scale.selector,
        }
    return found


def _column(column: PrinterColumn) -> dict[str, Any]:
    return _without_empty(
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.path,
            "description": column.doc,
            "priority": column.priority,
        }
    )


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item not in ("", 0, [], {})}


def _part(part: type[Part]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, inner, facets in _fields(part):
        properties[name] = _described(inner, facets)
        if facets.required:
            required.append(name)
    doc = inspect.cleandoc(part.__doc__ or "")
    return _without_empty({"type": "object", "description": doc, "properties": properties, "required": required})


@cache
def _fields(part: type[Part]) -> tuple[tuple[str, Any, Field], ...]:
    """Return the fields by their JSON names, with the result of `peel`. Cached, because most types are part of several
    kinds.
    """
    return tuple((field.encode_name, *peel(field.type)) for field in msgspec.structs.fields(part))


def peel(hint: Any) -> tuple[Any, Field]:
    """Return the bare type below `Annotated` and `| None`, and its Field; the outermost annotation wins."""
    facets: list[Field] = []
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *extras = get_args(hint)
            facets = [extra for extra in extras if isinstance(extra, Field)] + facets
        elif origin in (Union, types.UnionType) and types.NoneType in get_args(hint):
            hint = Union[tuple(arg for arg in get_args(hint) if arg is not types.NoneType)]  # noqa: UP007
        else:
            return hint, _joined(facets)


def _joined(facets: Sequence[Field]) -> Field:
    found = _UNSAID
    for field in facets:
        news = {
            name: value for name in Field.__struct_fields__ if (value := getattr(field, name)) != getattr(_UNSAID, name)
        }
        found = msgspec.structs.replace(found, **news)
    return found


def _described(inner: Any, facets: Field) -> dict[str, Any]:
    """Return the schema of a bare type, extended by the settings of its Field."""
    found = (
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
        if (facets.int_or_string)
        else _shape(inner, facets)
    )
    if facets.doc:
        found["description"] = facets.doc
    for name, keyword in _KEYWORDS.items():
        value = getattr(facets, name)
        if value not in (None, ""):
            found[keyword] = value
    if facets.enum:
        found["enum"] = list(facets.enum)
    if facets.list_map_keys:
        found["x-kubernetes-list-map-keys"] = list(facets.list_map_keys)
    if facets.preserve_unknown:
        found["x-kubernetes-preserve-unknown-fields"] = True
    if facets.default is not msgspec.UNSET:
        found["default"] = facets.default
    if facets.rules:
        found["x-kubernetes-validations"] = [_rule(rule) for rule in facets.rules]
    return found


def _shape(inner: Any, facets: Field) -> dict[str, Any]:
    if inner in _SCALARS:
        return {"type": _SCALARS[inner]}
    if inner is ObjectMeta:
        return {"type": "object"}  # the server has the full schema
    if inner in (Any, object):
        return {"x-kubernetes-preserve-unknown-fields": True}
    if isinstance(inner, type) and issubclass(inner, Part):
        return _part(inner)
    origin, arguments = get_origin(inner), get_args(inner)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Sequence, list) or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": _member(arguments[0], facets.items)}
    if origin in (Mapping, dict) and arguments[0] is str:
        if facets.preserve_unknown:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": _member(arguments[1], facets.items)}
    raise TypeError(f"cannot derive a schema from the type {inner}")


def _member(hint: Any, more: Field | None) -> dict[str, Any]:
    inner, facets = peel(hint)
    return _described(inner, _joined([facets, more]) if more is not None else facets)


def _rule(rule: Rule) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rule": rule.rule,
        "message": rule.message,
        "messageExpression": rule.message_expression,
        "reason": rule.reason if rule.reason != "FieldValueInvalid" else "",
        "fieldPath": rule.field_path,
    }
    if rule.optional_old_self is not None:
        found["optionalOldSelf"] = rule.optional_old_self
    return {key: value for key, value in found.items() if value != ""}
