"""Client identity of a request: the Authorization header, and the client certificate and key.

A `ClientIdentity` is valid at the moment it is returned. Its source may return another one later: other processes renew
the files, and an exec plugin runs again before its credentials expire or when the server rejects them.
"""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from remuda.kube.http.exec_plugin import PluginCredentials
from remuda.kube.kubeconfig import ClientConfig, Impersonation, KubeconfigError
from remuda.kube.kubeconfig.access import Pem

log = logging.getLogger(__name__)


class ClientIdentity(msgspec.Struct, frozen=True):
    authorization: str = ""
    certificate_pem: bytes = b""
    key_pem: bytes = b""
    ca_pem: bytes = b""


class IdentitySource(Protocol):
    async def current(self) -> ClientIdentity:
        """Return the current identity. Raise KubeconfigError if there is none."""

    def refused(self, identity: ClientIdentity) -> bool:
        """Handle a 401 for `identity`: return whether `current` may now give another one."""


def identity_source(access: ClientConfig) -> IdentitySource:
    return FromPlugin(access) if access.method == "exec" else FromFiles(access)


class FromFiles:
    """Identity from a kubeconfig and its files. A file is read again when it was replaced; if it is missing or empty
    for a moment, while it is renewed, its previous content is used."""

    def __init__(self, access: ClientConfig) -> None:
        self._token = _Watched(access.token_file) if access.token_file else None
        self._certificate = _Watched(access.client_certificate)
        self._key = _Watched(access.client_key)
        self._ca = _Watched(access.ca)
        self._fixed_authorization = _authorization(access)

    async def current(self) -> ClientIdentity:
        return self._read()

    def _read(self) -> ClientIdentity:
        authorization = self._fixed_authorization
        if self._token is not None:
            authorization = f"Bearer {self._token.read().decode('latin-1').strip()}"
        return ClientIdentity(authorization, self._certificate.read(), self._key.read(), self._ca.read())

    def refused(self, identity: ClientIdentity) -> bool:
        """Return whether a file was replaced meanwhile; files are checked on every request anyway."""
        return self._read().authorization != identity.authorization


class FromPlugin:
    """Credentials printed by an exec plugin, combined with the CA of the kubeconfig."""

    def __init__(self, access: ClientConfig) -> None:
        assert access.exec is not None
        self._plugin = PluginCredentials(access.exec, access.origin)
        self._files = FromFiles(access)

    async def current(self) -> ClientIdentity:
        printed = await self._plugin.current()
        fixed = await self._files.current()
        return ClientIdentity(
            f"Bearer {printed.token}" if printed.token else "",
            printed.certificate_pem or fixed.certificate_pem,
            printed.key_pem or fixed.key_pem,
            fixed.ca_pem,
        )

    def refused(self, identity: ClientIdentity) -> bool:
        token = identity.authorization.removeprefix("Bearer ")
        return self._plugin.discard(token, identity.certificate_pem)


def _authorization(access: ClientConfig) -> str:
    if access.token:
        return f"Bearer {access.token}"
    if access.method == "basic":
        return "Basic " + base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
    return ""


def impersonation_headers(wanted: Impersonation) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", wanted.user)] if wanted.user else []
    if wanted.uid:
        headers.append(("Impersonate-Uid", wanted.uid))
    headers += [("Impersonate-Group", group) for group in wanted.groups]
    for key, values in wanted.extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return headers


class _Watched:
    """Value, or a file's content as of its last change."""

    def __init__(self, source: Pem) -> None:
        self._path = source if isinstance(source, Path) else None
        self._content = source if isinstance(source, bytes) else b""
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> bytes:
        if self._path is None:
            return self._content
        # Stamp before content: a file that is replaced between the two is read again by the next request.
        stamp = _stamp(self._path)
        if stamp is not None and stamp != self._stamp:
            content = _content(self._path)
            if content:
                self._content, self._stamp = content, stamp
        if not self._content:
            raise KubeconfigError(f"cannot read {self._path}, or it is empty")
        return self._content


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # With the inode: a file that replaces another may have the same size and time.
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        log.warning("cannot read %s: %s; using its previous content", path, error.strerror)
        return b""
