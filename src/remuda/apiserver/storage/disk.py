"""State on disk: one SQLite database in WAL mode, used by one thread at a time.

`commit` makes a batch of changes durable, all or nothing. When it returns, a power cut loses none of them
(`synchronous=FULL` syncs the WAL on every commit). The event log contains the changes above the floor given with each
commit. Older ones are deleted in steps that are small compared with a commit, and freed pages are returned to the file
system in small steps too, so no file grows without limit and no write waits long. The newest event is never deleted:
the counter continues from its revision after a restart, even if its object is deleted.

Every row has a checksum (`rows.py`). A database whose structure is damaged is refused. One with damaged objects opens,
and `load` names them. A damaged log is discarded: the history starts anew, and watchers list again.
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
APPLICATION_ID = 0x524D4441  # "RMDA": identifies our databases, also to `file`

_PAGE_BYTES = 8192
# The WAL is copied into the database after about 8 MB. Counted here, because a hook of SQLite would make every commit
# wait for the interpreter lock once more: each change is in the log, the objects and its index.
_CHECKPOINT_PAGES = 1000
_PAGES_PER_COMMIT = 4
_TRIM_STEP = 256  # revisions that the floor of the log moves before it is trimmed, to avoid a statement per commit
_TRIM_ROWS = 256  # rows of the log per trim, besides four per written change
_VACUUM_PAGES = 64  # returned in one step
_TIDY_EVERY = 64  # commits after which the next pause looks for free pages
_SLACK_PAGES = 512  # free pages that are kept for later writes

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

# SQLite's errors about a value of one row: the row's checksum detects the same damage, and identifies the row.
_OF_ONE_ROW = re.compile(r"(NULL|NUMERIC|TEXT|non-[A-Z]+) value in (objects|events)\.[a-z]+")
_MOST_COMPLAINTS = 100

# How far the counter jumps if clients may have seen revisions newer than the newest on disk: more writes than a server
# makes between a backup and its restore.
REVISIONS_SKIPPED = 1_000_000_000

# Each statement releases the interpreter lock and must get it back from a busy event loop. So a batch is one statement
# if possible: it appends to the log, triggers update the objects, and it commits itself.
_ROWS_PER_STATEMENT = 64

# Triggers of this connection, not of the database: they are part of the program, not of the data.
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


# One upper bound, not two: SQLite would search by one and read the whole log for the other.
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
    """Open database. Not thread-safe: one thread uses it at a time."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        """Open or create the database. Raise StoreCorrupt, StoreTooNew or StoreUnusable."""
        self.needs_tidying = True
        self.path = path
        self._wal_pages = 0
        self._commits = 0
        self._is_full = False
        self._log_is_long = True  # assumed until known: the last process may have ended before it trimmed the log
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
        """Return everything, in the form that memory needs."""
        with _explained(self.path):
            objects = rows.read_objects(self._connection)
            # With damaged rows the index stays as it is: it may hold the only intact copy of their keys.
            if objects.index_is_wrong and not objects.damaged:
                _log.warning("the SQLite index of %s was damaged; rebuilt it from the stored objects", self.path)
                self._connection.execute("REINDEX objects_by_key")
            history, revision = self._load_history(objects.tables, max_events, max_bytes)
        return Loaded(objects.tables, history, revision, objects.damaged)

    def commit(self, events: Sequence[StoreEvent], floor: Revision) -> None:
        """Make the changes durable together, or raise StorageFailed and change nothing."""
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
        except Exception as error:  # any error: no client has been told of success yet
            self._abandon()
            raise StorageFailed(f"cannot write {self.path}: the write could not be made durable: {error}") from error

    def revision(self) -> Revision:
        """Return the newest revision on disk."""
        return Revision(self._connection.execute("SELECT max(revision) FROM events").get or 0)

    @property
    def connection(self) -> apsw.Connection:
        """Return the connection, for `fsck`, which repairs what this class expects to be intact."""
        return self._connection

    def make_index(self) -> None:
        self._connection.execute(_INDEX)

    def append(self, event: StoreEvent) -> None:
        """Append a change to the log, and so to the objects, within the caller's transaction."""
        self._write([event])

    def insert(self, entry: StoreEntry) -> None:
        """Restore an object without a change in the log, within the caller's transaction."""
        key = (entry.table, entry.namespace, entry.name)
        sum_ = rows.checksum(*key, entry.revision, entry.value)
        statement = "INSERT INTO objects (resource, namespace, name, revision, value, sum) VALUES (?, ?, ?, ?, ?, ?)"
        self._connection.execute(statement, (*key, entry.revision, entry.value, sum_))

    def start_history(self, at: Revision) -> None:
        """Continue after this revision, without history."""
        with self._connection:
            self._connection.execute("DELETE FROM events")
            self._connection.execute(
                _append(1), (at, rows.RESTORED, "", "", "", b"", rows.checksum("", "", "", at, b""))
            )

    def checkpoint_if_due(self) -> None:
        """Copy the WAL into the database before it grows; the next commit starts a new one.

        A failure loses nothing (the WAL still has all changes) and shows again at the next attempt.
        """
        if self._wal_pages >= _CHECKPOINT_PAGES or self._is_full:
            self._wal_pages = 0
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except Exception as error:
                _log.warning("cannot copy the write-ahead log into the database: %s", error)

    def save_space(self, is_full: bool) -> None:
        """Keep the WAL short and keep no free pages while the disk is full."""
        self._is_full = is_full
        if is_full:
            self.needs_tidying = self._log_is_long = True
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except Exception as error:
                _log.warning("cannot copy the write-ahead log into the database: %s", error)

    def tidy(self, floor: Revision) -> None:
        """Do one small step of the maintenance that commits left over. Failures are retried after more commits."""
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
        """Close the database and leave one file: copy the WAL into it and remove the WAL. If that fails, the WAL stays
        and the next start reads it.
        """
        try:
            self._connection.close()
        except Exception as error:
            _log.warning("the database was not closed cleanly: %s", error)

    def _configure(self) -> None:
        connection = self._connection
        connection.set_busy_timeout(10_000)  # for a backup that closes its connection; the lock excludes other servers
        if not connection.pragma("page_count"):
            connection.pragma("page_size", _PAGE_BYTES)
            connection.pragma("auto_vacuum", 2)  # incremental; only possible before the first table
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
    """Create the file with a private mode, which SQLite copies to the WAL and its index."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnusable(f"cannot open {path}: {error.strerror}") from error
    sync_directory(path.parent)


def _refuse_stump(path: Path) -> None:
    """Raise StoreCorrupt for a truncated database. SQLite treats a file that is shorter than its smallest page as new,
    and would overwrite it. With a journal beside it, our first write was interrupted, and it may start over.
    """
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
