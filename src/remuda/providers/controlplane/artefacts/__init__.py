"""Artefacts: the files that nodes install a distribution from, kept where the manager serves them.

    <distro>/<version>/<arch>/<name>
                              SHA256SUMS    which of them count, with their checksums; `sha256sum -c` reads it

A file counts once it is listed, and it is listed last: files that a killed process leaves behind are invisible, and the
next addition deletes them. So `lookup` returns only complete files, even during an addition, and a running manager sees
new files without a restart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remuda.providers import ProviderError

SUMS = "SHA256SUMS"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}", re.ASCII)
_LINE = re.compile(r"(?P<sum>[0-9a-f]{64})  (?P<name>\S+)", re.ASCII)
_LOCK = ".lock"
_NEW = ".new-"
_PIECE = 1024 * 1024


class BadArtefact(ProviderError):
    """Error for an artefact that cannot be stored; the message gives the reason."""


class WrongChecksum(BadArtefact):
    """The bytes are not those that were promised."""


class Artefact(msgspec.Struct, frozen=True, order=True):
    distro: str
    version: str
    arch: str
    name: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.distro} {self.version} {self.arch} {self.name}"


class Artefacts:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        return self._directory

    def lookup(self, distro: str, version: str) -> dict[str, dict[str, str]]:
        """The checksums of what there is of a version: by architecture and name. Empty: nothing is."""
        if not (_is_word(distro) and _is_word(version)):
            return {}
        found = {arch: self._listed(distro, version, arch) for arch in self._names(distro, version)}
        return {arch: sums for arch, sums in found.items() if sums}

    def open(self, distro: str, version: str, arch: str, name: str) -> int | None:
        """Return a descriptor of a listed file, which the caller closes."""
        if self.checksum(distro, version, arch, name) is None:
            return None
        return _opened(self._path(distro, version, arch) / name)

    def checksum(self, distro: str, version: str, arch: str, name: str) -> str | None:
        if not all(map(_is_word, (distro, version, arch, name))):
            return None
        return self._listed(distro, version, arch).get(name)

    def every(self) -> Iterator[Artefact]:
        for distro in self._names():
            for version in self._names(distro):
                for arch, sums in self.lookup(distro, version).items():
                    for name, value in sums.items():
                        yield Artefact(distro, version, arch, name, value)

    def size(self, artefact: Artefact) -> int:
        return (self._path(artefact.distro, artefact.version, artefact.arch) / artefact.name).stat().st_size

    def verify(self, artefact: Artefact) -> str:
        """Return what is wrong with the stored bytes; empty if nothing is."""
        descriptor = self.open(artefact.distro, artefact.version, artefact.arch, artefact.name)
        if descriptor is None:
            return "it cannot be read"
        with os.fdopen(descriptor, "rb") as file:
            value = hashlib.file_digest(file, "sha256").hexdigest()
        return (
            "" if value == artefact.sha256 else f"its checksum is {value}, but was {artefact.sha256} when it was added"
        )

    # -- adding ------------------------------------------------------------------------------------------------------

    def add(
        self,
        distro: str,
        version: str,
        arch: str,
        files: Mapping[str, Path],
        *,
        sums: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> list[Artefact]:
        """Add files by their names in the store; all of them, or none. `sums`: their expected checksums, if known.

        Different bytes under an existing name are refused, because nodes may already have the checksum.
        """
        for word in (distro, version, arch, *files):
            if not _is_word(word):
                raise BadArtefact(f"{word!r} cannot be part of an artefact's name")
        folder = self._path(distro, version, arch)
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            drafts: dict[str, Path] = {}
            try:
                _remove_drafts(folder)
                found: dict[str, str] = {}
                for name, source in files.items():
                    drafts[name] = folder / f"{_NEW}{secrets.token_hex(4)}"
                    found[name] = _copied(source, drafts[name])
                    check_promise(source, found[name], (sums or {}).get(name, ""))
                before = self._listed(distro, version, arch)
                changed = {name for name, value in found.items() if before.get(name) != value}
                taken = sorted(name for name in changed if name in before)
                if taken and not replace:
                    raise BadArtefact(
                        f"another {', '.join(taken)} of {distro} {version} for {arch} exists already: nodes may have "
                        "been told its checksum, and refuse any other. Add it as another version, or use --replace"
                    )
                if taken:
                    _list(folder, {name: value for name, value in before.items() if name not in taken})
                for name in changed:
                    os.replace(drafts[name], folder / name)
                if changed:
                    _list(folder, {**before, **found})
            finally:
                _remove_drafts(folder)
        return [Artefact(distro, version, arch, name, value) for name, value in sorted(found.items())]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _path(self, *words: str) -> Path:
        return self._directory.joinpath(*words)

    def _names(self, *words: str) -> list[str]:
        try:
            with os.scandir(self._path(*words)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() and _is_word(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _listed(self, distro: str, version: str, arch: str) -> dict[str, str]:
        folder = self._path(distro, version, arch)
        try:
            lines = (folder / SUMS).read_text("ascii", "replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {match["name"]: match["sum"] for line in lines if (match := _LINE.fullmatch(line))}
        return {name: value for name, value in found.items() if _is_word(name) and (folder / name).is_file()}


def _is_word(text: str) -> bool:
    """A name that is nothing but a name: no slash, no leading dot."""
    return _WORD.fullmatch(text) is not None and text != SUMS


def check_promise(source: Path, found: str, wanted: str) -> None:
    """Raises WrongChecksum."""
    if wanted and found != wanted.lower():
        raise WrongChecksum(f"wrong checksum of {source}: {found}, expected {wanted}")


def _opened(path: Path) -> int | None:
    """Only of plain files: a pipe would never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _copied(source: Path, target: Path) -> str:
    """Copy the file to disk, sync it and return its checksum."""
    try:
        with source.open("rb") as read:
            return _saved(target, iter(lambda: read.read(_PIECE), b""))
    except OSError as error:
        raise BadArtefact(f"{error.filename or target}: {error.strerror}") from None


def _saved(target: Path, pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(descriptor)
    return digest.hexdigest()


def _list(folder: Path, sums: Mapping[str, str]) -> None:
    lines = "".join(f"{value}  {name}\n" for name, value in sorted(sums.items()))
    draft = folder / f"{_NEW}{secrets.token_hex(4)}"
    _saved(draft, [lines.encode()])
    os.replace(draft, folder / SUMS)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_drafts(folder: Path) -> None:
    """Delete leftover drafts. This is safe because only the holder of the lock creates drafts."""
    for draft in folder.glob(f"{_NEW}*"):
        draft.unlink(missing_ok=True)
