"""A flipped bit is noticed, named, and never served; nothing that is damaged looks deleted."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

from remuda.apiserver.storage import fsck
from remuda.apiserver.storage.backup import backup, restore
from remuda.apiserver.storage.disk import Disk, Loaded
from remuda.apiserver.storage.history import DEFAULT_BYTES, DEFAULT_EVENTS
from remuda.apiserver.storage.memory import Memory
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import Compacted, ObjectsDamaged, Revision, StoreLocked, StoreUnusable

FORMAT_1 = Path(__file__).parent / "format1"
T = "machines"

Objects = dict[tuple[str, str, str], bytes]

_HEAD = 120  # bytes at the start of a value that are not of this value alone


def value(name: str, revision: int, size: int = 200) -> bytes:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(revision)}
    filler = random.Random(f"{name}{revision}").randbytes(size // 2).hex()
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Machine", "metadata": metadata, "data": filler})


async def filled(home: Path, count: int = 40, tables: Sequence[str] = (T, "secrets")) -> Objects:
    """A store with objects of some sizes, some of them changed and deleted; gives what is in it."""
    store = await SqliteStore.open(home)
    for table in tables:
        for i in range(count):
            name, size = f"n{i}", (150, 900, 20_000)[i % 3]
            entry = await store.put(
                table, "ns", name, lambda revision, n=name, s=size: value(n, revision, s), expect=None
            )
            if i % 4 == 0:
                entry = await store.put(table, "ns", name, lambda r, n=name: value(n, r), expect=entry)
            if i % 10 == 9:
                await store.delete(table, "ns", name, lambda r, n=name: value(n, r), expect=entry)
    held = {(e.table, e.namespace, e.name): e.value for table in tables for e in store.scan(table)}
    await store.close()
    return held


def loaded(home: Path) -> Loaded:
    disk = Disk(home / "state.db")
    try:
        return disk.load(DEFAULT_EVENTS, DEFAULT_BYTES)
    finally:
        disk.close()


def flip(home: Path, bit: int) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def execute(home: Path, statement: str, *values: object) -> None:
    """Changes rows as no server does: without their checksums."""
    connection = apsw.Connection(str(home / "state.db"))
    connection.execute(statement, values)  # type: ignore[arg-type]
    connection.close()


def assert_nothing_changed_silently(found: Loaded, held: Objects) -> None:
    memory = Memory(*found)
    for key, expected in held.items():
        try:
            entry = memory.get(*key)
        except ObjectsDamaged:
            continue
        assert entry is not None, f"{key} looks deleted"
        assert entry.value == expected
    seen = {(e.table, e.namespace, e.name) for table in memory.tables() for e in memory.intact(table, "", None, 0)}
    assert seen <= set(held)


async def test_flipped_bits_of_values_are_all_noticed(tmp_path: Path) -> None:
    held = await filled(tmp_path / "data")
    pristine = (tmp_path / "data" / "state.db").read_bytes()
    rng = random.Random(18)
    keys = sorted(held)
    contents = _contents(tmp_path / "data")
    in_objects = in_log = 0
    while in_objects < 150:
        key = rng.choice(keys)
        start = rng.randrange(_HEAD, len(held[key]) - 16)
        places = _all(pristine, held[key][start : start + 16])
        if not places:
            continue  # it goes on on another page
        flip(tmp_path / "data", (rng.choice(places) + rng.randrange(16)) * 8 + rng.randrange(8))
        found = loaded(tmp_path / "data")
        damaged = [one.key for one in found.damaged]
        if damaged:
            assert damaged == [key]
            in_objects += 1
        elif found.revision > 1_000_000_000:
            assert found.history.floor == found.revision
            in_log += 1
        else:  # remains of an earlier write, on a part of a page that is free
            assert _contents(tmp_path / "data") == contents
        assert_nothing_changed_silently(found, held)
        (tmp_path / "data" / "state.db").write_bytes(pristine)
    assert in_log > 50


def _contents(home: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(home / "state.db"))
    try:
        return [
            row for table in ("objects", "events") for row in connection.execute(f"SELECT * FROM {table} NOT INDEXED")
        ]
    finally:
        connection.close()


async def test_flipped_bits_anywhere_change_no_object_silently(tmp_path: Path) -> None:
    held = await filled(tmp_path / "data", 20, [T])
    pristine = (tmp_path / "data" / "state.db").read_bytes()
    rng = random.Random(7)
    outcomes = dict.fromkeys(("refused", "damaged", "whole"), 0)
    for _ in range(200):
        flip(tmp_path / "data", rng.randrange(len(pristine) * 8))
        try:
            found = loaded(tmp_path / "data")
        except StoreUnusable:
            outcomes["refused"] += 1
        else:
            assert_nothing_changed_silently(found, held)
            outcomes["damaged" if found.damaged else "whole"] += 1
        (tmp_path / "data" / "state.db").write_bytes(pristine)
    assert outcomes["damaged"] > 50, outcomes


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE objects SET value = x'00' WHERE name = 'n3' AND resource = 'machines'",
        "UPDATE objects SET revision = revision + 1 WHERE name = 'n3' AND resource = 'machines'",
        "UPDATE objects SET sum = sum + 1 WHERE name = 'n3' AND resource = 'machines'",
    ],
)
async def test_damage_of_any_column_is_noticed(tmp_path: Path, change: str) -> None:
    await filled(tmp_path)
    execute(tmp_path, change)
    assert [one.key for one in loaded(tmp_path).damaged] == [(T, "ns", "n3")]


async def test_damaged_key_does_not_make_its_object_look_deleted(tmp_path: Path) -> None:
    """The index has the name as it was."""
    held = await filled(tmp_path)
    database = (tmp_path / "state.db").read_bytes()
    flips = []
    for start in _all(database, b"machinesnsn3"):
        (tmp_path / "state.db").write_bytes(database)
        flip(tmp_path, (start + len("machinesns")) * 8)
        found = loaded(tmp_path)
        assert_nothing_changed_silently(found, held)
        flips.append(bool(found.damaged))
    assert any(flips)


def _all(database: bytes, part: bytes) -> list[int]:
    places, at = [], database.find(part)
    while at >= 0:
        places.append(at)
        at = database.find(part, at + 1)
    return places


async def test_damaged_index_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = await filled(tmp_path)
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.execute("PRAGMA writable_schema = ON")
    # The index covers another column for a moment, and so is wrong for every row.
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ', name)', ', value)') WHERE name = 'objects_by_key'"
    )
    connection.close()
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.execute("REINDEX objects_by_key")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ', value)', ', name)') WHERE name = 'objects_by_key'"
    )
    connection.close()
    assert_nothing_changed_silently(loaded(tmp_path), held)
    assert "index" in caplog.text
    caplog.clear()
    store = await SqliteStore.open(tmp_path)
    assert caplog.text == ""
    assert store.damaged == ()
    await store.delete(T, "ns", "n1", lambda r: b"{}", expect=store.get(T, "ns", "n1"))  # type: ignore[arg-type]
    await store.close()
    assert Memory(*loaded(tmp_path)).get(T, "ns", "n1") is None


async def test_damaged_object_is_refused_by_all_reads_and_writes(tmp_path: Path) -> None:
    await filled(tmp_path)
    execute(tmp_path, "UPDATE objects SET value = x'7b7d' WHERE name = 'n3' AND resource = 'machines'")
    store = await SqliteStore.open(tmp_path)
    named = "machines ns/n3"
    for read in (
        lambda: store.get(T, "ns", "n3"),
        lambda: store.latest(T, "ns", "n3"),
        lambda: store.scan(T),
        lambda: store.scan(T, "ns"),
        lambda: store.scan(T, at=Revision(store.revision - 1)),
        lambda: store.scan_latest(T),
        lambda: store.count_latest(T, "ns"),
    ):
        with pytest.raises(ObjectsDamaged, match=named) as refused:
            read()
        assert (refused.value.code, refused.value.reason) == (500, "StorageReadError")
    with pytest.raises(ObjectsDamaged, match=named):
        await store.put(T, "ns", "n3", lambda revision: b"{}", expect=None)
    assert store.scan(T, "other") == []
    assert store.get(T, "ns", "n4") is not None
    assert len(store.scan("secrets")) == 36
    assert len(store.intact(T)) == 35
    await store.put(T, "ns", "another", lambda revision: b"{}", expect=None)
    await store.close()


async def test_damaged_event_log_forces_watchers_to_relist(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = await filled(tmp_path)
    newest = loaded(tmp_path).revision
    execute(tmp_path, "UPDATE events SET type = 'ADDEE' WHERE revision = ?", newest)
    for _ in range(2):
        store = await SqliteStore.open(tmp_path)
        assert store.revision > newest
        with pytest.raises(Compacted):
            store.watch(T, since=Revision(newest - 1))
        with pytest.raises(Compacted):
            store.watch(T, since=newest)
        await asyncio.sleep(0)
        await store.close()
    assert caplog.text.count("log of changes") == 1
    assert_nothing_changed_silently(loaded(tmp_path), held)


# -- format 1 ----------------------------------------------------------------------------------------------------------


def old(home: Path) -> Path:
    """A data directory of format 1, which has no checksums, as the last version that wrote it left it."""
    home.mkdir()
    (home / "state.db").write_bytes(gzip.decompress((FORMAT_1 / "state.db.gz").read_bytes()))
    return home


def rows_of(home: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(home / "state.db"))
    try:
        statement = "SELECT resource, namespace, name, revision, value FROM objects ORDER BY 1, 2, 3"
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


async def test_format_1_database_is_upgraded_with_checksums(tmp_path: Path) -> None:
    home = old(tmp_path / "data")
    before = rows_of(home)
    assert len(before) > 10
    store = await SqliteStore.open(home)
    assert store.damaged == ()
    assert store.revision == 23
    assert [e.name for e in store.scan("configmaps", "default") if "kept" in e.name] == [f"kept-{i}" for i in range(7)]
    assert store.watch("configmaps", since=Revision(5)).revision < store.revision
    await store.put("configmaps", "default", "new", lambda revision: b"{}", expect=None)
    await store.close()
    assert [row for row in rows_of(home) if row[2] != "new"] == before
    execute(home, "UPDATE objects SET value = x'00' WHERE name = 'kept-1'")
    assert [one.name for one in loaded(home).damaged] == ["kept-1"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE objects SET value = CAST(replace(CAST(value AS TEXT), '{\"api', '{\"api\"') AS BLOB)",
        "UPDATE objects SET value = CAST(replace(CAST(value AS TEXT), 'kept-2\"', 'kept-r\"') AS BLOB)",
        "UPDATE objects SET revision = revision + 1",
    ],
)
async def test_format_1_damage_is_detected_when_object_contradicts_its_row(tmp_path: Path, change: str) -> None:
    home = old(tmp_path / "data")
    execute(home, f"{change} WHERE name = 'kept-2'")
    for _ in range(2):
        assert [one.key for one in loaded(home).damaged] == [("configmaps", "default", "kept-2")]


async def test_backup_without_checksums_is_restored(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(gzip.decompress((FORMAT_1 / "remuda.backup.gz").read_bytes()))
    restore(tmp_path / "file", tmp_path / "data")
    assert rows_of(tmp_path / "data") == rows_of(old(tmp_path / "old"))
    assert loaded(tmp_path / "data").damaged == []


# -- fsck --------------------------------------------------------------------------------------------------------------


def damage(home: Path, name: str, *, log: bool = True) -> None:
    execute(home, f"UPDATE objects SET value = x'7b7d' WHERE name = '{name}' AND resource = 'machines'")
    if log:
        execute(home, f"DELETE FROM events WHERE name = '{name}'")


async def test_fsck_reports_intact_database_as_clean(tmp_path: Path) -> None:
    held = await filled(tmp_path)
    report = fsck.check(tmp_path)
    assert report.is_clean
    assert (report.objects, report.changes) == (len(held), 108)
    assert fsck.repair(tmp_path, None) == []
    assert loaded(tmp_path).revision == 108


async def test_fsck_names_damaged_objects(tmp_path: Path) -> None:
    await filled(tmp_path)
    damage(tmp_path, "n3", log=False)
    execute(tmp_path, "UPDATE events SET sum = 0 WHERE revision = 7")
    report = fsck.check(tmp_path)
    assert ([str(one) for one in report.damaged], report.damaged_changes) == (["machines ns/n3"], 1)
    assert not report.is_clean


async def test_fsck_repairs_from_the_log(tmp_path: Path) -> None:
    held = await filled(tmp_path)
    damage(tmp_path, "n3", log=False)
    (repaired,) = fsck.repair(tmp_path, None)
    assert (str(repaired.damage), repaired.source, repaired.is_older) == ("machines ns/n3", fsck.LOG, False)
    found = loaded(tmp_path)
    assert found.damaged == []
    assert found.revision == 108
    assert Memory(*found).get(T, "ns", "n3").value == held[T, "ns", "n3"]  # type: ignore[union-attr]


async def test_fsck_never_puts_a_deleted_object_back_from_the_log(tmp_path: Path) -> None:
    """A damaged row bears the name of an object that was deleted: the last state of that one is in the log."""
    held = await filled(tmp_path)
    assert (T, "ns", "n9") not in held
    execute(tmp_path, "UPDATE objects SET name = 'n9' WHERE name = 'n3' AND resource = 'machines'")
    repaired = fsck.repair(tmp_path, None)
    assert {one.damage.name: one.source for one in repaired}.get("n9", "") == ""
    assert "n9" not in [entry.name for entry in Memory(*loaded(tmp_path)).intact(T, "", None, 0)]


async def test_fsck_repairs_a_damaged_key_from_the_index(tmp_path: Path) -> None:
    held = await filled(tmp_path)
    database = (tmp_path / "state.db").read_bytes()
    repaired = []
    for start in _all(database, b"machinesnsn3"):
        (tmp_path / "state.db").write_bytes(database)
        flip(tmp_path, (start + len("machinesns")) * 8)
        if loaded(tmp_path).damaged:
            repaired += fsck.repair(tmp_path, None)
            found = loaded(tmp_path)
            assert found.damaged == []
            memory = Memory(*found)
            assert {
                (e.table, e.namespace, e.name): e.value for t in memory.tables() for e in memory.scan(t, "", None, 0)
            } == held
    assert {one.source for one in repaired} == {fsck.INDEX}


async def test_fsck_repairs_from_a_backup_with_a_new_revision(tmp_path: Path) -> None:
    await filled(tmp_path / "data")
    backup(tmp_path / "data", tmp_path / "file")
    saved = Memory(*loaded(tmp_path / "data")).get(T, "ns", "n3")
    assert saved is not None
    store = await SqliteStore.open(tmp_path / "data")
    newer = await store.put(T, "ns", "n3", lambda r: value("n3", r, 50), expect=store.get(T, "ns", "n3"))
    await store.put(T, "ns", "another", lambda r: value("another", r), expect=None)
    await store.close()
    damage(tmp_path / "data", "n3")
    (repaired,) = fsck.repair(tmp_path / "data", None)
    assert repaired.source == ""
    assert [one.name for one in loaded(tmp_path / "data").damaged] == ["n3"]
    (repaired,) = fsck.repair(tmp_path / "data", tmp_path / "file")
    assert (repaired.source, repaired.is_older) == (fsck.BACKUP, True)
    found = Memory(*loaded(tmp_path / "data"))
    entry = found.get(T, "ns", "n3")
    assert entry is not None
    assert entry.revision == found.revision > newer.revision
    assert msgspec.json.decode(entry.value)["metadata"]["resourceVersion"] == str(entry.revision)
    assert msgspec.json.decode(entry.value)["data"] == msgspec.json.decode(saved.value)["data"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]


async def test_fsck_leaves_damaged_object_without_copy_until_forgotten(tmp_path: Path) -> None:
    await filled(tmp_path / "data")
    backup(tmp_path / "data", tmp_path / "file")
    store = await SqliteStore.open(tmp_path / "data")
    for name in ("later", "another"):
        await store.put(T, "ns", name, lambda r, n=name: value(n, r), expect=None)
    await store.close()
    damage(tmp_path / "data", "later")
    damage(tmp_path / "data", "n3")
    repaired = fsck.repair(tmp_path / "data", tmp_path / "file")
    assert {one.damage.name: one.source for one in repaired} == {"later": "", "n3": fsck.BACKUP}
    assert [one.name for one in loaded(tmp_path / "data").damaged] == ["later"]
    before = loaded(tmp_path / "data").revision
    (forgotten,) = fsck.repair(tmp_path / "data", tmp_path / "file", ["machines ns/later", "machines ns/n4"])
    assert (forgotten.damage.name, forgotten.is_forgotten) == ("later", True)
    found = loaded(tmp_path / "data")
    assert found.damaged == []
    assert Memory(*found).get(T, "ns", "later") is None
    assert Memory(*found).get(T, "ns", "n4") is not None
    assert found.history.floor == found.revision > before  # watchers list again, and see that it is gone


async def test_fsck_discards_damaged_event_log(tmp_path: Path) -> None:
    await filled(tmp_path)
    execute(tmp_path, "UPDATE events SET sum = 0 WHERE revision = 7")
    assert fsck.repair(tmp_path, None) == []
    assert fsck.check(tmp_path).is_clean
    assert loaded(tmp_path).revision > 108


async def test_fsck_refuses_a_database_in_use(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    with pytest.raises(StoreLocked, match="in use by process"):
        fsck.check(tmp_path)
    await store.close()
    with pytest.raises(StoreUnusable, match="not a data directory"):
        fsck.check(tmp_path / "nothing")
