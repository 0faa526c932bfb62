"""Backups: one file with everything that is needed to restore a data directory on another machine.

The file is a plain tar, readable only by its owner: `manifest.json` first, then `state.db` as of one moment, then the
keys, certificates and kubeconfigs. A backup runs beside a server and does not stop its writes. A restore verifies every
byte before it creates the data directory, atomically.

Clients may have seen revisions newer than the backup's. So that none of those gets a second meaning, a restored store
starts far above them with an empty history: watchers get 410 (compacted) and list again. The start revision depends on
the time, so that a second restore of the same file starts above all revisions of the first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import apsw
import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.storage import rows
from remuda.apiserver.storage.directory import DATABASE, LOCK, DirectoryLock, sync_directory
from remuda.apiserver.storage.disk import REVISIONS_SKIPPED, Disk
from remuda.apiserver.storage.types import Revision, StoreUnusable
from remuda.kube import clock

FORMAT = 1
MANIFEST = "manifest.json"

# Files that are saved besides the database, as patterns below the data directory.
KEYS_AND_CERTIFICATES = ("pki/**/*", "*.key", "*.kubeconfig")

# Revisions for each second between two restores of one file: more than a server can write in a second.
_REVISIONS_PER_SECOND = 100_000
_EPOCH = 1_735_689_600  # 2025-01-01: no backup is older

_MAX_MANIFEST_BYTES = 4 << 20
_COPY_PAGES = 1024
_COPY_BYTES = 1 << 20
_PLAIN_NAME = re.compile(r"(?!\.\.?(/|$))[^/\\\0]+(/(?!\.\.?(/|$))[^/\\\0]+)*")


class ArchiveError(ApiServerError):
    """Refused or failed backup or restore, which changed nothing. The message is for the user."""


class BackupFile(msgspec.Struct):
    size: int
    sha256: str


class Manifest(msgspec.Struct):
    format: int
    created: str
    revision: int
    members: dict[str, BackupFile]
    damaged: list[str] = []  # objects that do not match their checksums


def backup(
    data_dir: Path, file: Path, *, patterns: Sequence[str] = KEYS_AND_CERTIFICATES, force: bool = False
) -> Manifest:
    """Back up a data directory, in use or not, to a file. Replace an existing file only with `force`."""
    if not (data_dir / DATABASE).is_file():
        raise ArchiveError(f"{data_dir} holds no {DATABASE}: not a data directory")
    if file.exists() and not force:
        raise ArchiveError(f"{file} exists already")
    with _explained(f"cannot back up {data_dir}"), _scratch(file.parent, file.name) as scratch:
        revision, damaged = _copy_database(data_dir / DATABASE, scratch / DATABASE)
        sources = {DATABASE: scratch / DATABASE} | _copy_matching(data_dir, patterns, scratch / "copied")
        members = {name: _measure(path) for name, path in sources.items()}
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        manifest = Manifest(FORMAT, created, revision, members, damaged)
        _pack(scratch / "archive", manifest, sources)
        # The content is synced by `_pack`. The rename then makes the backup appear whole, and the sync makes the rename
        # durable.
        os.rename(scratch / "archive", file)
        sync_directory(file.parent)
    return manifest


def restore(file: Path, data_dir: Path) -> Manifest:
    """Create a data directory, which must be missing or empty, from a backup."""
    _check_unused(data_dir)
    with _explained(f"cannot restore {file}"):
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        with _scratch(data_dir.parent, data_dir.name) as scratch:
            home = scratch / "home"
            home.mkdir(mode=0o700)
            manifest = _unpack(file, home)
            _start_over(home / DATABASE)
            _sync_tree(home)
            # There may be a lock file of an earlier start, and `rename` replaces only an empty directory.
            (data_dir / LOCK).unlink(missing_ok=True)
            os.rename(home, data_dir)  # replaces an empty directory only
            sync_directory(data_dir.parent)
    return manifest


@contextmanager
def opened(file: Path, beside: Path) -> Iterator[Disk]:
    """Yield the verified database of a backup, in a temporary folder beside a data directory."""
    with _scratch(beside.absolute().parent, beside.name) as scratch:
        with _explained(f"cannot read {file}"):
            _unpack(file, scratch)
            disk = Disk(scratch / DATABASE)
        try:
            yield disk
        finally:
            disk.close()


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, tarfile.TarError, apsw.Error, StoreUnusable, msgspec.DecodeError) as error:
        raise ArchiveError(f"{what}: {error}") from error


@contextmanager
def _scratch(folder: Path, name: str) -> Iterator[Path]:
    """Create a private folder on the file system of the result, which is then moved out of it."""
    path = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=folder))
    try:
        yield path
    finally:
        try:
            shutil.rmtree(path, ignore_errors=True)
        except BaseException:  # also if interrupted
            shutil.rmtree(path, ignore_errors=True)
            raise


def _copy_database(source: Path, target: Path) -> tuple[int, list[str]]:
    """Copy one moment of a database that may be written meanwhile; return its revision, and the damaged objects."""
    reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    writer = apsw.Connection(str(target))
    try:
        target.chmod(0o600)
        reader.set_busy_timeout(10_000)
        reader.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()  # keeps this snapshot to the end
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(_COPY_PAGES)
    finally:
        writer.close()
        reader.close()
    return _verify(target)


def _verify(database: Path) -> tuple[int, list[str]]:
    disk = Disk(database)
    try:
        return disk.revision(), [str(one) for one in rows.read_objects(disk.connection).damaged]
    finally:
        disk.close()


def _copy_matching(data_dir: Path, patterns: Sequence[str], copies: Path) -> dict[str, Path]:
    """Copy the small files first: a certificate may be renewed between its checksum and its packing."""
    sources: dict[str, Path] = {}
    for path in sorted({path for pattern in patterns for path in data_dir.glob(pattern) if path.is_file()}):
        name = path.relative_to(data_dir).as_posix()
        sources[name] = copies / name
        sources[name].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _create_private(sources[name]) as copy:
            copy.write(path.read_bytes())
    return sources


def _measure(path: Path) -> BackupFile:
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return BackupFile(opened.tell(), digest)


def _pack(archive: Path, manifest: Manifest, sources: dict[str, Path]) -> None:
    with _create_private(archive) as raw:
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            listing = archive.with_name(MANIFEST)
            listing.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
            for name, path in {MANIFEST: listing, **sources}.items():
                _pack_one(tar, name, path)
        raw.flush()
        os.fsync(raw.fileno())


def _pack_one(tar: tarfile.TarFile, name: str, path: Path) -> None:
    header = tarfile.TarInfo(name)
    header.mode = 0o600
    header.mtime = int(path.stat().st_mtime)
    header.size = path.stat().st_size
    with path.open("rb") as content:
        tar.addfile(header, content)


def _check_unused(data_dir: Path) -> None:
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise ArchiveError(f"{data_dir} is not a directory")
    present = {path.name for path in data_dir.iterdir()}
    # A server that is starting holds the lock before it has written a database.
    if LOCK in present:
        try:
            DirectoryLock(data_dir).release()
        except StoreUnusable as error:
            raise ArchiveError(str(error)) from error
    if present - {LOCK}:
        raise ArchiveError(f"{data_dir} is not empty; restore into a new directory")


def _unpack(file: Path, home: Path) -> Manifest:
    """Write the members below `home`, each verified against the manifest."""
    with tarfile.open(file, mode="r:") as tar:
        manifest = _read_manifest(tar)
        missing = dict(manifest.members)
        for header in tar:
            if header.name != MANIFEST:
                _unpack_one(tar, header, missing.pop(header.name, None), home)
    if missing:
        raise ArchiveError(f"{file} lacks {', '.join(sorted(missing))}")
    return manifest


def _read_manifest(tar: tarfile.TarFile) -> Manifest:
    header = tar.next()
    if header is None or header.name != MANIFEST or header.type != tarfile.REGTYPE:
        raise ArchiveError(f"{tar.name!s} is not a backup: it does not begin with {MANIFEST}")
    if header.size > _MAX_MANIFEST_BYTES:
        raise ArchiveError(f"the manifest of {tar.name!s} is too large")
    content = tar.extractfile(header)
    text = content.read() if content else b""
    # Read the format alone first: the manifest of another format may not fit the type below.
    version = msgspec.json.decode(text, type=dict[str, object]).get("format")
    if version != FORMAT:
        raise ArchiveError(f"{tar.name!s} has backup format {version}; this version reads format {FORMAT}")
    manifest = msgspec.json.decode(text, type=Manifest)
    if DATABASE not in manifest.members:
        raise ArchiveError(f"{tar.name!s} holds no {DATABASE}")
    return manifest


def _unpack_one(tar: tarfile.TarFile, header: tarfile.TarInfo, expected: BackupFile | None, home: Path) -> None:
    name = header.name
    # A hostile archive could name `../x` or contain links: only regular files that the manifest names are written.
    if expected is None or header.type != tarfile.REGTYPE or not _PLAIN_NAME.fullmatch(name):
        raise ArchiveError(f"{tar.name!s} has an unexpected member: {name}")
    content = tar.extractfile(header)
    if content is None or header.size != expected.size:
        raise ArchiveError(f"{name} in {tar.name!s} has the wrong size")
    target = home / name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with _create_private(target) as written:
        while piece := content.read(_COPY_BYTES):
            digest.update(piece)
            written.write(piece)
    if digest.hexdigest() != expected.sha256:
        raise ArchiveError(f"{name} in {tar.name!s} is damaged: its checksum does not match")


def _start_over(database: Path) -> None:
    passed = max(0.0, clock.time() - _EPOCH)
    disk = Disk(database)
    try:
        disk.start_history(Revision(disk.revision() + REVISIONS_SKIPPED + int(passed * _REVISIONS_PER_SECOND)))
    finally:
        disk.close()


def _create_private(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            with open(Path(folder, name), "rb") as opened:
                os.fsync(opened.fileno())
        sync_directory(Path(folder))
