"""Check of every row of a database against its checksum, and repair of damaged objects.

A damaged object is put back from the nearest copy whose checksum is right: its own row under the key that the index
has, the log of changes, then a backup. A copy of another revision than the damaged row has may be older: it is written
as a change, with a new revision, so that no client takes it for what it knows already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from remuda.apiserver.storage import backup, rows
from remuda.apiserver.storage.directory import DATABASE, DirectoryLock
from remuda.apiserver.storage.disk import REVISIONS_SKIPPED, Disk
from remuda.apiserver.storage.types import Damage, Revision, StoreEntry, StoreEvent, StoreUnusable

LOG = "the log of changes"
INDEX = "the index"
BACKUP = "the backup"


class FsckReport(NamedTuple):
    path: Path
    objects: int  # number of intact ones
    changes: int  # intact ones in the log
    damaged: Sequence[Damage]
    damaged_changes: int
    index_is_wrong: bool

    @property
    def is_clean(self) -> bool:
        return not (self.damaged or self.damaged_changes or self.index_is_wrong)


class Repair(NamedTuple):
    damage: Damage
    source: str = ""  # empty: there is no intact copy, and the object stays damaged
    is_older: bool = False
    is_forgotten: bool = False


class _Copy(NamedTuple):
    entry: StoreEntry
    source: str
    is_older: bool


def check(data_dir: Path) -> FsckReport:
    """Read the whole database of a stopped server. Raise StoreUnusable."""
    with _opened(data_dir) as disk:
        return _report(disk)


def repair(data_dir: Path, source: Path | None, forget: Collection[str] = ()) -> list[Repair]:
    """Restore damaged objects from intact copies, in one transaction; `source` is a backup.

    Delete those that have no copy and are named in `forget`. Raise StoreUnusable, ArchiveError.
    """
    with _opened(data_dir) as disk:
        if source is None:
            return _repair(disk, None, forget)
        with backup.opened(source, data_dir) as saved:
            return _repair(disk, saved, forget)


@contextmanager
def _opened(data_dir: Path) -> Iterator[Disk]:
    if not (data_dir / DATABASE).is_file():
        raise StoreUnusable(f"{data_dir} holds no {DATABASE}: not a data directory")
    lock = DirectoryLock(data_dir)
    try:
        disk = Disk(data_dir / DATABASE)
        try:
            yield disk
        except apsw.Error as error:
            raise StoreUnusable(f"cannot repair {data_dir / DATABASE}: {error}") from error
        finally:
            disk.close()
    finally:
        lock.release()


def _report(disk: Disk) -> FsckReport:
    objects = rows.read_objects(disk.connection)
    log = [intact for _, _, intact in rows.read_events(disk.connection, 0, {})]
    return FsckReport(
        disk.path,
        sum(table.count for table in objects.tables.values()),
        sum(log),
        objects.damaged,
        len(log) - sum(log),
        objects.index_is_wrong,
    )


def _repair(disk: Disk, saved: Disk | None, forget: Collection[str]) -> list[Repair]:
    objects = rows.read_objects(disk.connection)
    newest, log_is_intact, logged = 0, True, dict[rows.Key, StoreEvent]()
    for revision, event, intact in rows.read_events(disk.connection, 0, {}):
        log_is_intact = log_is_intact and intact
        newest = max(newest, revision if intact else 0)
        if event is not None:
            logged[event.entry.table, event.entry.namespace, event.entry.name] = event
    newest = max([newest, *(e.revision for table in objects.tables.values() for e in table.walk("", None))])
    found = {damage: _copy(disk, saved, logged, damage) for damage in objects.damaged}
    kept = {damage.row for damage, copy in found.items() if copy is not None}
    forgotten = {damage.row for damage in found if damage.row not in kept and str(damage) in forget}
    connection = disk.connection
    with connection:
        connection.execute("DROP INDEX objects_by_key")  # its entries may differ from the rows
        for damage, copy in found.items():
            if copy is not None or damage.row in forgotten:
                connection.execute("DELETE FROM objects WHERE id = ?", (damage.row,))
            elif damage.row not in kept:
                # Write the key that only the dropped index had into the row: the object is still reported under it.
                key_of_row = "UPDATE objects SET resource = ?, namespace = ?, name = ? WHERE id = ?"
                connection.execute(key_of_row, (*damage.key, damage.row))
        disk.make_index()
        if not log_is_intact or forgotten:  # watchers cannot be told about deleted objects
            # Before the copies are appended below: `start_history` empties the log.
            newest += REVISIONS_SKIPPED
            disk.start_history(Revision(newest))
        for copy in filter(None, found.values()):
            if copy.is_older:
                newest += 1
                disk.append(StoreEvent("MODIFIED", _at(copy.entry, Revision(newest)), None))
            else:
                disk.insert(copy.entry)
    return [
        Repair(damage, copy.source, copy.is_older)
        if copy is not None
        else Repair(damage, is_forgotten=damage.row in forgotten)
        for damage, copy in found.items()
        if copy is not None or damage.row not in kept
    ]


def _copy(disk: Disk, saved: Disk | None, logged: dict[rows.Key, StoreEvent], damage: Damage) -> _Copy | None:
    """Return the nearest intact copy of an object."""
    change = logged.get(damage.key)
    candidates = (
        (INDEX, rows.read_row(disk.connection, damage)),
        (LOG, change.entry if change is not None and change.type != "DELETED" else None),
        (BACKUP, rows.read_object(saved.connection, damage.key) if saved is not None else None),
    )
    found = ((source, entry) for source, entry in candidates if entry is not None)
    return next((_Copy(entry, source, entry.revision != damage.revision) for source, entry in found), None)


def _at(entry: StoreEntry, revision: Revision) -> StoreEntry:
    obj: Any = msgspec.json.decode(entry.value)
    obj["metadata"]["resourceVersion"] = str(revision)
    return StoreEntry(entry.table, entry.namespace, entry.name, revision, msgspec.json.encode(obj))
