"""Coercion: handles nulls, defaults and unknown fields of an object, as its author meant them.

In a custom resource, a null that the schema does not allow is removed, or replaced by the default. In built-in types
(and the metadata of any object) null means absent, as in Go, and an empty string counts as absent if the field has a
default. Defaults are added only to objects that exist; they never create a parent. An integral float in an integer
field becomes an integer, because Go would print it that way.

`prune` removes the fields that the schema does not declare and returns their paths for `unknown field "…"`.
`x-kubernetes-preserve-unknown-fields` keeps them, but declared fields below it are pruned again. As upstream does, a
list with this setting also keeps the unknown fields of its items.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema import facts
from remuda.apiserver.schema.wire import without_line_breaks
from remuda.kube.schema import UNSET, Schema

_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def clone(value: Any) -> Any:
    """Return a copy that shares no container with the original."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def coerce(schema: Schema, value: Any, native: bool = False) -> Any:
    """Coerce a value. Change containers in place; return the value, or the replacement of a scalar."""
    native = native or bool(schema.ref)
    if isinstance(value, dict):
        _coerce_fields(schema, value, native)
        if schema.overlay is not None:
            coerce(schema.overlay, value)
    elif isinstance(value, list):
        _coerce_items(schema, value, native)
    elif isinstance(value, float):
        if schema.type == "integer" and not native and facts.is_integral(value):
            return int(value)
    elif native and schema.format == "byte" and isinstance(value, str):
        return without_line_breaks(value)
    return value


def _coerce_fields(schema: Schema, value: dict[str, Any], native: bool) -> None:
    properties, additional = schema.properties, schema.additional
    for name in [name for name, item in value.items() if item is None]:
        known = properties.get(name)
        if known is not None:
            if native or not known.nullable:
                del value[name]
        elif additional is not None and native:
            value[name] = _zero(additional)
        elif additional is not None and facts.describes(additional) and not additional.nullable:
            _default_or_drop(value, name, additional)
    for name, known in properties.items():
        if known.default is not UNSET and _is_absent(value, name, known.default, native):
            value[name] = clone(known.default)
    for name, item in value.items():
        inner = properties.get(name) or additional
        if inner is not None and item is not None:
            value[name] = coerce(inner, item, native)


def _default_or_drop(value: dict[str, Any], name: str, schema: Schema) -> None:
    if schema.default is UNSET:
        del value[name]
    else:
        value[name] = clone(schema.default)


def _is_absent(value: dict[str, Any], name: str, default: Any, native: bool) -> bool:
    return name not in value or (native and isinstance(default, str) and value[name] == "")


def _coerce_items(schema: Schema, value: list[Any], native: bool) -> None:
    items = schema.items
    if items is None:
        return
    for index, item in enumerate(value):
        if item is not None:
            value[index] = coerce(items, item, native)
        elif native:
            value[index] = _zero(items)
        elif not items.nullable and items.default is not UNSET:
            value[index] = clone(items.default)


def _zero(schema: Schema) -> Any:
    """Return the value that Go stores for a null inside a list or a map."""
    if schema.type == "object" and not schema.preserve_unknown:
        return {}
    return _ZEROS.get(schema.type)


def prune(schema: Schema, value: Any) -> list[str]:
    """Prune the value in place and return the removed paths, in the order of the value."""
    removed: list[str] = []
    _prune(schema, value, "", schema.preserve_unknown, removed)
    return removed


def _prune(schema: Schema, value: Any, path: str, keep: bool, removed: list[str]) -> None:
    if isinstance(value, dict):
        _prune_fields(schema, value, path, keep, removed)
    elif isinstance(value, list):
        items = schema.items
        if items is None:
            if keep:
                return
            items = _NOTHING
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(items, item, f"{path}[{index}]", keep or items.preserve_unknown, removed)


def _prune_fields(schema: Schema, value: dict[str, Any], path: str, keep: bool, removed: list[str]) -> None:
    properties, additional = schema.properties, schema.additional
    unknown: list[str] = []
    for name, item in value.items():
        inner = properties.get(name) or additional
        if inner is None:
            if not keep:
                unknown.append(name)
        elif isinstance(item, dict | list):
            _prune(inner, item, f"{path}.{name}" if path else name, inner.preserve_unknown, removed)
    for name in unknown:
        del value[name]
        removed.append(f"{path}.{name}" if path else name)


_NOTHING = Schema()
