"""A disk that is full: what is there stays, deletes go on, and it is said where and what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec
import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.apiserver.storage import disk as disk_module
from remuda.apiserver.storage import reserve as module
from remuda.apiserver.storage.reserve import Reserve, leads_to_delete
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import DiskFull, Revision, StorageFailed, StoreEntry
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS

T = "machines"
RESERVE = 2 << 20
CONFIGMAPS = Target("v1", "configmaps")


class SmallDisk(apsw.VFS):
    """A file system of a few megabytes, for what SQLite writes and for the reserve."""

    def __init__(self, home: Path, capacity: int) -> None:
        self.name = f"small-{home}"
        self.home = home
        self.capacity = capacity
        super().__init__(self.name, "")

    def free(self, home: Path | None = None) -> int:
        kept = [path for path in self.home.iterdir() if not path.name.endswith("-shm")]
        return self.capacity - sum(path.stat().st_size for path in kept)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: SmallDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:
        growth = offset + len(data) - self.xFileSize()
        if growth > 0 and growth > self._disk.free():
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    monkeypatch.setattr(disk_module, "_CHECKPOINT_PAGES", 50)  # a small disk has a small WAL
    (tmp_path / "data").mkdir()
    found = SmallDisk(tmp_path / "data", 8 << 20)
    yield found
    found.unregister()


async def opened(disk: SmallDisk) -> SqliteStore:
    return await SqliteStore.open(disk.home, vfs=disk.name, reserve_bytes=RESERVE, free=disk.free)


def value(name: str, revision: int, **metadata: object) -> bytes:
    said = {"name": name, "resourceVersion": str(revision), **metadata}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Machine", "metadata": said, "data": "x" * 20_000})


async def put(store: SqliteStore, name: str, **metadata: object) -> StoreEntry:
    return await store.put(T, "ns", name, lambda r: value(name, r, **metadata), expect=store.get(T, "ns", name))


async def delete(store: SqliteStore, name: str) -> None:
    entry = store.get(T, "ns", name)
    assert entry is not None
    await store.delete(T, "ns", name, lambda r: value(name, r), expect=entry)


async def fill(store: SqliteStore) -> list[str]:
    """Objects until there is no room for one more; their names."""
    names: list[str] = []
    while True:
        try:
            await put(store, f"n{len(names)}")
        except DiskFull:
            return names
        names.append(f"n{len(names)}")


async def test_deletes_work_on_a_full_disk_and_other_writes_are_refused(disk: SmallDisk) -> None:
    store = await opened(disk)
    assert store.lack_of_room() == ""
    names = await fill(store)
    assert len(names) > 50
    disk.capacity = 0  # whatever the store itself gives back, somebody else takes
    disk.capacity = -disk.free() + (RESERVE // 2)
    with pytest.raises(DiskFull, match=f"the disk of {disk.home} is full .* free space there"):
        await put(store, "one-more")
    assert str(disk.home) in store.lack_of_room()
    await put(store, names[0], deletionTimestamp="2026-01-01T00:00:00Z")  # on its way: a finalizer holds it
    for name in names[:20]:
        await delete(store, name)
    assert [e.name for e in store.scan(T)] == sorted(names[20:])
    await store.close()
    store = await opened(disk)
    assert [e.name for e in store.scan(T)] == sorted(names[20:])
    assert store.lack_of_room()
    await delete(store, names[20])
    await store.close()


async def test_delete_succeeds_when_disk_becomes_full(disk: SmallDisk) -> None:
    store = await opened(disk)
    for i in range(20):
        await put(store, f"n{i}")
    await store.close()
    store = await opened(disk)  # with an empty WAL, which has to grow
    disk.capacity -= disk.free()
    await delete(store, "n3")
    assert store.get(T, "ns", "n3") is None
    assert not (disk.home / module.FILE).exists()
    disk.capacity = 1 << 20
    assert "is full" in store.lack_of_room()
    await store.close()


async def test_freed_disk_space_is_used_and_reserve_recreated(disk: SmallDisk) -> None:
    store = await opened(disk)
    names = await fill(store)
    disk.capacity += 4 * RESERVE
    assert (await put(store, "one-more")).name == "one-more"
    assert store.lack_of_room() == ""
    assert (disk.home / module.FILE).stat().st_size == RESERVE
    await store.close()
    store = await opened(disk)
    assert {e.name for e in store.scan(T)} == {*names, "one-more"}
    await store.close()


async def test_deletes_alone_free_a_full_disk(disk: SmallDisk) -> None:
    """The log of changes is given up, and its pages with it."""
    store = await opened(disk)
    names = await fill(store)
    for name in names:
        await delete(store, name)
    async with asyncio.timeout(LIMIT_SECONDS):
        while store.lack_of_room():
            await asyncio.sleep(0.05)
    await put(store, "new")
    await store.close()


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("DELETED", b"{}", True),
        ("ADDED", b'{"metadata":{"deletionTimestamp":"x"}}', False),
        ("MODIFIED", b'{"metadata":{"deletionTimestamp":"x"}}', True),
        ("MODIFIED", b'{"metadata":{}, "data":{"deletionTimestamp":"x"}}', False),
        ("MODIFIED", b"no json", False),
    ],
)
def test_leads_to_less_accepts_deletes_and_terminating_updates(kind: str, content: bytes, expected: bool) -> None:
    assert leads_to_delete(kind, StoreEntry(T, "ns", "a", Revision(1), content)) is expected


def test_disk_reserve_file_is_private_and_fully_allocated(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, RESERVE)
    assert reserve.take()
    assert (tmp_path / module.FILE).stat().st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / module.FILE).st_blocks * 512 >= RESERVE  # real blocks, no hole
    reserve.release()
    assert not (tmp_path / module.FILE).exists()


@contextmanager
def small_tmpfs(place: Path, size: str) -> Iterator[Path]:
    place.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """A server on a real file system of 64 MB."""
    with small_tmpfs(tmp_path / "small", "64m") as place:
        server = await ApiServer.start(ServerSettings(data_dir=place / "data", port=0, reserve_bytes=module.BYTES))
        try:
            yield server
        finally:
            await server.stop()


async def test_server_on_full_disk_allows_deletes_and_recovers(served: ApiServer) -> None:
    client = served.client()
    assert await client.raw_get("/readyz") == b"ok"
    names: list[str] = []
    failure: StatusError | None = None
    while failure is None:
        obj = {"metadata": {"name": f"n{len(names)}", "finalizers": ["test.io/hold"]}, "data": {"x": "y" * 200_000}}
        try:
            await client.create(CONFIGMAPS, "default", obj)
            names.append(obj["metadata"]["name"])  # type: ignore[index,arg-type]
        except StorageFailed as error:
            failure = error
    home = served.kubeconfig.parent
    taken = home.parent / "taken"
    with taken.open("wb") as other:  # by somebody else, who takes all but a little of the reserve
        left = module.free_bytes(home) - module.BYTES // 2
        if left > 0:
            os.posix_fallocate(other.fileno(), 0, left)
    assert str(home) in str(failure)
    with pytest.raises(StatusError, match=r"\[-\]disk failed: the disk of .* is full"):
        await client.raw_get("/readyz?verbose")
    assert await client.raw_get("/livez") == b"ok"
    for name in names[:30]:
        await client.delete(CONFIGMAPS, "default", name)
        await client.patch(CONFIGMAPS, "default", name, {"metadata": {"finalizers": None}})
    with pytest.raises(StatusError, match="is full"):
        await client.create(CONFIGMAPS, "default", {"metadata": {"name": "one-more"}})
    taken.unlink()
    async with asyncio.timeout(LIMIT_SECONDS):
        while served.store.lack_of_room():
            await asyncio.sleep(0.05)
    await client.create(CONFIGMAPS, "default", {"metadata": {"name": "one-more"}})
    assert await client.raw_get("/readyz") == b"ok"
