"""The files: private, locked, refused when damaged or too new, and bounded in size."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from remuda.apiserver.storage import disk as disk_module
from remuda.apiserver.storage.disk import Disk
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import (
    Revision,
    StorageFailed,
    StoreCorrupt,
    StoreEntry,
    StoreEvent,
    StoreLocked,
    StoreTooNew,
    StoreUnusable,
)

T = "machines"


def event(revision: int, name: str = "a", size: int = 100, kind: str = "ADDED") -> StoreEvent:
    return StoreEvent(kind, StoreEntry(T, "ns", name, Revision(revision), os.urandom(size)), None)  # type: ignore[arg-type]


async def filled(path: Path, count: int = 200) -> None:
    store = await SqliteStore.open(path)
    await asyncio.gather(
        *(store.put(T, "ns", f"n{i}", lambda revision: b"%d" % revision * 300, expect=None) for i in range(count))
    )
    await store.close()


async def test_database_files_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = await SqliteStore.open(tmp_path / "deep" / "data")
        await store.put(T, "ns", "a", lambda revision: b"v", expect=None)
        home = tmp_path / "deep" / "data"
        modes = {p.name: p.stat().st_mode & 0o777 for p in home.iterdir()}
        assert modes == dict.fromkeys(["lock", "state.db", "state.db-wal", "state.db-shm"], 0o600)
        assert home.stat().st_mode & 0o777 == 0o700
        await store.close()
    finally:
        os.umask(old)


async def test_second_store_is_rejected_with_pid_of_lock_holder(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}"):
        await SqliteStore.open(tmp_path)
    await store.close()
    await (await SqliteStore.open(tmp_path)).close()


async def test_open_waits_for_child_of_killed_server_holding_the_lock(tmp_path: Path) -> None:
    """A server that is killed between fork and exec of a child leaves its lock to that child for a moment."""
    program = (
        "import os, pathlib, sys, time; from remuda.apiserver.storage.directory import DirectoryLock\n"
        "lock = DirectoryLock(pathlib.Path(sys.argv[1]))\n"
        "if os.fork(): os._exit(0)\n"
        "time.sleep(1)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    await (await SqliteStore.open(tmp_path)).close()


async def test_lock_of_killed_process_is_released(tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path; from remuda.apiserver.storage.directory import DirectoryLock;"
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(StoreLocked, match=f"process {holder.pid}"):
            await SqliteStore.open(tmp_path)
        holder.send_signal(signal.SIGKILL)
    await (await SqliteStore.open(tmp_path)).close()


async def test_failed_open_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is not a database" * 1000)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="damaged"):
            await SqliteStore.open(tmp_path)


@pytest.mark.parametrize("page", [0, 3, 8, 20])
async def test_damaged_page_is_detected_at_open(tmp_path: Path, page: int) -> None:
    await filled(tmp_path)
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek(page * 8192 + (100 if page == 0 else 0))
        file.write(os.urandom(64))
    with pytest.raises(StoreCorrupt, match="restore a backup"):
        await SqliteStore.open(tmp_path)


async def test_truncated_database_is_found_at_open(tmp_path: Path) -> None:
    await filled(tmp_path)
    os.truncate(tmp_path / "state.db", 8192 * 5)
    with pytest.raises(StoreCorrupt):
        await SqliteStore.open(tmp_path)


async def test_newer_database_format_is_rejected(tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.pragma("user_version", 3)
    connection.close()
    with pytest.raises(StoreTooNew, match=r"newer version of Remuda \(format 3, this one reads up to 2\)"):
        await SqliteStore.open(tmp_path)


async def test_foreign_sqlite_database_is_rejected(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.execute("CREATE TABLE recipes (name)")
    connection.close()
    with pytest.raises(StoreCorrupt, match="not a Remuda database"):
        await SqliteStore.open(tmp_path)


async def test_file_in_place_of_data_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match="not a directory"):
        await SqliteStore.open(tmp_path / "file")


def test_event_log_is_trimmed_to_floor_in_small_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "_TRIM_ROWS", 10)
    monkeypatch.setattr(disk_module, "_TRIM_STEP", 10)
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(i) for i in range(1, 101)], Revision(0))

    def logged() -> int:
        return int(disk._connection.execute("SELECT count(*) FROM events").get)

    disk.commit([event(101)], Revision(90))
    assert logged() == 101 - 14  # ten, and four for the one written
    assert disk.needs_tidying
    steps = 0
    while disk.needs_tidying:
        disk.tidy(Revision(90))
        steps += 1
    assert logged() == 11
    assert steps < 15
    disk.close()


def test_trim_reads_only_the_events_to_delete(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(i) for i in range(1, 5001)], Revision(0))
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    disk._connection.set_progress_handler(count, 100)  # called every hundred instructions of SQLite's machine
    disk.commit([event(5001)], Revision(300))
    assert steps < 60
    disk._connection.set_progress_handler(None)
    assert disk._connection.execute("SELECT min(revision) FROM events").get == 261  # 256, and four for the write
    disk.close()


def test_small_batch_is_committed_in_a_single_statement(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(1)], Revision(0))
    run: list[str] = []

    def trace(cursor: object, statement: str, bindings: object) -> bool:
        run.append(statement.split()[0])
        return True

    disk._connection.exec_trace = trace
    disk.commit([event(2, "b"), event(3, "b"), event(4, "c"), event(5, "c", kind="DELETED")], Revision(0))
    disk._connection.exec_trace = None
    assert run == ["INSERT"]
    assert disk._connection.execute("SELECT name, revision FROM objects ORDER BY name").fetchall() == [
        ("a", 1),
        ("b", 3),
    ]
    disk.close()


def test_event_log_is_trimmed_only_in_full_steps(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(i) for i in range(1, 301)], Revision(0))
    oldest = "SELECT min(revision) FROM events"
    disk.commit([event(301)], Revision(255))
    assert disk._connection.execute(oldest).get == 1
    disk.commit([event(302)], Revision(256))
    assert disk._connection.execute(oldest).get == 257
    disk.close()


def test_newest_event_is_never_trimmed(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(1), event(2)], Revision(0))
    disk.tidy(Revision(2))
    assert disk.revision() == 2
    disk.close()


def test_freed_database_pages_are_released(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state.db")
    disk.commit([event(i, f"n{i}", 50_000) for i in range(1, 401)], Revision(0))
    disk.commit([event(i + 400, f"n{i}", 1, "DELETED") for i in range(1, 401)], Revision(400))
    grown = disk._connection.pragma("page_count")
    steps = 0
    while disk.needs_tidying:
        disk.tidy(Revision(400))
        steps += 1
    assert disk._connection.pragma("page_count") < grown / 3
    assert steps > 10
    disk.close()


async def test_database_files_stay_small_under_continuous_updates(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, history_events=100)

    async def rewrite(name: str) -> None:
        entry = None
        for _ in range(300):
            entry = await store.put(T, "ns", name, lambda revision: b"v" * 4000, expect=entry)

    await asyncio.gather(*(rewrite(f"n{i}") for i in range(16)))  # some 20 MB of values
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["state.db"] < 4 << 20
    assert sizes["state.db-wal"] < 20 << 20
    await store.close()


async def test_full_disk_fails_only_the_affected_writes(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    kept = await store.put(T, "ns", "kept", lambda revision: b"v", expect=None)
    connection = store._writer._disk._connection
    connection.pragma("max_page_count", connection.pragma("page_count") + 2)
    with pytest.raises(StorageFailed, match=f"cannot write {tmp_path}/state.db: .*full"):
        await store.put(T, "ns", "big", lambda revision: b"v" * 1_000_000, expect=None)
    assert store.scan(T) == [kept]
    after = await store.put(T, "ns", "small", lambda revision: b"v", expect=None)
    assert after.revision == 3
    await store.close()
    store = await SqliteStore.open(tmp_path)
    assert [e.name for e in store.scan(T)] == ["kept", "small"]
    assert store.revision == 3
    await store.close()
