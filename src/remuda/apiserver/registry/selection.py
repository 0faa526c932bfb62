"""Selection of objects for a list, a watch or a collection delete: namespace, name, labels, fields.

A field selector may only name fields the kind declares (`Resource.selectable`), besides metadata.name and
metadata.namespace, which are part of every key and never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.apiserver.registry.objects import at_path, decode
from remuda.apiserver.resource import Resource
from remuda.apiserver.storage.types import StoreEntry
from remuda.kube.cost import Budget
from remuda.kube.errors import bad_request
from remuda.kube.go_text import quoted
from remuda.kube.selectors import parse_field_selector, parse_label_selector

_KEY_FIELDS = ("metadata.name", "metadata.namespace")
Extract = Callable[[bytes], dict[str, str]]


class Selection:
    """Compiled test of entries. `name` is set if only one object can match."""

    __slots__ = ("_extract", "_fields", "_labels", "is_mutable", "name", "namespace")

    def __init__(
        self, resource: Resource, namespace: str, labels: str, fields: str, budget: Budget | None = None
    ) -> None:
        self._labels = parse_label_selector(labels, budget) if labels else None
        self._fields = None
        self._extract: Extract | None = None
        self.namespace = namespace
        self.name = ""
        if fields:
            selector = parse_field_selector(fields, budget)
            for requirement in selector.requirements:
                if requirement.field not in _KEY_FIELDS and requirement.field not in resource.selectable:
                    raise bad_request(_unknown_field(resource, requirement.field))
            self.name = selector.exact("metadata.name") or ""
            self._fields = selector
            self._extract = _extractor(resource)
        # Whether an object can enter or leave the selection during its life: then a watch needs its previous state.
        self.is_mutable = self._labels is not None or (
            self._fields is not None and any(r.field not in _KEY_FIELDS for r in self._fields.requirements)
        )

    @property
    def is_everything(self) -> bool:
        return self._labels is None and self._fields is None

    def matches(self, entry: StoreEntry) -> bool:
        if self._labels is not None and not self._labels.matches(entry.labels):
            return False
        if self._fields is None:
            return True
        if self.name and entry.name != self.name:
            return False
        assert self._extract is not None
        fields = entry.fields(self._extract)
        return self._fields.matches({**fields, "metadata.name": entry.name, "metadata.namespace": entry.namespace})


def _unknown_field(resource: Resource, field: str) -> str:
    if resource.custom or resource.selectable:
        return f"field label not supported: {field}"
    known = ", ".join(map(quoted, _KEY_FIELDS))
    return f"{quoted(field)} is not a known field selector: only {known}"


def _extractor(resource: Resource) -> Extract:
    paths = dict(resource.selectable)
    zero = resource.selectable_zero

    def extract(value: bytes) -> dict[str, str]:
        if not paths:
            return {}
        obj = decode(value)
        return {field: field_text(at_path(obj, path)) or zero.get(field, "") for field, path in paths.items()}

    return extract


def field_text(value: Any) -> str:
    """Return a field's value as field selectors compare it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
