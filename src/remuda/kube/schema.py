"""Model of an object's schema, for built-in kinds and custom resources.

All code that depends on the structure of objects uses it: defaulting, pruning and validation, server-side apply (which
lists are maps, sets or atomic), strategic merge patch, protobuf, `kubectl explain`. A schema may be cyclic
(JSONSchemaProps contains itself), so it must be compiled lazily per node.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

UNSET = msgspec.UNSET

ListType = Literal["atomic", "set", "map"]
MapType = Literal["granular", "atomic"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of x-kubernetes-validations."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = "FieldValueInvalid"
    field_path: str = ""
    optional_old_self: bool | None = None


class Schema(msgspec.Struct, kw_only=True, eq=False, dict=True):
    """Schema of one value. An empty `type` with `int_or_string` or `preserve_unknown` allows any of those."""

    type: Literal["", "object", "array", "string", "integer", "number", "boolean"] = ""
    format: str = ""
    title: str = ""
    description: str = ""
    example: Any = UNSET  # shown by OpenAPI, as external_docs
    external_docs: dict[str, str] | None = None
    default: Any = UNSET
    nullable: bool = False

    # object
    properties: dict[str, Schema] = {}
    additional: Schema | None = None  # map values; None with no properties means "no fields known"
    additional_forbidden: bool = False  # additionalProperties: false (`additional` is then an empty schema)
    required: tuple[str, ...] = ()
    preserve_unknown: bool = False
    embedded_resource: bool = False
    map_type: MapType = "granular"
    min_properties: int | None = None
    max_properties: int | None = None

    # array
    items: Schema | None = None
    list_type: ListType = "atomic"
    list_map_keys: tuple[str, ...] = ()
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False

    # strategic merge patch, built-in kinds only
    patch_strategy: tuple[str, ...] = ()  # of "merge", "replace", "retainKeys"
    patch_merge_key: str = ""

    # scalars
    int_or_string: bool = False
    enum: tuple[Any, ...] = ()
    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: int | float | None = None

    # value validations in logical junctors: raw OpenAPI dicts, which validate values but never declare fields
    all_of: tuple[dict[str, Any], ...] = ()
    any_of: tuple[dict[str, Any], ...] = ()
    one_of: tuple[dict[str, Any], ...] = ()
    not_: dict[str, Any] | None = None

    rules: tuple[Rule, ...] = ()

    ref: str = ""  # name of the built-in type this node came from, for OpenAPI references
    overlay: Schema | None = None  # constraints that a CRD adds to a built-in type (metadata)
    stated: frozenset[str] = frozenset()  # x-kubernetes-* keywords that are written out with their default value


def _string(**more: Any) -> Schema:
    return Schema(type="string", **more)


def _time() -> Schema:
    return Schema(type="string", format="date-time", nullable=True, ref="Time")


_OWNER_REFERENCE = Schema(
    type="object",
    ref="OwnerReference",
    map_type="atomic",
    required=("apiVersion", "kind", "name", "uid"),
    properties={
        "apiVersion": _string(),
        "kind": _string(),
        "name": _string(),
        "uid": _string(),
        "controller": Schema(type="boolean"),
        "blockOwnerDeletion": Schema(type="boolean"),
    },
)

_MANAGED_FIELDS_ENTRY = Schema(
    type="object",
    ref="ManagedFieldsEntry",
    properties={
        "manager": _string(),
        "operation": _string(),
        "apiVersion": _string(),
        "time": _time(),
        "fieldsType": _string(),
        "fieldsV1": Schema(type="object", preserve_unknown=True, ref="FieldsV1"),
        "subresource": _string(),
    },
)

OBJECT_META = Schema(
    type="object",
    ref="ObjectMeta",
    properties={
        "name": _string(description="Name, unique within the namespace or the cluster; immutable."),
        "generateName": _string(description="Prefix that the server completes to a unique name if name is empty."),
        "namespace": _string(description="Namespace of the object; immutable."),
        "selfLink": _string(),
        "uid": _string(description="Unique ID of the object, set by the server and never reused."),
        "resourceVersion": _string(
            description="Version that changes with every write; send it back to prevent lost updates."
        ),
        "generation": Schema(
            type="integer", format="int64", description="Number that grows with each change of the desired state."
        ),
        "creationTimestamp": _time(),
        "deletionTimestamp": _time(),
        "deletionGracePeriodSeconds": Schema(type="integer", format="int64"),
        "labels": Schema(
            type="object", additional=_string(), description="Keys and values by which objects are selected."
        ),
        "annotations": Schema(
            type="object",
            additional=_string(),
            description="Keys and values for tools; objects cannot be selected by them.",
        ),
        "ownerReferences": Schema(
            type="array",
            items=_OWNER_REFERENCE,
            list_type="map",
            list_map_keys=("uid",),
            patch_strategy=("merge",),
            patch_merge_key="uid",
            description="Owners of the object; it is deleted when the last of them is deleted.",
        ),
        "finalizers": Schema(
            type="array",
            items=_string(),
            list_type="set",
            patch_strategy=("merge",),
            description="Names that their owners must remove before the object is deleted.",
        ),
        "managedFields": Schema(type="array", items=_MANAGED_FIELDS_ENTRY, list_type="atomic"),
    },
)
