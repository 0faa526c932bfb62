"""Rows on disk, each with a checksum that detects damage.

The checksum covers the key, the revision and the value. A row that does not match is never served, and is not treated
as absent either: its key is reported as damaged, and requests for it, or for a list that contains it, fail. The key of
a damaged row may itself be damaged, so the index, which has a second copy of it, is read too.
"""

# ruff: noqa: S608 - every part of the statements is a constant of this file

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

import apsw
import msgspec

from remuda.apiserver.storage.tables import ObjectTable
from remuda.apiserver.storage.types import UNKNOWN, Damage, StoreEntry, StoreEvent

# Type of a row in the log that is no change: it marks the start of the history (see `Disk.start_history`).
RESTORED = "RESTORED"

_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", RESTORED})

# Never a valid checksum: marks a row that was damaged before it had one.
_DAMAGED_BEFORE = -1

# Casts, because SQLite's reader rejects text that is not UTF-8: damage must be read to be reported.
_KEY = "CAST(resource AS BLOB), CAST(namespace AS BLOB), CAST(name AS BLOB)"
_OBJECTS = f"SELECT id, {_KEY}, CAST(revision AS INTEGER), CAST(value AS BLOB), sum FROM objects"
_EVENTS = (
    f"SELECT revision, CAST(type AS BLOB), {_KEY}, CAST(value AS BLOB), sum FROM events WHERE revision > ? "
    "ORDER BY revision"
)
_NOT_IN_INDEX = """
SELECT o.id FROM objects AS o NOT INDEXED WHERE NOT EXISTS (
    SELECT 1 FROM objects AS i INDEXED BY objects_by_key
    WHERE i.resource = o.resource AND i.namespace = o.namespace AND i.name = o.name AND i.id = o.id
)
"""
_INDEX = f"SELECT id, {_KEY} FROM objects INDEXED BY objects_by_key ORDER BY resource, namespace, name"

Key = tuple[str, str, str]  # table, namespace, name


def checksum(table: str, namespace: str, name: str, revision: int, value: bytes) -> int:
    return crc32(value, crc32(f"{revision}\0{table}\0{namespace}\0{name}\0".encode()))


class StoredRows(NamedTuple):
    tables: dict[str, ObjectTable]
    damaged: list[Damage]
    index_is_wrong: bool  # index of intact rows, which can be rebuilt from them


def read_objects(connection: apsw.Connection) -> StoredRows:
    """Yield every object, row by row, so that there are never two copies."""
    tables: dict[str, ObjectTable] = {}
    broken: list[Damage] = []
    for row, *parts, revision, value, sum_ in connection.execute(_OBJECTS):
        table, namespace, name = _key(parts)
        entry = _verified((table, namespace, name), revision, value, sum_)
        if entry is None:
            broken.append(Damage(table, namespace, name, revision, row))
            continue
        held = tables.get(table)
        if held is None:
            held = tables[table] = ObjectTable()
        held.fill(entry)
    lost = {row for (row,) in connection.execute(_NOT_IN_INDEX)}
    index_is_wrong = bool(lost) or _count(connection, "NOT INDEXED") != _count(connection, "INDEXED BY objects_by_key")
    if broken and index_is_wrong:
        broken = list(_with_keys_of_index(connection, tables, broken, lost))
    for held in tables.values():
        held.sort()
    return StoredRows({name: held for name, held in tables.items() if held.count}, broken, index_is_wrong)


def _with_keys_of_index(
    connection: apsw.Connection, tables: dict[str, ObjectTable], broken: list[Damage], lost: set[int]
) -> Iterable[Damage]:
    """Return each damaged row under every key that it may have had. This includes intact rows that the index does not
    lead to: they could be read, but a write would not find them.
    """
    keys = {row: _key(parts) for row, *parts in connection.execute(_INDEX)}
    for one in broken:
        candidates = {one.key, keys.get(one.row, one.key)}
        unclaimed = {key for key in candidates if not _holds(tables, key)} or {one.key}
        for table, namespace, name in sorted(unclaimed):
            yield Damage(table, namespace, name, one.revision, one.row)
    for row in sorted(lost - {one.row for one in broken}):
        parts = connection.execute(f"SELECT {_KEY}, revision FROM objects NOT INDEXED WHERE id = ?", (row,)).get
        table, namespace, name = _key(parts[:3])
        tables[table].drop(namespace, name)
        yield Damage(table, namespace, name, parts[3], row)


def read_row(connection: apsw.Connection, damage: Damage) -> StoreEntry | None:
    """Return the row of a damaged object, if it is intact under this key."""
    found = connection.execute(f"{_OBJECTS} NOT INDEXED WHERE id = ?", (damage.row,)).get
    return None if found is None else _verified(damage.key, *found[4:])


def read_object(connection: apsw.Connection, key: Key) -> StoreEntry | None:
    """Return the object of a key, if it exists and is intact."""
    found = connection.execute(f"{_OBJECTS} WHERE resource = ? AND namespace = ? AND name = ?", key).get
    return None if found is None else _verified(key, *found[4:])


def _verified(key: Key, revision: Any, value: bytes | None, sum_: Any) -> StoreEntry | None:
    if value is None or checksum(*key, revision, value) != sum_:
        return None
    return StoreEntry(*key, revision, value)


def _holds(tables: dict[str, ObjectTable], key: Key) -> bool:
    return key[0] in tables and tables[key[0]].get(*key[1:]) is not None


def read_events(
    connection: apsw.Connection, after: int, tables: dict[str, ObjectTable]
) -> Iterable[tuple[int, StoreEvent | None, bool]]:
    """Yield the log from a revision on: (revision, the change or None where the history starts anew, whether it is
    intact).
    """
    newest: dict[Key, StoreEntry] = {}
    for revision, type_, *parts, value, sum_ in connection.execute(_EVENTS, (after,)):
        table, namespace, name = _key(parts)
        kind = _text(type_)
        entry = _verified((table, namespace, name), revision, value, sum_)
        if entry is None or kind not in _TYPES:
            yield revision, None, False
        elif kind == RESTORED:
            yield revision, None, True
        else:
            yield revision, _remember(kind, entry, tables, newest), True


def _remember(kind: Any, read: StoreEntry, tables: dict[str, ObjectTable], newest: dict[Key, StoreEntry]) -> StoreEvent:
    """Return a change read from the log; its object is shared with its table."""
    table = tables.get(read.table)
    held = table.get(read.namespace, read.name) if table else None
    entry = held if held is not None and held.revision == read.revision else read
    key = (read.table, read.namespace, read.name)
    before = None if kind == "ADDED" else newest.get(key) or UNKNOWN
    newest[key] = entry
    return StoreEvent(kind, entry, before)


def add_checksums(connection: apsw.Connection) -> None:
    """Upgrade a database from format 1 to format 2. Rows that are evidently damaged are marked."""
    connection.create_scalar_function("row_sum", _first_checksum, 5, deterministic=True)
    for table in ("objects", "events"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER NOT NULL DEFAULT {_DAMAGED_BEFORE}")
        connection.execute(f"UPDATE {table} SET sum = row_sum({_KEY}, revision, CAST(value AS BLOB))")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_decode_object = msgspec.json.Decoder(_Object).decode


def _first_checksum(*row: Any) -> int:
    *parts, revision, value = row
    key = _key(parts)
    if value:  # a mark in the log has none
        try:
            said = _decode_object(value).metadata
        except msgspec.MsgspecError:
            return _DAMAGED_BEFORE
        found = (said.namespace or key[1], said.name or key[2], said.resource_version or str(revision))
        if found != (key[1], key[2], str(revision)):
            return _DAMAGED_BEFORE
    return checksum(*key, revision, value)


def _key(parts: Iterable[Any]) -> Key:
    """Decode damaged text too: the result differs, and so does its checksum."""
    table, namespace, name = map(_text, parts)
    return sys.intern(table), sys.intern(namespace), name  # the few names of tables and namespaces are stored once


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _count(connection: apsw.Connection, how: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM objects {how}").get)
