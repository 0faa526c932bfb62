"""Tables for `kubectl get`, of any object, list or watch event.

Columns are compiled once per resource: each becomes a function from the decoded object to a cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from remuda.apiserver.http.lists import list_metadata
from remuda.apiserver.kinds.columns import AGE, NAME, human_duration
from remuda.apiserver.registry.calls import Page
from remuda.apiserver.resource import Obj, Resource, TableColumn
from remuda.kube import clock
from remuda.kube.errors import bad_request
from remuda.kube.jsonpath import compile_jsonpath, text_of
from remuda.kube.web import Request

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_INCLUDES = ("", "None", "Metadata", "Object")
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Cell = Callable[[Obj], Any]


def included_object(request: Request) -> str:
    """Return the includeObject parameter: None, Metadata or Object. Raise 400."""
    asked = request.first("includeObject") if request.raw_query else ""
    if asked not in _INCLUDES:
        quoted = _encode(asked).decode()
        why = "must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: includeObject: Invalid value: {quoted}: {why}")
    return asked or "Metadata"


class Tabler:
    """Renderer of the tables of one resource."""

    def __init__(self, resource: Resource) -> None:
        columns = _columns_of(resource)
        self.definitions = [_definition(column, resource) for column in columns]
        self._cells: tuple[Cell, ...] = tuple(_cell(column) for column in columns)

    def of_page(self, page: Page, include: str, version: str) -> bytes:
        return self._table(page.items, list_metadata(page), include, version, True)

    def of_object(self, value: bytes, include: str, version: str, *, headers: bool = True) -> bytes:
        revision = _revision_of(value).metadata.resourceVersion
        metadata = _encode({"resourceVersion": revision} if revision else {})
        return self._table((value,), metadata, include, version, headers)

    def _table(self, items: Iterable[bytes], metadata: bytes, include: str, version: str, headers: bool) -> bytes:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
        table = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": msgspec.Raw(metadata),
            "columnDefinitions": self.definitions if headers else None,
            "rows": [self._row(item, include, partial) for item in items],
        }
        return _encode(table)

    def _row(self, item: bytes, include: str, partial: dict[str, str]) -> dict[str, Any]:
        obj: Obj = _decode(item)
        cells = [cell(obj) for cell in self._cells]
        metadata = obj.get("metadata") or {}
        shown: Any = None
        if include == "Object":
            shown = msgspec.Raw(item)
        elif include == "Metadata" or _INITIAL_EVENTS_END in (metadata.get("annotations") or ()):
            shown = {**partial, "metadata": metadata}
        return {"cells": cells, "object": shown}


class _Revision(msgspec.Struct):
    resourceVersion: str = ""


class _Revisioned(msgspec.Struct):
    metadata: _Revision = msgspec.field(default_factory=_Revision)


_revision_of = msgspec.json.Decoder(_Revisioned).decode


def _columns_of(resource: Resource) -> tuple[TableColumn, ...]:
    """Return the columns. A built-in kind declares all of them, a custom resource those besides its name."""
    if resource.custom:
        return (NAME, *(resource.columns or (_CUSTOM_AGE,)))
    return resource.columns or (NAME, AGE)


_CUSTOM_AGE = TableColumn(name="Age", type="date", description=AGE.description, path=".metadata.creationTimestamp")


def _definition(column: TableColumn, resource: Resource) -> dict[str, Any]:
    description = column.description
    if not description and column.path and resource.custom:
        description = f"Custom resource definition column (in JSONPath format): {column.path}"
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    }


def _cell(column: TableColumn) -> Cell:
    if column.cell is not None:
        return column.cell
    find = compile_jsonpath(column.path)
    shape: Callable[[Any], Any] = _SHAPES.get(column.type, _as_text)

    def cell(obj: Obj) -> Any:
        found = find(obj)
        return shape(found[0]) if found else None

    return cell


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else text_of([value])


def _as_integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_age(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return human_duration(time.time() - clock.parse(value))
    except ValueError:
        return "<invalid>"


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "date": _as_age,
}


class Tablers:
    """Tablers by resource, cached as long as the resource exists."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Resource, Tabler]] = {}

    def of(self, resource: Resource) -> Tabler:
        made = self._made.get(id(resource))
        if made is None or made[0] is not resource:
            if len(self._made) > 4096:  # definitions may be created and deleted without end
                self._made.clear()
            made = self._made[id(resource)] = (resource, Tabler(resource))
        return made[1]
