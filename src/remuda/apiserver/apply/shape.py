"""Schema as server-side apply sees it: which values are atomic and which are granular.

A shape keeps only the facts that decide ownership. A value may be allowed to be a map, a list or a scalar (untyped
parts of custom resources); then its actual type decides. Shapes are compiled once per schema node, stored on the node,
and may be cyclic as schemas are. In untyped values, maps are granular and lists are atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from remuda.apiserver.apply.element import scalar_json, value_element
from remuda.kube.schema import OBJECT_META, UNSET, Schema

Scalar = Literal["", "numeric", "string", "boolean", "untyped"]
ElementOf = Callable[[Any], str]


class ItemError(ValueError):
    """List item that cannot belong to its list-map or set."""


class Shape:
    """Shape of a value. `fields` are the declared fields, each with its path element; `rest` is the shape of all
    others, None: no others.

    `flat` is set for maps whose values are all atomic, so that its keys alone determine its fields; it caches the
    results for key sets seen before. `loose` means that the type of some scalar in this shape is open, so that equality
    must distinguish `1` from `true`.
    """

    __slots__ = (
        "atomic_map",
        "element_of",
        "fields",
        "flat",
        "is_list",
        "is_map",
        "item",
        "keys",
        "loose",
        "rest",
        "scalar",
    )

    def __init__(self) -> None:
        self.is_map = False
        self.atomic_map = False
        self.fields: dict[str, tuple[str, Shape]] = {}
        self.rest: Shape | None = None
        self.is_list = False
        self.element_of: ElementOf | None = None  # None: the list is atomic
        self.keys: tuple[str, ...] = ()
        self.item: Shape | None = None
        self.scalar: Scalar = ""
        self.flat: dict[tuple[str, ...], Any] | None = None
        self.loose = False

    @property
    def is_one_piece(self) -> bool:
        return (self.atomic_map or not self.is_map) and self.element_of is None

    def parts(self) -> list[Shape]:
        return [sub for _, sub in self.fields.values()] + [sub for sub in (self.rest, self.item) if sub]

    def find_flatness(self) -> None:
        """Compute `flat`. Call it when all shapes below are complete."""
        if self.is_map and not self.is_list and not self.atomic_map and all(sub.is_one_piece for sub in self.parts()):
            self.flat = {}


def _untyped(granular: bool) -> Shape:
    shape = Shape()
    shape.scalar = "untyped"
    shape.is_map = shape.is_list = shape.loose = True
    shape.atomic_map = not granular
    return shape


OPAQUE = _untyped(granular=False)
OPAQUE.rest = OPAQUE.item = OPAQUE
DEDUCED = _untyped(granular=True)
DEDUCED.rest, DEDUCED.item = DEDUCED, OPAQUE

_OWNERSHIP = Shape()  # of managedFields themselves, which are never compared
_OWNERSHIP.is_map = _OWNERSHIP.atomic_map = True
_OWNERSHIP.rest = OPAQUE
_BY_REF = {"RawExtension": OPAQUE, "FieldsV1": _OWNERSHIP}  # documents that typed objects carry undecoded
_ATTRIBUTES = ("_apply_shape", "_apply_shape_preserving")


def shape_of(schema: Schema) -> Shape:
    """Return the shape of a whole object."""
    found = schema.__dict__.get(_ATTRIBUTES[0])
    return found if found is not None else _compile(schema)


Pending = list[tuple[Schema, bool, Shape]]


def _compile(schema: Schema) -> Shape:
    # A worklist instead of recursion, because hostile schemas are deep and any schema may be cyclic.
    pending: Pending = []
    done: list[Shape] = []
    top = _node(schema, False, pending)
    while pending:
        node, preserve, shape = pending.pop()
        _fill(shape, node, preserve, pending)
        done.append(shape)
    for shape in done:
        shape.find_flatness()
    _spread_looseness(done)
    return top


def _spread_looseness(shapes: list[Shape]) -> None:
    """Mark a shape as loose if any part of it is; with cycles this takes more than one pass."""
    spreading = True
    while spreading:
        spreading = False
        for shape in reversed(shapes):
            if not shape.loose and any(part.loose for part in shape.parts()):
                shape.loose = spreading = True


def _node(schema: Schema, preserve: bool, pending: Pending) -> Shape:
    if schema.ref in _BY_REF:
        return _BY_REF[schema.ref]
    preserve = preserve or schema.preserve_unknown
    found = schema.__dict__.get(_ATTRIBUTES[preserve])
    if found is None:
        found = schema.__dict__[_ATTRIBUTES[preserve]] = Shape()
        pending.append((schema, preserve, found))
    return found


def _fill(shape: Shape, schema: Schema, preserve: bool, pending: Pending) -> None:
    kind = schema.type
    shape.scalar = _scalar_of(schema)
    shape.loose = not kind and not schema.int_or_string
    if kind in ("", "object"):
        _fill_map(shape, schema, preserve, pending)
    if kind in ("", "array"):
        _fill_list(shape, schema, preserve, pending)


def _scalar_of(schema: Schema) -> Scalar:
    if schema.int_or_string or not schema.type:
        return "untyped"
    if schema.type == "string":
        return "string" if schema.format in ("", "byte") else "untyped"
    names: dict[str, Scalar] = {"integer": "numeric", "number": "numeric", "boolean": "boolean"}
    return names.get(schema.type, "")


def _fill_map(shape: Shape, schema: Schema, preserve: bool, pending: Pending) -> None:
    shape.is_map = True
    shape.atomic_map = schema.map_type == "atomic"
    properties = schema.properties
    if schema.embedded_resource:
        identity = {"apiVersion": Schema(type="string"), "kind": Schema(type="string"), "metadata": OBJECT_META}
        properties = {**properties, **identity}
    shape.fields = {name: ("f:" + name, _node(sub, preserve, pending)) for name, sub in properties.items()}
    if schema.additional is not None:
        shape.rest = _node(schema.additional, preserve, pending)
    elif preserve or not properties:
        shape.rest = DEDUCED


def _fill_list(shape: Shape, schema: Schema, preserve: bool, pending: Pending) -> None:
    shape.is_list = True
    shape.item = OPAQUE if schema.items is None else _node(schema.items, preserve, pending)
    if schema.list_type == "set":
        shape.element_of = _set_element
    elif schema.list_type == "map":
        shape.keys = schema.list_map_keys
        shape.element_of = _keyed(schema)


def _set_element(item: Any) -> str:
    if type(item) is str:
        return "v:" + scalar_json(item)
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return value_element(item)


def _keyed(schema: Schema) -> ElementOf:
    defaults = _key_defaults(schema)
    names = tuple(schema.list_map_keys)
    if len(names) == 1 and not defaults:
        return _keyed_by_one(names[0])

    plan = [(name, scalar_json(name) + ":", defaults.get(name, UNSET)) for name in sorted(names)]

    def element_of(item: Any) -> str:
        _require_map(item)
        parts = []
        for name, start, default in plan:
            value = item.get(name, default)
            if value is not UNSET:
                parts.append(start + scalar_json(value))
        if not parts:
            raise _keyless(names)
        return "k:{" + ",".join(parts) + "}"

    return element_of


def _key_defaults(schema: Schema) -> dict[str, Any]:
    properties = schema.items.properties if schema.items else {}
    found = {name: properties[name].default for name in schema.list_map_keys if name in properties}
    return {name: value for name, value in found.items() if value is not UNSET and value is not None}


def _keyed_by_one(name: str) -> ElementOf:
    start = f"k:{{{scalar_json(name)}:"

    def element_of(item: Any) -> str:
        try:
            return f"{start}{scalar_json(item[name])}}}"
        except (KeyError, TypeError):
            _require_map(item)
            raise _keyless((name,)) from None

    return element_of


def _require_map(item: Any) -> None:
    if item is None:
        raise ItemError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ItemError("associative list with keys may not have non-map elements")


def _keyless(names: tuple[str, ...]) -> ItemError:
    listed = " ".join(msgspec.json.encode(name).decode() for name in names)
    return ItemError(
        f"associative list with keys has an element that omits all key fields [{listed}] "
        "(and doesn't have default values for any key fields)"
    )
