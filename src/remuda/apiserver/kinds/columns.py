"""Table columns that `kubectl get` prints for built-in kinds: the parts that several kinds share.

As in kube-apiserver, the server renders the cells, including ages (`5m`, `3h20m`). A built-in kind lists all its
columns, including the name. Cells are functions of the decoded object, computed only when a client requests a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remuda.apiserver.resource import Obj, Path, TableColumn
from remuda.kube import clock
from remuda.kube.selectors import SelectorError, label_selector_from

Cell = Callable[[Obj], Any]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SHOWN = 3  # hosts, addresses or ports shown of a list


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl shows ages: two units while the larger one is small, then one."""
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    whole = int(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * 365 * _DAY:
        return f"{whole // _DAY}d"
    if whole < 8 * 365 * _DAY:
        return _two(whole, 365 * _DAY, "y", _DAY, "d")
    return f"{whole // (365 * _DAY)}y"


def _two(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_name}" + (f"{rest}{small_name}" if rest else "")


def since(timestamp: str | None) -> str:
    """Return the age of a timestamp for people to read, or `<unknown>`."""
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(time.time() - clock.parse(timestamp))
    except ValueError:
        return "<unknown>"


def at(obj: Any, *path: str, default: Any = "") -> Any:
    """Return the value at a path, or the default if a part of the path is absent, null, or not an object."""
    for name in path:
        if not isinstance(obj, dict):
            return default
        obj = obj.get(name)
    return default if obj is None else obj


def value(*path: str, default: Any = "") -> Cell:
    return lambda obj: at(obj, *path, default=default)


def count(*path: str) -> Cell:
    return lambda obj: len(at(obj, *path, default=()))


def string(name: str, cell: Cell, *, wide: bool = False) -> TableColumn:
    return TableColumn(name=name, cell=cell, priority=int(wide))


def integer(name: str, cell: Cell) -> TableColumn:
    return TableColumn(name=name, type="integer", cell=cell)


def boolean(name: str, cell: Cell) -> TableColumn:
    return TableColumn(name=name, type="boolean", cell=cell)


NAME = TableColumn(name="Name", format="name", cell=value("metadata", "name"), description="The name of the object.")
AGE = TableColumn(
    name="Age", cell=lambda obj: since(at(obj, "metadata", "creationTimestamp")), description="Time since its creation."
)
CREATED_AT = TableColumn(
    name="Created At",
    type="date",
    cell=value("metadata", "creationTimestamp"),
    description="When it was created.",
)
# Columns of kinds that declare none.
PLAIN = (NAME, CREATED_AT)


def format_labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else "<none>"


def format_selector(selector: Any) -> str:
    try:
        return str(label_selector_from(selector)) or "<none>" if selector is not None else "<none>"
    except SelectorError:
        return "<error>"


def some_of(items: Iterable[str]) -> str:
    """Return the first few items, and the number of the others."""
    listed = list(items)
    if not listed:
        return "<none>"
    shown = ",".join(listed[:_SHOWN])
    return shown if len(listed) <= _SHOWN else f"{shown} + {len(listed) - _SHOWN} more..."


def containers(*path: str) -> tuple[TableColumn, TableColumn]:
    """Return the names and images of a pod template's containers, for -o wide."""

    def joined(key: str) -> Cell:
        return lambda obj: ",".join(str(c.get(key, "")) for c in at(obj, *path, "containers", default=()))

    return string("Containers", joined("name"), wide=True), string("Images", joined("image"), wide=True)


def selector_column(path: Path = ("spec", "selector")) -> TableColumn:
    return string("Selector", lambda obj: format_selector(at(obj, *path, default=None)), wide=True)


def condition_is_true(obj: Obj, type_: str) -> bool:
    conditions = at(obj, "status", "conditions", default=())
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)
