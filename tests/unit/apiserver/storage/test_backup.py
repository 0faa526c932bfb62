"""Backups: consistent beside a busy server, verified before anything appears, safe against crafted files."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from remuda.apiserver.storage.backup import ArchiveError, backup, restore
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import Compacted, Revision
from remuda.kube import clock
from tests.lab.limits import LIMIT_SECONDS

T = "machines"


def number(count: int, revision: Revision) -> bytes:
    return b"%d" % count


async def home(path: Path) -> Path:
    """A data directory with state, keys and a kubeconfig."""
    store = await SqliteStore.open(path)
    for i in range(5):
        await store.put(T, "ns", f"n{i}", lambda revision: b"%d" % revision, expect=None)
    await store.close()
    (path / "pki" / "deep").mkdir(parents=True)
    (path / "pki" / "ca.key").write_text("secret")
    (path / "pki" / "deep" / "x.crt").write_text("certificate")
    (path / "admin.kubeconfig").write_text("kubeconfig")
    (path / "job.key").write_text("key")
    (path / "unrelated").write_text("not ours")
    return path


async def test_restore_reproduces_backed_up_files_and_objects(tmp_path: Path) -> None:
    source = await home(tmp_path / "data")
    manifest = backup(source, tmp_path / "file")
    assert manifest.revision == 5
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    target = tmp_path / "other" / "data"
    assert restore(tmp_path / "file", target) == manifest
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()) == [
        "admin.kubeconfig",
        "job.key",
        "pki/ca.key",
        "pki/deep/x.crt",
        "state.db",
    ]
    assert {p.stat().st_mode & 0o777 for p in target.rglob("*") if p.is_file()} == {0o600}
    assert (target / "pki" / "ca.key").read_text() == "secret"
    assert target.stat().st_mode & 0o777 == 0o700
    store = await SqliteStore.open(target)
    assert [(e.name, e.value) for e in store.scan(T)] == [(f"n{i}", b"%d" % (i + 1)) for i in range(5)]
    await store.close()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


async def test_restored_store_reuses_no_revision_known_to_clients(tmp_path: Path) -> None:
    source = await home(tmp_path / "data")
    backup(source, tmp_path / "file")
    store = await SqliteStore.open(source)
    known = await store.put(T, "ns", "after-the-backup", lambda revision: b"v", expect=None)
    await store.close()
    restore(tmp_path / "file", tmp_path / "restored")
    for _ in range(2):  # also a restart without any write must not forget it
        store = await SqliteStore.open(tmp_path / "restored")
        await asyncio.sleep(0.1)  # upkeep has had its chance to trim
        assert store.revision > known.revision
        with pytest.raises(Compacted):
            store.watch(T, since=known.revision)
        store.watch(T, since=store.revision).close()
        await store.close()
    store = await SqliteStore.open(tmp_path / "restored")
    start = store.revision
    assert (await store.put(T, "ns", "new", lambda revision: b"v", expect=None)).revision == start + 1
    await store.close()
    store = await SqliteStore.open(tmp_path / "restored")
    assert (store.oldest, store.revision) == (start, start + 1)
    await store.close()


async def test_second_restore_of_a_backup_reuses_no_revision(tmp_path: Path) -> None:
    backup(await home(tmp_path / "data"), tmp_path / "file")
    handed_out: set[int] = set()
    for life in range(3):
        restore(tmp_path / "file", tmp_path / f"life{life}")
        store = await SqliteStore.open(tmp_path / f"life{life}")
        for known in handed_out:  # whoever comes from an earlier life must list again
            with pytest.raises(Compacted):
                store.watch(T, since=Revision(known))
        assert all(known < store.oldest for known in handed_out)
        mine = {store.revision}
        for i in range(20):
            mine.add((await store.put(T, "ns", f"life{life}-{i}", lambda revision: b"v", expect=None)).revision)
        assert not mine & handed_out
        handed_out |= mine
        await store.close()


async def test_watch_from_unknown_future_revision_is_compacted(tmp_path: Path) -> None:
    """With a clock that was set back, the second life can be below the first."""
    backup(await home(tmp_path / "data"), tmp_path / "file")
    restore(tmp_path / "file", tmp_path / "first")
    clock.use(lambda: 0.0)
    try:
        restore(tmp_path / "file", tmp_path / "second")
    finally:
        clock.use(None)
    first = await SqliteStore.open(tmp_path / "first")
    second = await SqliteStore.open(tmp_path / "second")
    assert second.revision < first.revision
    with pytest.raises(Compacted, match=f"unknown resource version: {first.revision}"):
        second.watch(T, since=first.revision)
    await first.close()
    await second.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


async def test_backup_of_running_server_is_a_consistent_snapshot(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "data")
    stop = False

    async def write(worker: int) -> None:
        """Keeps two objects equal by always changing the second after the first."""
        first = second = None
        count = 0
        while not stop:
            encode = partial(number, count := count + 1)
            first = await store.put(T, f"w{worker}", "first", encode, expect=first)
            second = await store.put(T, f"w{worker}", "second", encode, expect=second)

    writers = [asyncio.ensure_future(write(worker)) for worker in range(4)]
    await until(lambda: all(store.get(T, f"w{worker}", "second") for worker in range(4)))
    acknowledged = store.revision
    manifests = []
    for round_ in range(5):
        manifests.append(await asyncio.to_thread(backup, tmp_path / "data", tmp_path / f"file{round_}"))
        await until(lambda: store.revision > manifests[-1].revision)
    stop = True
    await asyncio.gather(*writers)
    await store.close()
    assert acknowledged <= manifests[0].revision < manifests[-1].revision <= store.revision
    for round_, manifest in enumerate(manifests):
        restore(tmp_path / f"file{round_}", tmp_path / f"restored{round_}")
        restored = await SqliteStore.open(tmp_path / f"restored{round_}")
        assert max(e.revision for e in restored.scan(T)) == manifest.revision
        for worker in range(4):
            first, second = (restored.get(T, f"w{worker}", name) for name in ("first", "second"))
            assert first
            assert second
            assert int(first.value) - int(second.value) in (0, 1)
        await restored.close()


async def test_backup_does_not_overwrite_file_without_force(tmp_path: Path) -> None:
    source = await home(tmp_path / "data")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ArchiveError, match="exists already"):
        backup(source, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
    backup(source, tmp_path / "file", force=True)
    restore(tmp_path / "file", tmp_path / "restored")


async def test_backup_of_non_data_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not a data directory"):
        backup(tmp_path, tmp_path / "file")


async def test_backup_of_damaged_store_is_rejected(tmp_path: Path) -> None:
    source = await home(tmp_path / "data")
    with (source / "state.db").open("r+b") as file:
        file.seek(8192 * 3)
        file.write(b"\xff" * 64)
    with pytest.raises(ArchiveError, match="cannot back up"):
        backup(source, tmp_path / "file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


async def test_restore_into_used_directory_is_rejected(tmp_path: Path) -> None:
    source = await home(tmp_path / "data")
    backup(source, tmp_path / "file")
    with pytest.raises(ArchiveError, match="not empty"):
        restore(tmp_path / "file", source)
    store = await SqliteStore.open(tmp_path / "running")
    with pytest.raises(ArchiveError, match="in use by process"):
        restore(tmp_path / "file", tmp_path / "running")
    await store.close()
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "file", tmp_path / "empty")


async def archived(tmp_path: Path) -> bytes:
    backup(await home(tmp_path / "data"), tmp_path / "file")
    return (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("where", [0.02, 0.3, 0.6])
async def test_restore_rejects_backup_with_flipped_bit(tmp_path: Path, where: float) -> None:
    content = bytearray(await archived(tmp_path))
    content[int(len(content) * where)] ^= 1
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ArchiveError):
        restore(tmp_path / "file", tmp_path / "restored")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "file"]


@pytest.mark.parametrize("kept", [0, 100, 5000, 40_000])
async def test_restore_rejects_truncated_backup(tmp_path: Path, kept: int) -> None:
    content = await archived(tmp_path)
    (tmp_path / "file").write_bytes(content[:kept])
    with pytest.raises(ArchiveError):
        restore(tmp_path / "file", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def crafted(original: bytes, name: str, kind: bytes = tarfile.REGTYPE, *, listed: bool = True) -> bytes:
    """The backup with one more member, also in the manifest unless told otherwise."""
    result = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(original)) as source,
        tarfile.open(fileobj=result, mode="w") as target,
    ):
        for member in source:
            file = source.extractfile(member)
            content = file.read() if file else b""
            if member.name == "manifest.json" and listed:
                manifest = json.loads(content)
                manifest["members"][name] = manifest["members"]["pki/ca.key"]
                content = msgspec.json.encode(manifest)
                member.size = len(content)
            target.addfile(member, io.BytesIO(content))
        extra = tarfile.TarInfo(name)
        extra.type, extra.size, extra.linkname = kind, len(b"secret"), "/etc/passwd"
        target.addfile(extra, io.BytesIO(b"secret"))
    return result.getvalue()


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "pki/../../evil", "..", "./evil", "pki//evil", "a\\b"])
async def test_restore_rejects_paths_outside_the_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(crafted(await archived(tmp_path), name))
    with pytest.raises(ArchiveError, match="unexpected member"):
        restore(tmp_path / "file", tmp_path / "restored")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "file"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
async def test_restore_rejects_non_regular_files(tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "file").write_bytes(crafted(await archived(tmp_path), "pki/odd", kind))
    with pytest.raises(ArchiveError):
        restore(tmp_path / "file", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


async def test_restore_rejects_unlisted_or_repeated_members(tmp_path: Path) -> None:
    original = await archived(tmp_path)
    for name in ("pki/extra", "pki/ca.key"):
        (tmp_path / "file").write_bytes(crafted(original, name, listed=False))
        with pytest.raises(ArchiveError, match="unexpected member"):
            restore(tmp_path / "file", tmp_path / "restored")


async def test_restore_rejects_newer_backup_format(tmp_path: Path) -> None:
    original = await archived(tmp_path)
    content = original.replace(b'"format": 1', b'"format": 9', 1)
    assert content != original
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ArchiveError, match="backup format 9"):
        restore(tmp_path / "file", tmp_path / "restored")


async def test_backup_of_restored_store_restores_to_higher_revision(tmp_path: Path) -> None:
    await archived(tmp_path)
    restore(tmp_path / "file", tmp_path / "one")
    backup(tmp_path / "one", tmp_path / "second")
    restore(tmp_path / "second", tmp_path / "two")
    one, two = await SqliteStore.open(tmp_path / "one"), await SqliteStore.open(tmp_path / "two")
    assert Revision(5) < one.revision < two.revision
    await one.close()
    await two.close()
