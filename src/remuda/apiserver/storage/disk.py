"""The state on disk: one SQLite database in WAL mode, used by one thread at a time.

`commit` makes a batch of changes durable, all or nothing; when it returns, a power cut loses none of it
(`synchronous=FULL` syncs the WAL on every commit). The event log holds the changes above the floor given with each
commit; what lies below is deleted in steps that stay small beside a commit, and freed pages are given back to the
file system in small steps too, so neither file grows without bound nor any write waits long.

The newest event is never deleted: its revision is where the counter goes on after a restart, even when the object it
speaks of is gone.

Every row has a checksum (`rows.py`). A database whose structure is damaged is refused; one with damaged objects opens,
and `load` names them. A damaged log is given up: history starts anew, and watchers list again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import apsw

from remuda.apiserver.storage import rows
from remuda.apiserver.storage.directory import sync_directory
from remuda.apiserver.storage.history import History
from remuda.apiserver.storage.tables import ObjectTable
from remuda.apiserver.storage.types import (
    Damage,
    DiskFull,
    Revision,
    StorageFailed,
    StoreCorrupt,
    StoreEntry,
    StoreEvent,
    StoreTooNew,
    StoreUnusable,
)

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 2  # 1: without checksums
APPLICATION_ID = 0x524D4441  # "RMDA": what `file` and we tell our databases by

_PAGE_BYTES = 8192
# The WAL is copied into the database after about 8 MB. Counted here, because a hook of SQLite's would have every commit
# wait for the interpreter lock once more: each change is in the log, the objects and its index.
_CHECKPOINT_PAGES = 1000
_PAGES_PER_COMMIT = 4
_TRIM_STEP = 256  # revisions the floor of the log moves before it is trimmed: not a statement for every commit
_TRIM_ROWS = 256  # of the log, besides four per change written
_VACUUM_PAGES = 64  # given back in one step
_TIDY_EVERY = 64  # commits: then the next pause looks for free pages
_SLACK_PAGES = 512  # free pages that are kept for the next writes

_SCHEMA = """
CREATE TABLE objects (
    id INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL
) STRICT;
CREATE TABLE events (
    revision INTEGER PRIMARY KEY, type TEXT NOT NULL, resource TEXT NOT NULL, namespace TEXT NOT NULL,
    name TEXT NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL
) STRICT;
"""

_INDEX = "CREATE UNIQUE INDEX objects_by_key ON objects (resource, namespace, name)"

# Complaints of SQLite about one value of one row: the checksum of the row tells the same, and whose row it is.
_OF_ONE_ROW = re.compile(r"(NULL|NUMERIC|TEXT|non-[A-Z]+) value in (objects|events)\.[a-z]+")
_MOST_COMPLAINTS = 100

# How far the counter jumps where the newest revision on disk may not be the newest that anyone has seen: more writes
# than a server makes between a backup and its restore.
REVISIONS_SKIPPED = 1_000_000_000

# Each statement run gives up the interpreter lock and must win it back from a busy event loop. So a batch is one
# statement where it can be: it appends to the log, which the objects follow by triggers, and commits by itself.
_ROWS_PER_STATEMENT = 64

# Of this connection, not of the database: they are how this program writes, not what it has written.
_OBJECTS_FOLLOW = """
CREATE TEMP TRIGGER object_written AFTER INSERT ON main.events WHEN NEW.type IN ('ADDED', 'MODIFIED') BEGIN
    INSERT INTO objects (resource, namespace, name, revision, value, sum)
    VALUES (NEW.resource, NEW.namespace, NEW.name, NEW.revision, NEW.value, NEW.sum)
    ON CONFLICT (resource, namespace, name)
    DO UPDATE SET revision = excluded.revision, value = excluded.value, sum = excluded.sum;
END;
CREATE TEMP TRIGGER object_deleted AFTER INSERT ON main.events WHEN NEW.type = 'DELETED' BEGIN
    DELETE FROM objects WHERE resource = NEW.resource AND namespace = NEW.namespace AND name = NEW.name;
END;
"""


@cache
def _append(count: int) -> str:
    insert = "INSERT INTO events (revision, type, resource, namespace, name, value, sum) VALUES "
    return insert + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * count)


# One upper bound, not two: SQLite would search by one of them and read the whole log for the other.
_TRIM = """
DELETE FROM events WHERE revision <= min(
    (SELECT max(revision) - 1 FROM events),
    (SELECT max(revision) FROM (SELECT revision FROM events WHERE revision <= ? ORDER BY revision LIMIT ?))
)
"""


class Loaded(NamedTuple):
    """Contents of the database, from which `Memory` is built."""

    tables: dict[str, ObjectTable]
    history: History
    revision: Revision
    damaged: list[Damage]


class Disk:
    """An open database. It is not thread-safe: one thread uses it at a time."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        """Opens or creates the database; raises StoreCorrupt, StoreTooNew or StoreUnusable."""
        self.needs_tidying = True
        self.path = path
        self._wal_pages = 0
        self._commits = 0
        self._is_full = False
        self._log_is_long = True  # until known: the last process may have ended before it trimmed the log
        self._trimmed_to = Revision(0)
        _create_private(path)
        _refuse_stump(path)
        with _explained(path):
            self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
            try:
                self._configure()
                self._check_identity(path)
                self._check_integrity(path)
                self._migrate()
                self._connection.execute(_OBJECTS_FOLLOW)
            except BaseException:
                self._connection.close()
                raise

    def load(self, max_events: int, max_bytes: int) -> Loaded:
        """Everything, as memory wants it."""
        with _explained(self.path):
            objects = rows.read_objects(self._connection)
            # With damaged rows the index stays as it is: it may hold the only intact copy of their keys.
            if objects.index_is_wrong and not objects.damaged:
                _log.warning("the index of %s was damaged; rebuilt it from the objects", self.path)
                self._connection.execute("REINDEX objects_by_key")
            history, revision = self._load_history(objects.tables, max_events, max_bytes)
        return Loaded(objects.tables, history, revision, objects.damaged)

    def commit(self, events: Sequence[StoreEvent], floor: Revision) -> None:
        """Makes the changes durable together, or raises StorageFailed and has changed nothing."""
        try:
            if len(events) <= _ROWS_PER_STATEMENT and not self._must_trim(floor):
                self._write(events)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                for start in range(0, len(events), _ROWS_PER_STATEMENT):
                    self._write(events[start : start + _ROWS_PER_STATEMENT])
                self._trim(floor, _TRIM_ROWS + 4 * len(events))
                self._connection.execute("COMMIT")
            self._count_commit()
        except apsw.FullError as error:
            self._abandon()
            raise DiskFull(f"cannot write {self.path}: {error}") from error
        except Exception as error:  # any error: no writer has been told of a success yet
            self._abandon()
            raise StorageFailed(f"cannot write {self.path}: the write could not be made durable: {error}") from error

    def revision(self) -> Revision:
        """The newest on disk."""
        return Revision(self._connection.execute("SELECT max(revision) FROM events").get or 0)

    @property
    def connection(self) -> apsw.Connection:
        """Return the connection, for `fsck`, which repairs what this class expects to be intact."""
        return self._connection

    def make_index(self) -> None:
        self._connection.execute(_INDEX)

    def append(self, event: StoreEvent) -> None:
        """Adds a change to the log, and so to the objects, within a transaction of the caller's."""
        self._write([event])

    def insert(self, entry: StoreEntry) -> None:
        """Puts an object back without a change, within a transaction of the caller's."""
        key = (entry.table, entry.namespace, entry.name)
        sum_ = rows.checksum(*key, entry.revision, entry.value)
        statement = "INSERT INTO objects (resource, namespace, name, revision, value, sum) VALUES (?, ?, ?, ?, ?, ?)"
        self._connection.execute(statement, (*key, entry.revision, entry.value, sum_))

    def start_history(self, at: Revision) -> None:
        """Makes the store go on behind this revision, without a past."""
        with self._connection:
            self._connection.execute("DELETE FROM events")
            self._connection.execute(
                _append(1), (at, rows.RESTORED, "", "", "", b"", rows.checksum("", "", "", at, b""))
            )

    def checkpoint_if_due(self) -> None:
        """Copies the WAL into the database before it grows; the next commit starts it anew. A failure loses
        nothing (the WAL still has it all) and is met again by the next attempt."""
        if self._wal_pages >= _CHECKPOINT_PAGES or self._is_full:
            self._wal_pages = 0
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except Exception as error:
                _log.warning("cannot copy the write-ahead log into the database: %s", error)

    def save_space(self, is_full: bool) -> None:
        """While the disk is full, the WAL is kept short and no free page is kept."""
        self._is_full = is_full
        if is_full:
            self.needs_tidying = self._log_is_long = True
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except Exception as error:
                _log.warning("cannot copy the write-ahead log into the database: %s", error)

    def tidy(self, floor: Revision) -> None:
        """One small step of the upkeep that commits have left over. What fails is tried again after more commits."""
        try:
            self.needs_tidying = self._tidy(floor)
        except Exception as error:
            _log.warning("cannot compact the database: %s", error)
            self.needs_tidying = False
            self._abandon()

    def _tidy(self, floor: Revision) -> bool:
        spare = self._free_pages_above_slack()
        if not self._log_is_long and spare <= 0:
            return False
        self._connection.execute("BEGIN IMMEDIATE")
        self._trim(floor, _TRIM_ROWS)
        if spare > 0:
            self._connection.execute(f"PRAGMA incremental_vacuum({min(_VACUUM_PAGES, spare)})").fetchall()
        self._connection.execute("COMMIT")
        self._wal_pages += _VACUUM_PAGES
        self.checkpoint_if_due()
        return True

    def close(self) -> None:
        """Leaves one file: the WAL is copied into the database and removed. Where that fails it stays, and the next
        start reads it."""
        try:
            self._connection.close()
        except Exception as error:
            _log.warning("the database was not closed cleanly: %s", error)

    def _configure(self) -> None:
        connection = self._connection
        connection.set_busy_timeout(10_000)  # for a backup that closes its connection; the lock excludes other servers
        if not connection.pragma("page_count"):
            connection.pragma("page_size", _PAGE_BYTES)
            connection.pragma("auto_vacuum", 2)  # incremental; only takes before the first table
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", 2)
        connection.pragma("journal_size_limit", 4 * _CHECKPOINT_PAGES * _PAGE_BYTES)
        connection.pragma("cache_size", -4096)
        connection.pragma("temp_store", 2)
        connection.pragma("cell_size_check", 1)
        connection.pragma("trusted_schema", 0)
        connection.wal_autocheckpoint(0)  # see `checkpoint_if_due`: not inside COMMIT

    def _check_identity(self, path: Path) -> None:
        version = self._connection.pragma("user_version")
        application = self._connection.pragma("application_id")
        tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").get
        if not version and not application and not tables:
            self._create_schema()
            return
        if application != APPLICATION_ID:
            raise StoreCorrupt(f"{path} is not a Remuda database")
        if version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{path} was written by a newer version of Remuda (format {version}, this one reads up to "
                f"{SCHEMA_VERSION}); start that version, or restore a backup made before the upgrade"
            )

    def _migrate(self) -> None:
        if self._connection.pragma("user_version") == 1:
            with self._connection:
                rows.add_checksums(self._connection)
                self._connection.pragma("user_version", SCHEMA_VERSION)

    def _create_schema(self) -> None:
        with self._connection:
            self._connection.execute(_SCHEMA)
            self._connection.execute(_INDEX)
            self._connection.pragma("application_id", APPLICATION_ID)
            self._connection.pragma("user_version", SCHEMA_VERSION)

    def _check_integrity(self, path: Path) -> None:
        complaints = [str(one) for (one,) in self._connection.execute(f"PRAGMA quick_check({_MOST_COMPLAINTS})")]
        for complaint in complaints:
            if complaint != "ok" and not _OF_ONE_ROW.fullmatch(complaint):
                raise StoreCorrupt(_corrupt(path, complaint))

    def _load_history(
        self, tables: dict[str, ObjectTable], max_events: int, max_bytes: int
    ) -> tuple[History, Revision]:
        first = self._connection.execute("SELECT min(revision) FROM events").get or 1
        history = History(max_events, max_bytes, floor=first - 1)
        newest, damaged = 0, False
        for revision, event, intact in rows.read_events(self._connection, first - 1, tables):
            if not intact:
                damaged = True
                continue
            newest = max(newest, revision)
            if event is None:
                history.floor = Revision(revision)
            else:
                history.append(event)
        if damaged:
            # The damaged rows may be the newest ones; objects remember revisions too.
            newest = max(newest, *(entry.revision for held in tables.values() for entry in held.walk("", None)))
            return self._give_up_history(Revision(newest + REVISIONS_SKIPPED), max_events, max_bytes)
        return history, Revision(newest)

    def _give_up_history(self, start: Revision, max_events: int, max_bytes: int) -> tuple[History, Revision]:
        """Start a new history. A damaged log may have lost its newest revision: clients that know it list again."""
        _log.warning("the log of changes in %s was damaged; watches start over at revision %d", self.path, start)
        self.start_history(start)
        return History(max_events, max_bytes, floor=start), start

    def _write(self, events: Sequence[StoreEvent]) -> None:
        values: list[str | int | bytes] = []
        for event in events:
            entry = event.entry
            key = (entry.table, entry.namespace, entry.name)
            sum_ = rows.checksum(*key, entry.revision, entry.value)
            values += (entry.revision, event.type, *key, entry.value, sum_)
            self._wal_pages += 1 + 2 * len(entry.value) // _PAGE_BYTES
        self._connection.execute(_append(len(events)), values)

    def _must_trim(self, floor: Revision) -> bool:
        return self._log_is_long or floor - self._trimmed_to >= _TRIM_STEP

    def _trim(self, floor: Revision, rows: int) -> None:
        if floor == self._trimmed_to and not self._log_is_long:
            return
        self._trimmed_to = floor
        self._connection.execute(_TRIM, (floor, rows))
        self._log_is_long = self._connection.changes() >= rows

    def _free_pages_above_slack(self) -> int:
        free = int(self._connection.pragma("freelist_count"))
        if self._is_full:
            return free
        return free - max(_SLACK_PAGES, int(self._connection.pragma("page_count")) // 4)

    def _count_commit(self) -> None:
        self._commits += 1
        self._wal_pages += _PAGES_PER_COMMIT
        if self._log_is_long or self._commits % _TIDY_EVERY == 0:
            self.needs_tidying = True

    def _abandon(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except Exception as error:
                _log.warning("cannot roll back a failed transaction: %s", error)


def _create_private(path: Path) -> None:
    """SQLite gives the WAL and its index the mode of the database."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnusable(f"cannot open {path}: {error.strerror}") from error
    sync_directory(path.parent)


def _refuse_stump(path: Path) -> None:
    """Raise StoreCorrupt for a truncated database. SQLite takes a file that is shorter than its smallest page for a new
    one and would overwrite it. A journal beside it means that our very first write was interrupted: it may start
    over."""
    if 0 < path.stat().st_size < 512 and not path.with_name(f"{path.name}-journal").exists():
        raise StoreCorrupt(_corrupt(path, "it is cut short"))


def _corrupt(path: Path, why: str) -> str:
    why = " ".join(why.replace("*** in database main ***", "").split())
    return f"{path} is damaged ({why}); restore a backup into a new data directory"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into messages for the person who starts the server."""
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreCorrupt(_corrupt(path, str(error))) from error
    except apsw.Error as error:
        raise StoreUnusable(f"cannot open {path}: {error}") from error
