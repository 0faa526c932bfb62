"""Entries of metadata.managedFields: which manager owns which fields, by which operation, since when.

The identity of an entry is its manager, operation, subresource and, for updates, API version. An applier has one entry,
whatever version it uses. Unchanged entries keep the dict that they were read from, so a write that changes one entry
does not change the others. Times are RFC 3339 in UTC with whole seconds, and sort as strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from remuda.apiserver.apply.element import BadElement
from remuda.apiserver.apply.fieldset import Fields, parse

APPLY, UPDATE = "Apply", "Update"
MOST_UPDATERS = 10
OLD_UPDATES = "ancient-changes"

Key = tuple[str, str, str, str]  # manager, operation, apiVersion (empty for appliers), subresource


class BadEntries(ValueError):
    """Unreadable managedFields; the text is the message for the client."""


class ManagedFieldsEntry:
    __slots__ = ("api_version", "fields", "manager", "operation", "raw", "subresource", "time")

    def __init__(
        self, manager: str, operation: str, api_version: str, subresource: str, time: str, fields: Fields
    ) -> None:
        self.manager = manager
        self.operation = operation
        self.api_version = api_version
        self.subresource = subresource
        self.time = time  # empty: unknown
        self.fields = fields
        self.raw: dict[str, Any] | None = None

    @property
    def key(self) -> Key:
        version = "" if self.operation == APPLY else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def with_fields(self, fields: Fields) -> ManagedFieldsEntry:
        return ManagedFieldsEntry(self.manager, self.operation, self.api_version, self.subresource, self.time, fields)

    def document(self) -> dict[str, Any]:
        if self.raw is not None:
            return self.raw
        whole = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
            "subresource": self.subresource,
        }
        return {name: value for name, value in whole.items() if value != ""}


Entries = dict[Key, ManagedFieldsEntry]


def stored(documents: Any) -> Entries:
    """Read entries that this server wrote, which are known to be valid."""
    out: Entries = {}
    for document in documents or ():
        entry = ManagedFieldsEntry(
            document.get("manager", ""),
            document["operation"],
            document["apiVersion"],
            document.get("subresource", ""),
            document.get("time") or "",
            document.get("fieldsV1") or {},
        )
        entry.raw = document
        out[entry.key] = entry
    return out


def received(documents: list[Any]) -> Entries:
    """Read entries that a client sent. Raise BadEntries."""
    out: Entries = {}
    for position, document in enumerate(documents):
        entry = _received_entry(position, document)
        out[entry.key] = entry
    return out


def _received_entry(position: int, document: Any) -> ManagedFieldsEntry:
    if not isinstance(document, dict):
        raise BadEntries(f"managed fields entry {position} is not an object")
    operation, version = document.get("operation"), _text(document, "apiVersion")
    if operation not in (APPLY, UPDATE):
        raise BadEntries("operation must be `Apply` or `Update`")
    if not version:
        raise BadEntries("apiVersion must not be empty")
    kind = _text(document, "fieldsType")
    if not kind:
        raise BadEntries(f"missing fieldsType in managed fields entry {position}")
    if kind != "FieldsV1":
        raise BadEntries(f'invalid fieldsType "{kind}" in managed fields entry {position}')
    fields = _received_fields(document.get("fieldsV1"))
    time = _received_time(document.get("time"))
    return ManagedFieldsEntry(
        _text(document, "manager"), operation, version, _text(document, "subresource"), time, fields
    )


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise BadEntries(f"{name} must be a string")
    return value or ""


def _received_fields(document: Any) -> Fields:
    try:
        return parse(document) if document is not None else {}
    except BadElement as error:
        raise BadEntries(f"error decoding set: {error}") from None


def _received_time(value: Any) -> str:
    if value is None:
        return ""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadEntries(f"invalid time {value!r}") from None
    if moment.tzinfo is None:
        raise BadEntries(f"invalid time {value!r}")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(entry: ManagedFieldsEntry) -> tuple[str, str, str, str, str]:
    return (entry.operation, entry.time, entry.manager, entry.api_version, entry.subresource)


def documents(entries: Iterable[ManagedFieldsEntry]) -> list[dict[str, Any]]:
    """Return the entries in the order of an object: appliers first, each group by age."""
    return [entry.document() for entry in sorted(entries, key=_place)]


def identifier(key: Key) -> str:
    """Return the identity as one text, which orders conflicts and entries of the same age."""
    names = ("manager", "operation", "apiVersion", "subresource")
    return msgspec.json.encode({name: part for name, part in zip(names, key, strict=True) if part}).decode()
