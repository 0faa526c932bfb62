"""Tables that the server renders, so that every CRD shows the columns its definition names.

If a server sends objects instead of a table, the table has their names and ages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.cli.output import NOTHING
from remuda.kube.client import PAGE
from remuda.kube.errors import Gone, status_error
from remuda.kube.http import resource_path
from remuda.kube.http.lines import EventReader
from remuda.kube.objects import Key

if TYPE_CHECKING:
    from remuda.cli.kinds import Resource
    from remuda.kube.http import HttpClient

_FORM = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Column(msgspec.Struct):
    name: str
    priority: int = 0


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


class Row(msgspec.Struct):
    cells: list[Any]
    object: _Object


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(default="", name="continue")


class Table(msgspec.Struct, rename="camel"):
    kind: str = ""
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    column_definitions: list[Column] | None = None
    rows: list[Row] | None = None
    items: list[_Object] | None = None  # from a server that does not render tables


class Selection(msgspec.Struct, frozen=True):
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        return {"labelSelector": self.labels, "fieldSelector": self.fields, "includeObject": "Metadata"}


async def listed(client: HttpClient, resource: Resource, selection: Selection) -> Table:
    """Return the selected rows, read in pages. If the continue token expires, read the whole list at once."""
    whole, token, limit = Table(), "", PAGE
    while True:
        query = {**selection.query, "limit": str(limit) if limit else "", "continue": token}
        path = resource_path(resource.target, selection.namespace, query=query)
        try:
            page = _read(await client.raw_get(path, accept=_FORM))
        except Gone:
            if not token:
                raise
            whole, token, limit = Table(), "", 0
            continue
        page.rows = [*(whole.rows or ()), *(page.rows or ())]
        page.column_definitions = page.column_definitions or whole.column_definitions
        whole, token = page, page.metadata.token or ""
        if not token:
            return whole


async def one(client: HttpClient, resource: Resource, namespace: str, name: str) -> Table:
    path = resource_path(resource.target, namespace, name, {"includeObject": "Metadata"})
    return _read(await client.raw_get(path, accept=_FORM))


async def changes(
    client: HttpClient, resource: Resource, selection: Selection, since: str
) -> AsyncGenerator[tuple[str, Table], None]:
    """Yield the changes of each row from a revision on.

    Ends when the server ends the watch; the last revision is that of the last row.
    """
    query = {**selection.query, "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
    events = EventReader()
    stream = client.raw_stream(resource_path(resource.target, selection.namespace, query=query), accept=_FORM)
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            for event in events.feed(chunk):
                if event.type == "ERROR":
                    raise status_error(0, bytes(event.object))
                yield event.type, _read(bytes(event.object))


def _read(body: bytes) -> Table:
    table = msgspec.json.decode(body, type=Table)
    if table.kind == "Table":
        return table
    objects = table.items if table.items is not None else [msgspec.json.decode(body, type=_Object)]
    rows = [Row([each.metadata.name, _age(each.metadata.creation_timestamp)], each) for each in objects]
    return Table(metadata=table.metadata, column_definitions=[Column("Name"), Column("Age")], rows=rows)


def _age(created: str | None) -> str:
    from remuda.apiserver.kinds.columns import human_duration
    from remuda.kube import clock

    return human_duration(clock.time() - clock.parse(created)) if created else NOTHING


def text(
    columns: Sequence[Column], rows: Sequence[Row], *, wide: bool, namespaces: bool
) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells as kubectl prints them: columns of lower priority only with `wide`."""
    which = [at for at, column in enumerate(columns) if wide or not column.priority]
    heads = ["NAMESPACE"] * namespaces + [columns[at].name.upper() for at in which]
    return heads, [
        [row.object.metadata.namespace] * namespaces + [_cell(row.cells[at]) for at in which] for row in rows
    ]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return NOTHING if value is None else ""
    return str(value).lower() if isinstance(value, bool) else " ".join(str(value).split())
