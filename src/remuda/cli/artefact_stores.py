"""Stores that `remuda artefacts` manages: the one of the server in the kubeconfig, or a folder of this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import click

from remuda.cli.connection import connected
from remuda.cli.text_wrap import print_note

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient
    from remuda.providers.controlplane.artefacts import Artefact, Artefacts
    from remuda.providers.controlplane.artefacts.administration import Listing, StoredArtefact

T = TypeVar("T")

_ARTEFACTS = "/k8s/manager/artefacts"
_TIMEOUT_SECONDS = 900.0  # the server copies uploaded files, and reads whole files to verify them


class Store(Protocol):
    def listing(self) -> Listing: ...

    def add(
        self, distro: str, version: str, arch: str, files: Mapping[str, Path], sums: Mapping[str, str], *, replace: bool
    ) -> list[StoredArtefact]:
        """Store files under the given names. `sums`: expected checksums, as far as known."""

    def pack(self, version: str, *, replace: bool) -> list[StoredArtefact]:
        """Build the nano bundle from the installation that the store belongs to."""

    def verify(self, one: StoredArtefact) -> str:
        """Return what is wrong with the stored file; empty: nothing."""


class LocalStore:
    """Store in a folder of this machine. Raises BadArtefact."""

    def __init__(self, store: Artefacts) -> None:
        self._store = store

    def listing(self) -> Listing:
        from remuda.providers.controlplane.artefacts.administration import Listing

        return Listing(str(self._store.directory), self._shown(list(self._store.every())))

    def add(
        self, distro: str, version: str, arch: str, files: Mapping[str, Path], sums: Mapping[str, str], *, replace: bool
    ) -> list[StoredArtefact]:
        return self._shown(self._store.add(distro, version, arch, files, sums=sums, replace=replace))

    def pack(self, version: str, *, replace: bool) -> list[StoredArtefact]:
        from remuda.providers.controlplane.artefacts import nano_bundles

        return self._shown(nano_bundles.pack(self._store, version, replace=replace))

    def verify(self, one: StoredArtefact) -> str:
        from remuda.providers.controlplane.artefacts import Artefact

        return self._store.verify(Artefact(one.distro, one.version, one.arch, one.name, one.sha256))

    def _shown(self, found: list[Artefact]) -> list[StoredArtefact]:
        from remuda.providers.controlplane.artefacts.administration import StoredArtefact

        return [
            StoredArtefact(one.distro, one.version, one.arch, one.name, one.sha256, self._store.size(one))
            for one in found
        ]


class ServerStore:
    """Store of the server. Raises ClickException, and BadArtefact for files that do not match their checksums."""

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig

    def listing(self) -> Listing:
        return self._connected(listing)

    def add(
        self, distro: str, version: str, arch: str, files: Mapping[str, Path], sums: Mapping[str, str], *, replace: bool
    ) -> list[StoredArtefact]:
        found = {name: _checksum(path) for name, path in files.items()}
        _check(files, found, sums)

        async def work(client: HttpClient) -> list[StoredArtefact]:
            import msgspec

            from remuda.providers.controlplane.artefacts.administration import StoredArtefact, StoreUploads

            for name, path in files.items():
                await _upload(client, name, path, found[name])
            place = "/".join(quote(word, safe="") for word in (distro, version, arch))
            body = msgspec.json.encode(StoreUploads(found, replace))
            answer = await client.raw_send("POST", f"{_ARTEFACTS}/files/{place}", body)
            return msgspec.json.decode(answer, type=list[StoredArtefact])

        return self._connected(work)

    def pack(self, version: str, *, replace: bool) -> list[StoredArtefact]:
        async def work(client: HttpClient) -> list[StoredArtefact]:
            import msgspec

            from remuda.providers.controlplane.artefacts.administration import StoredArtefact

            path = f"{_ARTEFACTS}/pack/{quote(version, safe='')}" + ("?replace=true" if replace else "")
            return msgspec.json.decode(await client.raw_send("POST", path), type=list[StoredArtefact])

        return self._connected(work)

    def verify(self, one: StoredArtefact) -> str:
        async def work(client: HttpClient) -> str:
            import msgspec

            place = "/".join(quote(word, safe="") for word in (one.distro, one.version, one.arch, one.name))
            answer = msgspec.json.decode(await client.raw_send("POST", f"{_ARTEFACTS}/verify/{place}"))
            return str(answer["problem"])

        return self._connected(work)

    def _connected(self, work: Callable[[HttpClient], Awaitable[T]]) -> T:
        async def explained(client: HttpClient) -> T:
            from remuda.kube.errors import NotFound

            try:
                return await work(client)
            except NotFound:
                raise click.ClickException(
                    f"{client.access.server} has no artefact store: it is not a manager, or runs without a folder for "
                    "artefacts. Choose a manager with --kubeconfig, or a local folder with --data-dir or --artefacts"
                ) from None

        return connected(self._kubeconfig, explained, timeout_seconds=_TIMEOUT_SECONDS)


async def listing(client: HttpClient) -> Listing:
    """Return all artefacts of a server. Raises StatusError."""
    import msgspec

    from remuda.providers.controlplane.artefacts.administration import Listing

    return msgspec.json.decode(await client.raw_get(_ARTEFACTS), type=Listing)


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from None


def _check(files: Mapping[str, Path], found: Mapping[str, str], sums: Mapping[str, str]) -> None:
    """Compare the files with the expected checksums, before anything is sent. Raises BadArtefact."""
    from remuda.providers.controlplane.artefacts import check_promise

    for name, path in files.items():
        check_promise(path, found[name], sums.get(name, ""))


async def _upload(client: HttpClient, name: str, path: Path, checksum: str) -> None:
    """Send a file in pieces; resume an interrupted upload where it ended."""
    import msgspec

    from remuda.kube.errors import Conflict
    from remuda.providers.controlplane.artefacts.administration import MOST_PIECE

    target = f"{_ARTEFACTS}/uploads/{checksum}"
    present = int(msgspec.json.decode(await client.raw_get(target))["bytes"])
    size = os.stat(path).st_size
    print_note(f"uploading {name}: {size / 1e6:.1f} MB" + (f", resuming at {present / 1e6:.1f} MB" if present else ""))
    with path.open("rb") as file:
        while present < size:
            file.seek(present)
            piece = file.read(MOST_PIECE)
            if not piece:
                raise click.ClickException(f"{path} was truncated during the upload; try again")
            try:
                answer = await client.raw_send("PUT", f"{target}?offset={present}", piece)
                present = int(msgspec.json.decode(answer)["bytes"])
            # The server has another number of bytes than expected, for example after a lost response. Continue from
            # there.
            except Conflict:
                present = int(msgspec.json.decode(await client.raw_get(target))["bytes"])
