"""Credential plugin that `kubectl` runs to access a cluster, with the caller's own kubeconfig of the management plane.

It prints either a short-lived token, cached in a file of its owner's until shortly before it expires, or until it is
revoked; or, for a user whom the embedded engine knows by a certificate, that certificate, which is cached nowhere else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from remuda.cli.connection import connected

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

API_VERSION = "client.authentication.k8s.io/v1"
_RUNNING = "REMUDA_CREDENTIAL"  # set while it runs: a kubeconfig that leads to itself would run it for ever
_SPARE = 0.1  # of a token's life: when so much is left, another is made


class _Kept(msgspec.Struct):
    token: str
    expires: float
    renew: float


def credential(kubeconfig: Path | None, context: str, user: str, cluster: str, ttl: float) -> str:
    from remuda.kube import clock

    _once()
    place = _place(str(kubeconfig), context, user, cluster, str(ttl))
    kept = _read(place)
    if kept is None or kept.renew <= clock.time() or not _is_there(kubeconfig, context, user, kept):
        kept = _make(kubeconfig, context, user, cluster, ttl)
        _write(place, kept)
    status = {"token": kept.token, "expirationTimestamp": clock.rfc3339(kept.expires)}
    return _printed(status)


def certificate(kubeconfig: Path | None, context: str) -> str:
    from remuda.kube.kubeconfig import KubeconfigError, load

    _once()
    try:
        access = load(kubeconfig, context)
        pair = [
            one.read_text() if isinstance(one, Path) else one.decode()
            for one in (access.client_certificate, access.client_key)
        ]
    except (KubeconfigError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if not all(pair):
        raise click.ClickException(f"there is no certificate with its key in {access.origin}")
    return _printed({"clientCertificateData": pair[0], "clientKeyData": pair[1]})


def _once() -> None:
    if os.environ.get(_RUNNING):
        raise click.ClickException("this kubeconfig leads to itself: --kubeconfig must be that of the management plane")
    os.environ[_RUNNING] = "1"


def _printed(status: dict[str, str]) -> str:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status}).decode()


def _is_there(kubeconfig: Path | None, context: str, user: str, kept: _Kept) -> bool:
    """One that was revoked is not handed out again: kubectl, which was refused with it, has asked for another."""
    from remuda.cli.token_list import is_there

    name = kept.token.partition(":")[0]
    return connected(kubeconfig, lambda client: is_there(client, name, own=not user), context=context)


def _make(kubeconfig: Path | None, context: str, user: str, cluster: str, ttl: float) -> _Kept:
    from remuda.access.tokens import mint
    from remuda.access.types import TOKEN
    from remuda.cli.whoami import token_user
    from remuda.kube import clock

    now = clock.time()

    async def make(client: HttpClient) -> str:
        whose = await token_user(client, user, cluster)
        made = mint(
            whose, expires_at=now + ttl, clusters=[cluster], description="for kubectl, by remuda get kubeconfig"
        )
        await client.create(TOKEN.target, "", made.obj)
        return made.bearer

    return _Kept(connected(kubeconfig, make, context=context), now + ttl, now + ttl * (1 - _SPARE))


def _place(*what: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "remuda" / "credentials" / f"{hashlib.sha256(chr(0).join(what).encode()).hexdigest()[:32]}.json"


def _read(place: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return None


def _write(place: Path, kept: _Kept) -> None:
    """Readable by its owner alone from the first moment (mkstemp's mode). One that cannot be kept is used all the
    same."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(kept))
        Path(temporary).replace(place)
    except OSError as error:
        click.echo(f"the token cannot be kept in {place}: {error.strerror}; another is made each time", err=True)
