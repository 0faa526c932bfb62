"""Credential plugin that `kubectl` runs to access a cluster, with the caller's own kubeconfig of the management plane.

It prints a short-lived token, cached in a private file until shortly before it expires or until it is revoked. For a
user whom the embedded API server authenticates by certificate, it prints that certificate instead and caches nothing.
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
_RUNNING = "REMUDA_CREDENTIAL"  # set while it runs: a kubeconfig that runs this plugin again would loop forever
_SPARE = 0.1  # share of a token's lifetime before its expiry in which it is renewed


class _CachedToken(msgspec.Struct):
    token: str
    expires: float
    renew: float


def credential(kubeconfig: Path | None, context: str, user: str, cluster: str, ttl: float) -> str:
    from remuda.kube import clock

    _refuse_loops()
    path = _cache_path(str(kubeconfig), context, user, cluster, str(ttl))
    cached = _read(path)
    if cached is None or cached.renew <= clock.time() or not _exists(kubeconfig, context, user, cached):
        cached = _create(kubeconfig, context, user, cluster, ttl)
        _write(path, cached)
    status = {"token": cached.token, "expirationTimestamp": clock.rfc3339(cached.expires)}
    return _printed(status)


def certificate(kubeconfig: Path | None, context: str) -> str:
    from remuda.kube.kubeconfig import KubeconfigError, load

    _refuse_loops()
    try:
        access = load(kubeconfig, context)
        pair = [
            one.read_text() if isinstance(one, Path) else one.decode()
            for one in (access.client_certificate, access.client_key)
        ]
    except (KubeconfigError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if not all(pair):
        raise click.ClickException(f"no client certificate and key in {access.origin}")
    return _printed({"clientCertificateData": pair[0], "clientKeyData": pair[1]})


def _refuse_loops() -> None:
    if os.environ.get(_RUNNING):
        raise click.ClickException(
            "this kubeconfig refers to itself: --kubeconfig must name the kubeconfig of the management plane"
        )
    os.environ[_RUNNING] = "1"


def _printed(status: dict[str, str]) -> str:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status}).decode()


def _exists(kubeconfig: Path | None, context: str, user: str, cached: _CachedToken) -> bool:
    """Return whether the token still exists: after a 401 kubectl asks again, and must not get a revoked one."""
    from remuda.cli.user_tokens import is_there

    name = cached.token.partition(":")[0]
    return connected(kubeconfig, lambda client: is_there(client, name, own=not user), context=context)


def _create(kubeconfig: Path | None, context: str, user: str, cluster: str, ttl: float) -> _CachedToken:
    from remuda.access.tokens import mint
    from remuda.access.types import TOKEN
    from remuda.cli.user_tokens import token_user
    from remuda.kube import clock

    now = clock.time()

    async def make(client: HttpClient) -> str:
        whose = await token_user(client, user, cluster)
        made = mint(
            whose, expires_at=now + ttl, clusters=[cluster], description="for kubectl, by remuda get kubeconfig"
        )
        await client.create(TOKEN.target, "", made.obj)
        return made.bearer

    return _CachedToken(connected(kubeconfig, make, context=context), now + ttl, now + ttl * (1 - _SPARE))


def _cache_path(*what: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "remuda" / "credentials" / f"{hashlib.sha256(chr(0).join(what).encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> _CachedToken | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_CachedToken)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, cached: _CachedToken) -> None:
    """Cache a token, readable by its owner only from the start (mkstemp's mode). A failure is only a warning."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(cached))
        Path(temporary).replace(path)
    except OSError as error:
        click.echo(f"cannot cache token in {path}: {error.strerror}; each run will request a new one", err=True)
