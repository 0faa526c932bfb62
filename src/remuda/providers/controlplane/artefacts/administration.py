"""Acts of administrators on the artefacts of a manager that runs, over HTTP; who they are is checked before.

GET  artefacts                                    all that is kept, and where
GET  artefacts/uploads/<sha256>                   how many bytes of a file have arrived
PUT  artefacts/uploads/<sha256>?offset=N          the next piece of it, 2 MiB at most
POST artefacts/files/<distro>/<version>/<arch>    keeps uploaded files: {"files": {name: sha256}, "replace": false}
POST artefacts/pack/<version>?replace=true        packs nano from the manager's own installation
POST artefacts/verify/<distro>/<version>/<arch>/<name>    computes one checksum anew
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from remuda.kube.errors import StatusError, bad_request, no_such_path
from remuda.kube.web import Request
from remuda.providers.controlplane.artefacts import Artefact, BadArtefact, WrongChecksum, file_names
from remuda.providers.controlplane.artefacts.nano_bundles import DISTRO, Packing
from remuda.providers.controlplane.artefacts.uploads import MOST_PIECE, NoSpace, Uploads, WrongOffset
from remuda.providers.shared.distros import BadVersion, parse_version

_MOST_BODY = 64 * 1024
_INSUFFICIENT_STORAGE = 507


class Keep(msgspec.Struct):
    files: dict[str, str]  # checksums of what was uploaded, by the names they are to have in the store
    replace: bool = False


class Kept(msgspec.Struct, frozen=True):
    """One artefact as it is listed."""

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
    items: list[Kept]


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

    def _found(self, distro: str, version: str) -> list[Kept]:
        return [self._shown(one) for one in self._artefacts.every() if (one.distro, one.version) == (distro, version)]

    def _verify(self, distro: str, version: str, arch: str, name: str) -> dict[str, str]:
        checksum = self._artefacts.checksum(distro, version, arch, name)
        if checksum is None:
            raise BadArtefact(f"there is no {distro} {version} {arch} {name}")
        return {"problem": self._artefacts.verify(Artefact(distro, version, arch, name, checksum))}

    def _keep(self, distro: str, version: str, arch: str, wanted: Keep) -> list[Kept]:
        check_version(distro, version)
        for name in wanted.files:
            file_names.check_stored(distro, name)
        staged = {name: self._uploads.path(checksum) for name, checksum in wanted.files.items()}
        lacking = [name for name, path in staged.items() if not path.is_file()]
        if lacking:
            raise BadArtefact(f"{', '.join(lacking)}: nothing of it was uploaded")
        try:
            added = self._artefacts.add(distro, version, arch, staged, sums=wanted.files, replace=wanted.replace)
        except WrongChecksum:  # what is there will never be right; for any other reason it can be kept later
            self._remove(wanted)
            raise
        self._remove(wanted)
        return [self._shown(one) for one in added]

    def _remove(self, wanted: Keep) -> None:
        for checksum in wanted.files.values():
            self._uploads.remove(checksum)

    def _shown(self, one: Artefact) -> Kept:
        return Kept(one.distro, one.version, one.arch, one.name, one.sha256, self._artefacts.size(one))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request(f"offset={text[:40]!r} is not a number")
    return int(text)


def _decoded(body: bytes) -> Keep:
    try:
        return msgspec.json.decode(body, type=Keep)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from None
