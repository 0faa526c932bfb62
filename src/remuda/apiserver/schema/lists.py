"""Uniqueness in x-kubernetes-list-type set and map, for the whole object at once."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema.facts import identity
from remuda.kube import errors
from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema


def list_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    found: list[FieldError] = []
    _walk(schema, value, path, found)
    return found


def _walk(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    if schema.ref:
        return  # built-in shapes check their own lists
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(item, dict | list):
                continue
            known = schema.properties.get(name)
            if known is not None:
                _walk(known, item, f"{path}.{name}" if path else name, found)
            elif schema.additional is not None:
                _walk(schema.additional, item, f"{path}[{name}]", found)
    elif isinstance(value, list):
        if schema.list_type == "set":
            found.extend(errors.duplicate(f"{path}[{i}]", value[i]) for i in _repeated([identity(x) for x in value]))
        elif schema.list_type == "map":
            found.extend(_map_errors(schema.list_map_keys, value, path))
        if schema.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    _walk(schema.items, item, f"{path}[{index}]", found)


def _map_errors(keys: tuple[str, ...], items: list[Any], path: str) -> list[FieldError]:
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            return [errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    named = [{key: item[key] for key in keys if key in item} if item else {} for item in items]
    return [errors.duplicate(f"{path}[{i}]", named[i]) for i in _repeated([identity(name) for name in named])]


def _repeated(marks: list[Any]) -> list[int]:
    """The second place of everything that occurs more than once."""
    times: dict[Any, int] = {}
    again: list[int] = []
    for index, mark in enumerate(marks):
        seen = times.get(mark, 0)
        if seen == 1:
            again.append(index)
        times[mark] = seen + 1
    return again
