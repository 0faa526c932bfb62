"""Declarations: the view of an object's schema that CEL expressions have.

`declare` gives each visible schema node its CEL type and the facts that later phases need: the real name of each field,
the conversion of a raw JSON value to a CEL value, and the maximum size of the value. Nodes that CEL must not see
(fields of unknown type, values without a schema) have no declaration. If a schema sets no maximum size, the size of one
request is the bound.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.syntax import RESERVED
from remuda.apiserver.cel.times import parse_date, parse_datetime, parse_schema_duration
from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import CelError
from remuda.kube.schema import UNSET, Schema

MAX_REQUEST = 3 * 1024 * 1024

Convert = Callable[[Any], Any]


class Declared:
    """Schema node as CEL sees it."""

    __slots__ = ("convert", "fields", "item", "key", "max_size", "min_bytes", "schema", "type")

    def __init__(self, schema: Schema, max_size: int, min_bytes: int) -> None:
        self.schema = schema
        self.max_size = max_size  # in code points, bytes, items or entries; 0 for a type without a size
        self.min_bytes = min_bytes  # smallest size of its JSON
        self.item: Declared | None = None  # declaration of a list's items or a map's values
        self.key: Declared | None = None  # declaration of a map's keys
        self.fields: Mapping[str, DeclaredField] = {}
        self.convert: Convert | None = None  # None: the JSON value is the CEL value
        self.type: Type = t.DYN

    def field(self, name: str) -> DeclaredField | None:
        """Return the field that an expression means by this name. CEL's reserved words need no escaping after a dot."""
        return self.fields.get(name) or (self.fields.get(f"__{name}__") if name in RESERVED else None)


class DeclaredField:
    """Field of an object, with its name in expressions and its name in JSON."""

    __slots__ = ("declared", "json_name")

    def __init__(self, json_name: str, declared: Declared) -> None:
        self.json_name = json_name
        self.declared = declared


_WORDS = RESERVED | {"true", "false", "null", "in"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPABLE = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")
_ESCAPED_PARTS = re.compile(r"__|[.\-/]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escape(name: str) -> str | None:
    """Return a property's name as a CEL identifier, or None if it cannot be one."""
    if name in _WORDS:
        return f"__{name}__"
    if "__" not in name and _PLAIN.fullmatch(name):
        return name
    if not _ESCAPABLE.fullmatch(name):
        return None
    return _ESCAPED_PARTS.sub(lambda match: _ESCAPES[match.group()], name)


_STRING = Schema(type="string")
_META = Schema(type="object", properties={"name": _STRING, "generateName": _STRING})


def with_type_and_meta(schema: Schema) -> dict[str, Schema]:
    """Return a resource's properties. They always include kind, apiVersion, metadata.name and metadata.generateName."""
    properties = schema.properties
    meta = properties.get("metadata")
    known = (
        _is_string(properties.get("kind"))
        and _is_string(properties.get("apiVersion"))
        and meta is not None
        and meta.type == "object"
        and _is_string(meta.properties.get("name"))
        and _is_string(meta.properties.get("generateName"))
    )
    return properties if known else {**properties, "kind": _STRING, "apiVersion": _STRING, "metadata": _META}


def _is_string(schema: Schema | None) -> bool:
    return schema is not None and schema.type == "string"


def declare(schema: Schema, *, resource: bool = False, name: str = "selfType") -> Declared | None:
    """Declare a schema node and all nodes below it. `resource` marks the root of an object that has apiVersion, kind
    and metadata.
    """
    if schema.int_or_string:
        declared = Declared(schema, _max_text(schema), 1)
        declared.type = Type("dyn", "dyn", (), declared)
        return declared
    match schema.type:
        case "array":
            return _declare_list(schema, name)
        case "object":
            return _declare_map(schema, name) if schema.additional is not None else _object(schema, resource, name)
        case "string":
            return _declare_string(schema)
    known = _SCALARS.get(schema.type)
    if known is None:
        return None
    declared = Declared(schema, 0, known[1])
    declared.type = Type(known[0].kind, known[0].name, (), declared)
    declared.convert = _to_double if schema.type == "number" else None
    return declared


_SCALARS = {"boolean": (t.BOOL, 4), "number": (t.DOUBLE, 1), "integer": (t.INT, 1)}


def _to_double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _declare_list(schema: Schema, name: str) -> Declared | None:
    item = schema.items and declare(schema.items, resource=schema.items.embedded_resource, name=f"{name}.@idx")
    if not item:
        return None
    largest = max(schema.max_items, 0) if schema.max_items is not None else (MAX_REQUEST - 2) // (item.min_bytes + 1)
    declared = Declared(schema, largest, 2)
    declared.item = item
    declared.type = t.list_of(item.type, declared)
    convert = item.convert
    if convert is not None:
        declared.convert = lambda value: [convert(inner) for inner in value] if type(value) is list else value
    return declared


def _declare_map(schema: Schema, name: str) -> Declared | None:
    assert schema.additional is not None
    item = declare(schema.additional, resource=schema.additional.embedded_resource, name=f"{name}.@elem")
    if item is None:
        return None
    limit = schema.max_properties
    declared = Declared(schema, max(limit, 0) if limit is not None else (MAX_REQUEST - 2) // (item.min_bytes + 6), 2)
    declared.item = item
    declared.key = Declared(_STRING, 0, 2)  # keys cost nothing, whatever their length
    declared.type = t.map_of(t.STRING, item.type, declared)
    convert = item.convert
    if convert is not None:
        declared.convert = lambda value: (
            {key: convert(inner) for key, inner in value.items()} if type(value) is dict else value
        )
    return declared


def _object(schema: Schema, resource: bool, name: str) -> Declared:
    fields: dict[str, DeclaredField] = {}
    smallest = 2
    for json_name, inner in (with_type_and_meta(schema) if resource else schema.properties).items():
        visible = escape(json_name)
        known = declare(inner, resource=inner.embedded_resource, name=f"{name}.{visible or json_name}")
        if known is None:
            continue
        if visible is not None:
            fields[visible] = DeclaredField(json_name, known)
        if json_name in schema.required and inner.default is UNSET:
            smallest += len(json_name.encode()) + known.min_bytes + 4
    declared = Declared(schema, 0, smallest)
    declared.fields = fields
    declared.type = Type("object", name, (), declared)
    return declared


def _max_text(schema: Schema) -> int:
    if schema.max_length is not None:
        return max(schema.max_length, 0) * 4  # a code point takes up to four bytes
    if schema.enum and not schema.int_or_string:
        return max((len(value.encode()) for value in schema.enum if isinstance(value, str)), default=0)
    return MAX_REQUEST - 2


def parse_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError:
        raise CelError(f"Invalid byte formatted string {text}: illegal base64 data") from None


def _parsed(parse: Callable[[str], Any]) -> Convert:
    return lambda value: parse(value) if type(value) is str else value


# For each format: type, smallest JSON size, maximum length (None: the schema's), and the conversion function.
_FORMATS: dict[str, tuple[Type, int, int | None, Convert]] = {
    "byte": (t.BYTES, 2, None, _parsed(parse_base64)),
    "duration": (t.DURATION, 3, 32, _parsed(parse_schema_duration)),
    "date": (t.TIMESTAMP, 12, 12, _parsed(parse_date)),
    "date-time": (t.TIMESTAMP, 21, 32, _parsed(parse_datetime)),
}


def _declare_string(schema: Schema) -> Declared:
    known = _FORMATS.get(schema.format)
    if known is None:
        declared = Declared(schema, _max_text(schema), 2)
        declared.type = Type("string", "string", (), declared)
        return declared
    kind, smallest, largest, convert = known
    if largest is None:
        largest = max(schema.max_length, 0) if schema.max_length is not None else MAX_REQUEST - 2
    declared = Declared(schema, largest, smallest)
    declared.type = Type(kind.kind, kind.name, (), declared)
    declared.convert = convert
    return declared
