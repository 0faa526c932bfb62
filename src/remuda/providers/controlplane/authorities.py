"""Certificate authorities of a cluster: Cluster API's Secrets `<cluster>-ca`, `-etcd`, `-proxy` and `-sa`.

Existing Secrets are used, whoever created them; missing ones are created before the first host gets a plan. Servers
have the authorities before they start for the first time, so the manager can sign certificates and never has to fetch
anything from a node. Once plans were delivered, a missing authority is never replaced by a new one, which no node would
trust. It is restored from the plans of servers, which hold all of them; if they lack it or differ, a condition reports
the problem.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from remuda.agent import rules
from remuda.kube import certificates, clock
from remuda.kube.client import Client
from remuda.kube.core import Secret
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.controlplane.referenced_objects import ReferencedObject, ReferencedObjects
from remuda.providers.controlplane.render import plan
from remuda.providers.controlplane.render.plan import File
from remuda.providers.shared.secrets import create_owned, owned_secret
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import step

CREATE = step("rkecontrolplane.create-authority", "creates a certificate authority of a cluster")
RESTORE = step("rkecontrolplane.restore-authority", "restores a deleted certificate authority from its servers' plans")

CERTIFICATE, KEY = "tls.crt", "tls.key"
CLUSTER, ETCD, PROXY, ACCOUNTS = "ca", "etcd", "proxy", "sa"
_PURPOSES = (CLUSTER, ETCD, PROXY, ACCOUNTS)
_DAYS = 3650
_SOON_SECONDS = 90 * 86400.0

# Paths below the data directory of a server, without their suffix.
_PLACES: Mapping[str, tuple[str, ...]] = {
    CLUSTER: ("server/tls/server-ca", "server/tls/client-ca"),
    ETCD: ("server/tls/etcd/server-ca", "server/tls/etcd/peer-ca"),
    PROXY: ("server/tls/request-header-ca",),
}
_ACCOUNT_KEYS = ("server/tls/service.key", "server/tls/service.current.key")

log = logging.getLogger(__name__)


class Authorities(msgspec.Struct, kw_only=True):
    files: dict[str, bytes] = msgspec.field(default_factory=dict)  # below the data directory of a server
    signing: dict[str, bytes] = msgspec.field(default_factory=dict)  # CERTIFICATE and KEY of the cluster's own
    problems: list[Wait] = msgspec.field(default_factory=list)
    expiring: str = ""  # which one ends soon

    # The default would print private keys into logs and tracebacks.
    def __repr__(self) -> str:
        return "<Authorities>"


def secret_name(cluster: str, purpose: str) -> str:
    return f"{cluster}-{purpose}"


def secret_names(cluster: str) -> list[str]:
    return [secret_name(cluster, purpose) for purpose in _PURPOSES]


async def authorities(
    client: Client, named: ReferencedObjects, plane: RKEControlPlane, *, delivered: bool, plans: Sequence[Secret] = ()
) -> Authorities:
    """`plans`: the plan Secrets of servers, as wholes."""
    found = Authorities()
    for purpose in _PURPOSES:
        key = Key(plane.metadata.namespace, secret_name(plane.spec.cluster_name, purpose))
        held = await named.secret(key)
        if held is None and not plane.metadata.deleting:
            held = await _restored(client, named, plane, key, purpose, plans)
        if held is None and delivered:
            found.problems.append(_problem(key, "was deleted", "restore it unchanged: nodes trust no other CA"))
            continue
        held = held or await _made(client, named, plane, key, purpose)
        problem, ends = _judged(purpose, held.data.get(CERTIFICATE, b""), held.data.get(KEY, b""))
        if ends is not None and ends < clock.time():
            problem = f"{CERTIFICATE} expired at {clock.rfc3339(ends)}"
        if problem:
            found.problems.append(
                _problem(key, problem, "correct it; before the first host has a plan you can also delete it")
            )
        else:
            _take(found, purpose, held, ends)
    return found


def _take(found: Authorities, purpose: str, held: ReferencedObject, ends: float | None) -> None:
    certificate, key = held.data.get(CERTIFICATE, b""), held.data[KEY]
    if purpose == ACCOUNTS:
        found.files.update(dict.fromkeys(_ACCOUNT_KEYS, key))
    else:
        for place in _PLACES[purpose]:
            found.files[f"{place}.crt"] = certificate
            found.files[f"{place}.key"] = key
    if purpose == CLUSTER:
        found.signing = {CERTIFICATE: certificate, KEY: key}
    if ends is not None and ends - clock.time() < _SOON_SECONDS:
        found.expiring = f"the CA in Secret {held.key} expires at {clock.rfc3339(ends)}"


async def _restored(
    client: Client, named: ReferencedObjects, plane: RKEControlPlane, key: Key, purpose: str, plans: Sequence[Secret]
) -> ReferencedObject | None:
    """Put a deleted Secret back as the plans of servers have it; None where they do not have it."""
    data = delivered_authority(purpose, plans)
    if data is None:
        return None
    log.warning("Secret %s was deleted; restoring it from the plans of the cluster's servers", key)
    await create_owned(client, plane, owned_secret(plane, key.name, data), RESTORE)
    return await named.secret(key)


def delivered_authority(purpose: str, plans: Sequence[Secret]) -> dict[str, bytes] | None:
    """Return an authority as the plans of servers contain it; None if they contain none that is usable, or differ.

    The plans of workers are ignored: their hosts have no authority, and could only forge one.
    """
    place = _ACCOUNT_KEYS[0].removesuffix(".key") if purpose == ACCOUNTS else _PLACES[purpose][0]
    found = set()
    for secret in plans:
        files = {file.path: file.content for file in _files(secret)}
        key = next((content for path, content in files.items() if path.endswith(f"/{place}.key")), b"")
        certificate = next((content for path, content in files.items() if path.endswith(f"/{place}.crt")), b"")
        if key:
            found.add((certificate, key))
    if len(found) != 1:
        return None
    ((certificate, key),) = found
    problem, _ = _judged(purpose, certificate, key)
    if problem:
        return None
    return {CERTIFICATE: certificate or _public(key), KEY: key}


def _files(secret: Secret) -> Sequence[File]:
    """The files of a plan; none of one that cannot be read, because a host may have written it."""
    try:
        return plan.read(secret.data.get(rules.PLAN) or b"{}").files
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _public(key: bytes) -> bytes:
    return (
        serialization.load_pem_private_key(key, password=None)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


async def _made(
    client: Client, named: ReferencedObjects, plane: RKEControlPlane, key: Key, purpose: str
) -> ReferencedObject:
    private = certificates.new_key()
    if purpose == ACCOUNTS:
        data = {CERTIFICATE: _public(certificates.key_pem(private)), KEY: certificates.key_pem(private)}
    else:
        now = datetime.datetime.fromtimestamp(clock.time(), datetime.UTC)
        made = certificates.make_ca(private, f"{plane.spec.cluster_name}-{purpose}", _DAYS, now)
        data = {CERTIFICATE: certificates.certificate_pem(made), KEY: certificates.key_pem(private)}
    await create_owned(client, plane, owned_secret(plane, key.name, data), CREATE)
    held = await named.secret(key)
    if held is None:
        raise Retryable(f"Secret {key} was deleted right after its creation")
    return held


@lru_cache(maxsize=256)
def _judged(purpose: str, certificate: bytes, key: bytes) -> tuple[str, float | None]:
    """Return why this key pair cannot be used (empty if it can), and when its certificate expires."""
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return f"{KEY} is not a PEM private key, or is encrypted with a password", None
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return f"{KEY} is neither an RSA nor an EC key", None
    if purpose == ACCOUNTS:
        return "", None
    try:
        (found, *_) = x509.load_pem_x509_certificates(certificate)
    except ValueError:
        return f"{CERTIFICATE} is not a PEM certificate", None
    if found.public_key() != private.public_key():
        return f"{CERTIFICATE} and {KEY} do not match", None
    try:
        signs = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        signs = False
    if not signs:
        return f"{CERTIFICATE} is not a CA certificate", None
    return "", found.not_valid_after_utc.timestamp()


def _problem(key: Key, missing: str, then: str) -> Wait:
    return Wait(reason="BadAuthority", on=f"Secret {key}", missing=missing, then=then)
