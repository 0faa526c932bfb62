"""Check of an applied configuration against its schema: whether it fits closely enough to be applied.

This is not validation, which runs later on the merged object. It rejects values that no field manager could own:
unknown fields, values of the wrong kind, list items without their key, and repeated items. The wording is that of
kube-apiserver, which answers with an unspecific 500 and prints a misplaced value with Go's `%v` or `%#v` of its
wrapper. Limits: only JSON values, and only as much of Go's formatting as these messages need.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.apiserver.apply.element import shown
from remuda.apiserver.apply.shape import ItemError, Shape
from remuda.kube.go_text import quoted

_MOST_ERRORS = 100  # so that a hostile configuration does not get an answer larger than itself


def complaints(config: Any, shape: Shape) -> str:
    """Return all errors as one text; empty if there are none."""
    if _fits(config, shape):
        return ""
    errors: list[str] = []
    _check(config, shape, "", errors)
    if len(errors) <= 1:
        return "".join(errors)
    return "\n  ".join(["errors:", *errors[:_MOST_ERRORS]])


_SCALARS: dict[str, tuple[type, ...]] = {
    "numeric": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "untyped": (str, int, float, bool),
    "": (),
}


def _fits(value: Any, shape: Shape) -> bool:
    """Return whether the value has no errors. Most values have none, so this check does not spell out any path."""
    kind = type(value)
    if kind is dict:
        return shape.is_map and _map_fits(value, shape)
    if kind is list:
        return shape.is_list and _list_fits(value, shape)
    return value is None or kind in _SCALARS[shape.scalar]


def _map_fits(value: dict[str, Any], shape: Shape) -> bool:
    fields, rest = shape.fields, shape.rest
    for key, item in value.items():
        declared = fields.get(key)
        sub = declared[1] if declared else rest
        if sub is None or not _fits(item, sub):
            return False
    return True


def _list_fits(value: list[Any], shape: Shape) -> bool:
    item_shape = shape.item
    assert item_shape is not None
    if shape.element_of is not None:
        try:
            if len(set(map(shape.element_of, value))) != len(value):
                return False
        except ItemError:
            return False
    return all(_fits(item, item_shape) for item in value)


def _say(errors: list[str], path: str, message: str) -> None:
    errors.append(f"{path}: {message}" if path else message)


def _check(value: Any, shape: Shape, path: str, errors: list[str]) -> None:
    if value is None or len(errors) > _MOST_ERRORS:
        return
    if isinstance(value, dict) and shape.is_map:
        _check_map(value, shape, path, errors)
    elif isinstance(value, list) and shape.is_list:
        _check_list(value, shape, path, errors)
    elif shape.scalar and not (shape.is_map and isinstance(value, dict | list)):
        _check_scalar(value, shape.scalar, path, errors)
    else:
        _say(errors, path, f"expected {'map' if shape.is_map else 'list'}, got {boxed(value)}")


def _check_scalar(value: Any, scalar: str, path: str, errors: list[str]) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "numeric" and not is_number:
        _say(errors, path, f"expected numeric (int or float), got {type_name(value)}")
    elif scalar == "string" and not isinstance(value, str):
        _say(errors, path, f"expected string, got {boxed_literal(value)}")
    elif scalar == "boolean" and not isinstance(value, bool):
        _say(errors, path, f"expected boolean, got {boxed(value)}")
    elif scalar == "untyped" and isinstance(value, dict | list):
        _say(errors, path, f"expected any scalar, got {boxed(value)}")


def _check_map(value: dict[str, Any], shape: Shape, path: str, errors: list[str]) -> None:
    for key in sorted(value):
        declared = shape.fields.get(key)
        sub = declared[1] if declared else shape.rest
        if sub is None:
            _say(errors, f"{path}.{key}", "field not declared in schema")
            return
        _check(value[key], sub, f"{path}.{key}", errors)


def _check_list(value: list[Any], shape: Shape, path: str, errors: list[str]) -> None:
    item_shape = shape.item
    assert item_shape is not None
    seen: set[str] = set()
    for position, item in enumerate(value):
        place = f"[{position}]"
        if shape.element_of is not None:
            try:
                element = shape.element_of(item)
            except ItemError as error:
                _say(errors, path, f"element {position}: {error}")
                return
            place = shown(element)
            if element in seen:
                _say(errors, path, f"duplicate entries for key {place}")
            seen.add(element)
        _check(item, item_shape, path + place, errors)


def _bare(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_bare(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_bare(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}{" + ", ".join(f"{quoted(k)}:{_literal(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_literal(item) for item in value) + "}"
    if value is None:
        return "interface {}(nil)"
    return quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def boxed(value: Any) -> str:
    """Format a value as `%v` of the wrapper: `&{x}`."""
    return f"&{{{_bare(value)}}}"


def boxed_literal(value: Any) -> str:
    """Format a value as `%#v` of the wrapper."""
    return f"&value.valueUnstructured{{Value:{_literal(value)}}}"


def type_name(value: Any) -> str:
    """Return `%T` of a decoded JSON value."""
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    names = {str: "string", bool: "bool", int: "int64", float: "float64"}
    return names.get(type(value), "<nil>")
