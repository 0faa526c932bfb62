"""Own CA and serving certificate, in a Secret that all replicas share: for webhooks, and for hosts.

A replica that finds the certificate missing, about to expire or issued for other names writes a new one, unless another
replica was faster; then it uses that one. When the CA itself is replaced, its predecessor stays in `ca.crt`, so that
clients still trust replicas that serve with it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.kube import certificates, clock
from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists, Conflict, NotFound
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.queue import Backoff
from remuda.runtime.steps import step

WRITE = step("webhooks.write-certificate", "writes the CA and serving certificate of the webhooks to their Secret")

WEBHOOKS = "remuda-webhooks"  # common name of the CA
CA_DAYS = 3650
SERVING_DAYS = 90
_RENEW_SHARE = 1 / 3  # share of its lifetime left when a certificate is replaced
_RACES = Backoff(first=0.01, most=1.0)
_CA, _CA_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class _Secret(Object):
    data: Mapping[str, bytes] = {}  # base64 in JSON


SECRET = Kind("v1", "Secret", "secrets", _Secret)


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Serving certificate and key, the CA that clients must trust, and the time of the next renewal."""

    ca_pem: bytes
    certificate_pem: bytes
    key_pem: bytes
    renew_at: float  # seconds since the epoch


async def ensure(client: Client, key: Key, names: Sequence[str], *, common_name: str = WEBHOOKS) -> Serving:
    """Read the Secret, and write it if it is missing or invalid."""
    for attempt in count(1):
        secret = await _read(client, key)
        data = secret.data if secret is not None else {}
        renewed = renewal(data, names, clock.time(), common_name)
        if renewed is None:
            break
        with contextlib.suppress(Conflict, AlreadyExists):
            async with WRITE:
                await _write(client, key, secret, renewed)
            data = renewed
            break
        # The other replica's Secret may not be readable yet.
        await asyncio.sleep(_RACES.seconds(attempt))
    return _serving(data)


def renewal(
    data: Mapping[str, bytes], names: Sequence[str], seconds: float, common_name: str = WEBHOOKS
) -> dict[str, bytes] | None:
    """Return the content of a new Secret, or None while the existing one is valid for `names`. Pure except for the new
    keys.
    """
    now = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    authority = _authority(data, now)
    if authority is not None and _is_good(data, authority, names, now):
        return None
    bundle = data.get(_CA, b"")
    ca_key = data.get(_CA_KEY, b"")
    if authority is None:
        key = certificates.new_key()
        certificate = certificates.make_ca(key, common_name, CA_DAYS, now)
        authority, ca_key = certificates.Authority(certificate, key), certificates.key_pem(key)
        bundle = certificates.certificate_pem(certificate) + _still_valid(bundle, now)
    serving_key = certificates.new_key()
    serving = authority.issue_server(serving_key, names, SERVING_DAYS, now, common_name=common_name)
    return {
        _CA: bundle,
        _CA_KEY: ca_key,
        _CERTIFICATE: certificates.certificate_pem(serving),
        _KEY: certificates.key_pem(serving_key),
    }


def _authority(data: Mapping[str, bytes], now: datetime.datetime) -> certificates.Authority | None:
    """Return the CA that signs: the first of the bundle, if we have its key and it does not expire soon."""
    found, key = _certificates(data.get(_CA, b"")), _key(data.get(_CA_KEY, b""))
    if not found or key is None or not certificates.belongs_to(found[0], key) or now >= _renewal_time(found[0]):
        return None
    return certificates.Authority(found[0], key)


def _is_good(
    data: Mapping[str, bytes], authority: certificates.Authority, names: Sequence[str], now: datetime.datetime
) -> bool:
    found, key = _certificates(data.get(_CERTIFICATE, b"")), _key(data.get(_KEY, b""))
    return bool(
        found
        and key is not None
        and certificates.belongs_to(found[0], key)
        and certificates.is_issued_by(found[0], authority.certificate)
        and certificates.alternative_names(found[0]) >= frozenset(names)
        and found[0].not_valid_before_utc <= now < _renewal_time(found[0])
    )


def _renewal_time(certificate: x509.Certificate) -> datetime.datetime:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - life * _RENEW_SHARE


def _still_valid(bundle: bytes, now: datetime.datetime) -> bytes:
    valid = (one for one in _certificates(bundle) if now < one.not_valid_after_utc)
    return b"".join(map(certificates.certificate_pem, valid))


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem) if pem else []
    except ValueError:
        return []


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _serving(data: Mapping[str, bytes]) -> Serving:
    certificate = x509.load_pem_x509_certificate(data[_CERTIFICATE])
    return Serving(
        ca_pem=data[_CA],
        certificate_pem=data[_CERTIFICATE],
        key_pem=data[_KEY],
        renew_at=_renewal_time(certificate).timestamp(),
    )


async def _read(client: Client, key: Key) -> _Secret | None:
    try:
        return SECRET.decode(await client.get(SECRET.target, *key))
    except NotFound:
        return None


async def _write(client: Client, key: Key, present: _Secret | None, data: Mapping[str, bytes]) -> None:
    encoded: dict[str, Any] = {"data": {name: base64.b64encode(value).decode() for name, value in data.items()}}
    if present is None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": key.name}, "type": "Opaque", **encoded}
        await client.create(SECRET.target, key.namespace, secret)
    else:
        lock = {"resourceVersion": present.metadata.resource_version}
        await client.patch(SECRET.target, *key, {"metadata": lock, **encoded})
