"""Removal of the fields that a schema does not know, and their paths for `unknown field "…"`.

`x-kubernetes-preserve-unknown-fields` keeps them, but what is specified below is pruned again; through a list it
reaches the items' own unknown fields, as upstream has it.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.schema import Schema


def prune(schema: Schema, value: Any) -> list[str]:
    """Changes the value in place and returns the paths removed, in the order the value had them."""
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
