"""Administration of the artefacts of a running manager, over HTTP. The caller authenticates administrators.

GET  artefacts                                    all that is kept, and where
GET  artefacts/uploads/<sha256>                   how many bytes of a file have arrived
PUT  artefacts/uploads/<sha256>?offset=N          the next piece of it, 2 MiB at most
POST artefacts/files/<distro>/<version>/<arch>    keeps uploaded files: {"files": {name: sha256}, "replace": false}
POST artefacts/pack/<version>?replace=true        packs nano from the manager's own installation
POST artefacts/verify/<distro>/<version>/<arch>/<name>    computes one checksum anew

Unfinished uploads are in .uploads/<sha256>, which the store does not see. A piece is appended to what has arrived, so
an upload that was cut off continues where it ended. The store computes the checksum before it accepts a file. Memory is
bounded by the piece, the disk by `most_bytes` for all uploads together and by a reserve that is left free. The next
upload removes files that have not grown for a day.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from remuda.kube import clock
from remuda.kube.errors import StatusError, bad_request, no_such_path
from remuda.kube.web import Request
from remuda.providers import ProviderError
from remuda.providers.controlplane.artefacts import Artefact, BadArtefact, WrongChecksum, file_names
from remuda.providers.controlplane.artefacts.nano_bundles import DISTRO, Packing
from remuda.providers.shared.distros import BadVersion, parse_version

MOST_PIECE = 2 * 1024 * 1024
MOST_BYTES = 32 * 1024**3
RESERVE_BYTES = 512 * 1024**2

_FOLDER = ".uploads"
_SUM = re.compile("[0-9a-f]{64}", re.ASCII)
_STALE_SECONDS = 24 * 3600.0
_MOST_BODY = 64 * 1024
_INSUFFICIENT_STORAGE = 507


class WrongOffset(ProviderError):
    """Piece that does not continue the stored bytes."""

    def __init__(self, present: int) -> None:
        super().__init__(f"{present} bytes are there")
        self.present = present


class NoSpace(ProviderError):
    """Lack of disk space, with a message for users."""


class Uploads:
    def __init__(self, store: Path, *, most_bytes: int = MOST_BYTES, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._folder = store / _FOLDER
        self._most_bytes = most_bytes
        self._reserve_bytes = reserve_bytes

    def path(self, checksum: str) -> Path:
        """Raises BadArtefact."""
        if _SUM.fullmatch(checksum) is None:
            raise BadArtefact(f"{checksum[:80]!r} is not a sha256: 64 hexadecimal digits in lower case")
        return self._folder / checksum

    def present(self, checksum: str) -> int:
        """Return how many bytes of a file have arrived."""
        try:
            return self.path(checksum).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, checksum: str, offset: int, piece: bytes) -> int:
        """Return how many bytes are there then. Raises WrongOffset, NoSpace, BadArtefact."""
        path = self.path(checksum)
        self._folder.mkdir(parents=True, exist_ok=True)
        if offset == 0:
            self._prune()
        self._check_space(len(piece))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # several replicas may share the folder
            present = os.fstat(descriptor).st_size
            if offset != present:
                raise WrongOffset(present)
            file.seek(present)
            file.write(piece)
        return present + len(piece)

    def remove(self, checksum: str) -> None:
        self.path(checksum).unlink(missing_ok=True)

    def _check_space(self, more: int) -> None:
        sizes = [one.stat().st_size for one in self._folder.iterdir()]
        if sum(sizes) + more > self._most_bytes:
            raise NoSpace(f"uploads that were not finished take {sum(sizes)} bytes in {self._folder}: remove some")
        free = shutil.disk_usage(self._folder).free
        if free - more < self._reserve_bytes:
            raise NoSpace(f"the file system of {self._folder} has only {free} bytes left")

    def _prune(self) -> None:
        for one in self._folder.iterdir():
            if clock.time() - one.stat().st_mtime > _STALE_SECONDS:
                one.unlink(missing_ok=True)


# ---- requests -----------------------------------------------------------------------------------------------------


class StoreUploads(msgspec.Struct):
    files: dict[str, str]  # checksums of uploaded files, by their names in the store
    replace: bool = False


class StoredArtefact(msgspec.Struct, frozen=True):
    """Artefact as it is listed."""

    distro: str
    version: str
    arch: str
    name: str
    sha256: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.distro} {self.version} {self.arch} {self.name}"


class Listing(msgspec.Struct, frozen=True):
    directory: str
    items: list[StoredArtefact]


def check_version(distro: str, version: str) -> None:
    """Raises BadVersion."""
    parsed = parse_version(version)
    if parsed.distro != distro:
        raise BadVersion(f"{version} is a version of {parsed.distro}, not of {distro}")


class ArtefactAdministration:
    def __init__(self, artefacts: Packing, uploads: Uploads) -> None:
        self._artefacts = artefacts
        self._uploads = uploads

    async def answer(self, request: Request, path: str) -> Any:
        """Raises StatusError."""
        request.unhurried = True  # a large file is copied and packing takes its time; both end
        try:
            return await self._answer(request, request.method, path.split("/") if path else [])
        except (BadArtefact, BadVersion, file_names.Unknown) as error:
            raise bad_request(str(error)) from None
        except WrongOffset as error:
            raise StatusError(409, "Conflict", str(error)) from None
        except NoSpace as error:
            raise StatusError(_INSUFFICIENT_STORAGE, "InsufficientStorage", str(error)) from None

    async def _answer(self, request: Request, method: str, words: list[str]) -> Any:
        match (method, *words):
            case ("GET",):
                return await asyncio.to_thread(self._list)
            case ("GET", "uploads", checksum):
                return {"bytes": await asyncio.to_thread(self._uploads.present, checksum)}
            case ("PUT", "uploads", checksum):
                offset, piece = _number(request.first("offset")), await request.body(MOST_PIECE)
                return {"bytes": await asyncio.to_thread(self._uploads.append, checksum, offset, piece)}
            case ("POST", "files", distro, version, arch):
                wanted = _decoded(await request.body(_MOST_BODY))
                return await asyncio.to_thread(self._keep, distro, version, arch, wanted)
            case ("POST", "pack", version):
                check_version(DISTRO, version)
                await self._artefacts.pack(DISTRO, version, replace=request.first("replace") == "true")
                return await asyncio.to_thread(self._found, DISTRO, version)
            case ("POST", "verify", distro, version, arch, name):
                return await asyncio.to_thread(self._verify, distro, version, arch, name)
        raise no_such_path()

    def _list(self) -> Listing:
        return Listing(str(self._artefacts.directory), [self._shown(one) for one in self._artefacts.every()])

    def _found(self, distro: str, version: str) -> list[StoredArtefact]:
        return [self._shown(one) for one in self._artefacts.every() if (one.distro, one.version) == (distro, version)]

    def _verify(self, distro: str, version: str, arch: str, name: str) -> dict[str, str]:
        checksum = self._artefacts.checksum(distro, version, arch, name)
        if checksum is None:
            raise BadArtefact(f"there is no {distro} {version} {arch} {name}")
        return {"problem": self._artefacts.verify(Artefact(distro, version, arch, name, checksum))}

    def _keep(self, distro: str, version: str, arch: str, wanted: StoreUploads) -> list[StoredArtefact]:
        check_version(distro, version)
        for name in wanted.files:
            file_names.check_stored(distro, name)
        staged = {name: self._uploads.path(checksum) for name, checksum in wanted.files.items()}
        lacking = [name for name, path in staged.items() if not path.is_file()]
        if lacking:
            raise BadArtefact(f"{', '.join(lacking)}: not uploaded")
        try:
            added = self._artefacts.add(distro, version, arch, staged, sums=wanted.files, replace=wanted.replace)
        except WrongChecksum:  # the bytes are invalid; after any other error they can be stored later
            self._remove(wanted)
            raise
        self._remove(wanted)
        return [self._shown(one) for one in added]

    def _remove(self, wanted: StoreUploads) -> None:
        for checksum in wanted.files.values():
            self._uploads.remove(checksum)

    def _shown(self, one: Artefact) -> StoredArtefact:
        return StoredArtefact(one.distro, one.version, one.arch, one.name, one.sha256, self._artefacts.size(one))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(f"offset={text[:40]!r} is not a number")
    return int(text)


def _decoded(body: bytes) -> StoreUploads:
    try:
        return msgspec.json.decode(body, type=StoreUploads)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from None
