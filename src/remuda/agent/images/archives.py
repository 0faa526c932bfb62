"""Images in local archives, for hosts without a registry, as written by `docker save`, `ctr image export` and the like.

All archives below the images directory are searched in order of their paths, except those whose name begins with a dot.
Unreadable archives are skipped; the error is reported if the image is found nowhere. A compressed archive is read
through for its list of images, and decompressed to disk only if it contains the wanted image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from remuda.agent.images import ImageError, layers, manifests, streams
from remuda.agent.images.platforms import Platform
from remuda.agent.images.references import ImageReference, is_digest, parse
from remuda.agent.images.tree import ImageBudget, Tree

SUFFIXES = (
    ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".tar.lz4",
)  # fmt: skip
_LISTS = ("index.json", "manifest.json")  # of the OCI layout, of docker save
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_PIECE = 1 << 20


class ArchiveImage(NamedTuple):
    """Location of an image in an archive: a digest in the archive's index, or an entry in the list of `docker save`."""

    path: str
    digest: str
    saved: dict[str, Any]


def find(reference: ImageReference, directory: str) -> tuple[ArchiveImage | None, list[str]]:
    """Return the first archive that contains the image, and the errors of unreadable archives."""
    notes: list[str] = []
    for path in _archives(directory):
        try:
            with open(path, "rb") as file, streams.plain(file) as plain:
                found = _match(reference, path, _lists(plain))
        except (ImageError, *streams.BROKEN) as error:
            notes.append(f"{path} could not be read: {error}")
            continue
        if found is not None:
            return found, notes
    return None, notes


def unpack(found: ArchiveImage, host: Platform, scratch: str, tree: Tree) -> None:
    try:
        with _opened(found.path, scratch, tree.allowance.limit) as file, streams.tar_archive(file) as archive:
            content = _Content(archive)
            if found.digest:
                _unpack_layout(content, found.digest, host, tree)
            else:
                _unpack_saved(content, found.saved, tree)
    except ImageError as error:
        raise ImageError(f"{found.path}: {error}") from error
    except streams.BROKEN as error:
        raise ImageError(f"{found.path} could not be read: {error}") from error


def _archives(directory: str) -> Iterator[str]:
    paths = []
    for folder, _, names in os.walk(directory):
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                paths.append(os.path.join(folder, name))
    return iter(sorted(paths))


def _lists(file: IO[bytes]) -> dict[str, Any]:
    """Return the image lists of an archive, by the names of their files."""
    found: dict[str, Any] = {}
    with streams.tar_entries(file) as entries:
        for entry, content in entries:
            name = _plain_name(entry.name)
            if name in _LISTS and content is not None:
                found[name] = _json(content.read(manifests.LARGEST + 1), name)
            if len(found) == len(_LISTS):
                break
    while file.read(_PIECE):
        pass  # read to the end, to detect damage and to let an external decompressor finish
    return found


def _json(content: bytes, name: str) -> Any:
    if len(content) > manifests.LARGEST:
        raise ImageError(f"its {name} is too large")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ImageError(f"its {name} is not JSON") from None


def _match(reference: ImageReference, path: str, lists: dict[str, Any]) -> ArchiveImage | None:
    index, saved = lists.get("index.json"), lists.get("manifest.json")
    for entry in _objects(index.get("manifests") if isinstance(index, dict) else None):
        digest, names = entry.get("digest"), entry.get("annotations")
        by_name = isinstance(names, dict) and any(_same(names.get(name), reference) for name in _NAMES)
        if is_digest(digest) and (digest == reference.digest if reference.digest else by_name):
            return ArchiveImage(path, str(digest), {})
    for entry in _objects(saved):
        tags = entry.get("RepoTags")
        if not reference.digest and isinstance(tags, list) and any(_same(tag, reference) for tag in tags):
            return ArchiveImage(path, "", entry)
    return None


def _objects(entries: Any) -> list[dict[str, Any]]:
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _same(name: Any, reference: ImageReference) -> bool:
    """Return whether `name` is the full name of the image; a tag alone names none."""
    if not isinstance(name, str) or ("/" not in name and ":" not in name):
        return False
    try:
        return parse(name)[:3] == reference[:3]
    except ImageError:
        return False


def _plain_name(name: str) -> str:
    return name[2:] if name.startswith("./") else name


@contextlib.contextmanager
def _opened(path: str, scratch: str, limit: int) -> Iterator[IO[bytes]]:
    """Yield the archive as a seekable file. A compressed one is decompressed to a temporary file."""
    with open(path, "rb") as file:
        if not streams.compression(file):
            yield file
            return
        with tempfile.TemporaryFile(dir=scratch) as whole, streams.plain(file) as plain:
            allowance = ImageBudget(limit)
            while piece := plain.read(_PIECE):
                allowance.take(len(piece))
                whole.write(piece)
            whole.seek(0)
            yield whole


class _Content:
    """Files of an archive by name."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._entries = {_plain_name(entry.name): entry for entry in archive}

    def open(self, name: Any) -> IO[bytes]:
        entry = self._entries.get(_plain_name(name)) if isinstance(name, str) else None
        file = self._archive.extractfile(entry) if entry is not None else None
        if file is None:
            raise ImageError(f"it has no {name!s}")
        return file

    def blob(self, digest: str) -> IO[bytes]:
        """Return a blob by its digest, which is verified."""
        algorithm, _, expected = digest.partition(":")
        file, found = self.open(f"blobs/{algorithm}/{expected}"), hashlib.new(algorithm)
        while piece := file.read(_PIECE):
            found.update(piece)
        if found.hexdigest() != expected:
            raise ImageError(f"its blob {digest} is not what its digest says")
        file.seek(0)
        return file

    def manifest(self, digest: str) -> bytes:
        return self.blob(digest).read(manifests.LARGEST)


def _unpack_layout(content: _Content, digest: str, host: Platform, tree: Tree) -> None:
    for layer in manifests.layers(content.manifest(digest), host, content.manifest):
        with content.blob(layer.digest) as file:
            layers.unpack(file, tree)


def _unpack_saved(content: _Content, saved: dict[str, Any], tree: Tree) -> None:
    names = saved.get("Layers")
    config = _json(content.open(saved.get("Config")).read(manifests.LARGEST + 1), "configuration")
    rootfs = config.get("rootfs") if isinstance(config, dict) else None
    digests = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(names, list) or not isinstance(digests, list) or len(names) != len(digests):
        raise ImageError("its lists of layers and digests do not match")
    for name, digest in zip(names, digests):  # noqa: B905 - not in Python 3.9; the lengths are the same
        with content.open(name) as file:
            layers.unpack(file, tree, str(digest))
