"""Parser of a CRD's openAPIV3Schema: returns a Schema, or all errors in it.

The root, and every embedded resource, gets apiVersion, kind and metadata as Kubernetes defines them. The constraints
that a CRD puts on metadata are kept as that node's overlay. The result is a tree, at most `depth.MAX_DEPTH` deep.

The defaults in a schema may contain declared fields only, and must satisfy the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from remuda.apiserver.schema.coerce import clone, prune
from remuda.apiserver.schema.conventions import convention_errors
from remuda.apiserver.schema.depth import TOO_DEEP, too_deep
from remuda.apiserver.schema.embedded import embedded_errors
from remuda.apiserver.schema.facts import identity
from remuda.apiserver.schema.invariants import structural_errors, unsupported_keyword
from remuda.apiserver.schema.read import Props, read_schema
from remuda.apiserver.schema.validate import Validation
from remuda.kube.errors import FieldError, forbidden, invalid
from remuda.kube.schema import OBJECT_META, UNSET, Schema

# levels of JSON; one level of schema is two of them, and recursive functions need stack for their own frames
_MAX_SCHEMA_DEPTH = 240
# With a status subresource, whose schema must mean the same when it is taken out of the root.
_NOT_AT_ROOT = [
    "id",
    "$schema",
    "$ref",
    "default",
    "maxProperties",
    "minProperties",
    "enum",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "nullable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
]
_AT_ROOT = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)

_API_VERSION = "The group and version of this object, which say how to read it."
_KIND = "What this object is; cannot be changed."


def parse_crd_schema(props: dict[str, Any], *, path: str, has_status: bool = False) -> tuple[Schema, list[FieldError]]:
    """Return the schema of whole objects, including metadata. A schema with errors is usable, but do not serve it."""
    if too_deep(props, _MAX_SCHEMA_DEPTH):
        return Schema(type="object"), [invalid(path, "", TOO_DEEP)]
    schema = read_schema(props)
    found = _root_errors(props, path, has_status)
    unsupported = unsupported_keyword(props)
    if not unsupported:
        found += structural_errors(props, path) or list(default_errors(schema, path))
    found += convention_errors(props, path)
    if unsupported and not found:
        found.append(invalid(path, "", unsupported))
    _complete(schema, is_root=True)
    return schema, found


def read_crd_schema(props: dict[str, Any]) -> Schema:
    """Return the schema of whole objects from a definition that has already been validated."""
    schema = read_schema(props)
    _complete(schema, is_root=True)
    return schema


def _root_errors(props: Props, path: str, has_status: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if has_status:
        kind = props.get("type") or ""
        if kind not in ("", "object"):
            said = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            found.append(invalid(f"{path}.type", kind, said))
        elif any(props.get(keyword) not in (None, False, "", [], {}) for keyword in _NOT_AT_ROOT):
            said = (
                f"only [{_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
            )
            found.append(invalid(path, dict(props), said))
    if props.get("nullable") is True:
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return found


def default_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Yield the errors in the defaults of a node and of all nodes below it. Skips additionalProperties, as upstream
    does.
    """
    if schema.default is not UNSET:
        yield from _default_value_errors(schema, f"{path}.default")
    if schema.items is not None:
        yield from default_errors(schema.items, f"{path}.items")
    for name, field in schema.properties.items():
        yield from default_errors(field, f"{path}.properties[{name}]")


def _default_value_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    pruned = clone(schema.default)
    prune(schema, pruned)
    if identity(pruned) != identity(schema.default):
        yield invalid(path, schema.default, "must not have unknown fields")
    found = embedded_errors(schema, schema.default, path)
    yield from found or Validation(path).run(schema, schema.default)


def _complete(schema: Schema, is_root: bool = False) -> None:
    for inner in schema.properties.values():
        _complete(inner)
    if schema.items is not None:
        _complete(schema.items)
    if schema.additional is not None:
        _complete(schema.additional)
    if is_root or schema.embedded_resource:
        schema.properties = _with_object_fields(schema.properties)


def _with_object_fields(properties: dict[str, Schema]) -> dict[str, Schema]:
    given = properties.get("metadata")
    metadata = OBJECT_META
    if given is not None and (given.properties or given.required or given.default is not UNSET):
        metadata = msgspec.structs.replace(OBJECT_META, overlay=given)
    return {
        "apiVersion": properties.get("apiVersion") or Schema(type="string", description=_API_VERSION),
        "kind": properties.get("kind") or Schema(type="string", description=_KIND),
        "metadata": metadata,
        **{name: field for name, field in properties.items() if name not in ("apiVersion", "kind", "metadata")},
    }
