"""Correlation of new values with the old values that they replace, so that unchanged invalid values are tolerated
(ratcheting).

Correlation is upstream's term. Fields correlate by name, items of a list-map by their keys, and items of other lists
never. A value is unchanged if it is deeply equal; the order of a list-map does not matter. A map with an undeclared
field counts as changed, because such fields cannot be correlated.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema.facts import describes, identity
from remuda.kube.schema import Schema

_IMPLIED = ("apiVersion", "kind", "metadata")  # fields of an embedded resource that a CRD need not declare


class Correlation:
    """New value, the corresponding old value, and their structural schema node."""

    __slots__ = ("_by_key", "_unchanged", "new", "old", "shape")

    def __init__(self, new: Any, old: Any, shape: Schema) -> None:
        self.new = new
        self.old = old
        self.shape = shape
        self._unchanged: bool | None = None
        self._by_key: dict[Any, Any] | None = None

    def field(self, name: str) -> Correlation | None:
        if not isinstance(self.new, dict) or not isinstance(self.old, dict):
            return None
        if name not in self.new or name not in self.old:
            return None
        shape = self.shape.properties.get(name)
        if shape is None and describes(self.shape.additional):
            shape = self.shape.additional
        if shape is None or (self.shape.embedded_resource and name in _IMPLIED):
            return None
        return Correlation(self.new[name], self.old[name], shape)

    def item(self, index: int) -> Correlation | None:
        shape = self.shape
        if shape.list_type != "map" or shape.items is None or not isinstance(self.old, list):
            return None
        key = _list_key(self.new[index], shape.list_map_keys)
        old = self._old_by_key().get(key) if key is not None else None
        return None if old is None else Correlation(self.new[index], old, shape.items)

    def _old_by_key(self) -> dict[Any, Any]:
        if self._by_key is None:
            self._by_key = {}
            for item in self.old:
                key = _list_key(item, self.shape.list_map_keys)
                if key is not None:
                    self._by_key.setdefault(key, item)
        return self._by_key

    def unchanged(self) -> bool:
        if self._unchanged is None:
            self._unchanged = self._compare()
        return self._unchanged

    def _compare(self) -> bool:
        new, old = self.new, self.old
        if type(new) is not type(old):
            return False
        if isinstance(new, dict):
            fields = (self.field(name) for name in new)
            return len(new) == len(old) and all(f is not None and f.unchanged() for f in fields)
        if isinstance(new, list):
            return len(new) == len(old) and self._same_items()
        return bool(new == old)

    def _same_items(self) -> bool:
        if self.shape.list_type != "map" or self.shape.items is None or not self.new:
            return bool(identity(self.new) == identity(self.old))
        items = (self.item(index) for index in range(len(self.new)))
        return all(item is not None and item.unchanged() for item in items)


def _list_key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the key of an item; None if a key field is missing or not a scalar."""
    if not isinstance(item, dict):
        return None
    values = [item.get(key) for key in keys]
    if any(value is None or isinstance(value, dict | list) for value in values):
        return None
    return tuple(identity(value) for value in values)
