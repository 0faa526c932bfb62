"""Certificates of a server: issued at its start if they are missing, do not match, or expire within 120 days.

Names of files and users are K3s', because probes, scripts and people know them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.kube import certificates
from remuda.lab.nano.authorities import CA_DAYS, Authorities
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file

LEAF_DAYS = 365
RENEW_BEFORE = datetime.timedelta(days=120)
MASTERS = "system:masters"
AUTH_PROXY = "system:auth-proxy"

# file below server/tls → user and groups
CLIENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "client-admin": ("system:admin", (MASTERS,)),
    "client-supervisor": ("system:{program}-supervisor", (MASTERS,)),
    "client-kube-apiserver": ("system:apiserver", (MASTERS,)),
    "client-controller": ("system:kube-controller-manager", ()),
    "client-scheduler": ("system:kube-scheduler", ()),
    "client-kube-proxy": ("system:kube-proxy", ()),
    "client-{program}-controller": ("system:{program}-controller", ()),
    "client-{program}-cloud-controller": ("{program}-cloud-controller-manager", ()),
}

_Key = ec.EllipticCurvePrivateKey
_Issue = Callable[[_Key, datetime.datetime], x509.Certificate]


class Leaf(NamedTuple):
    path: Path  # without its suffix
    authority: certificates.Authority
    issue: _Issue
    names: frozenset[str] = frozenset()


def ensure(leaves: Iterable[Leaf], now: datetime.datetime) -> list[Path]:
    """Issue the certificates that are missing or no longer good; return the paths of those issued."""
    made = []
    for leaf in leaves:
        if is_good(leaf, now):
            continue
        key = certificates.new_key()
        certificate = leaf.issue(key, now)
        certificate_path = leaf.path.with_name(leaf.path.name + ".crt")
        certificate_path.unlink(missing_ok=True)  # an old certificate must never be beside a new key
        write_file(leaf.path.with_name(leaf.path.name + ".key"), certificates.key_pem(key))
        write_file(certificate_path, certificates.certificate_pem(certificate), 0o644)
        made.append(certificate_path)
    return made


def is_good(leaf: Leaf, now: datetime.datetime) -> bool:
    certificate_pem = read_or_none(leaf.path.with_name(leaf.path.name + ".crt"))
    key_pem = read_or_none(leaf.path.with_name(leaf.path.name + ".key"))
    if certificate_pem is None or key_pem is None:
        return False
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        key: Any = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        return False
    return (
        certificates.belongs_to(certificate, key)
        and certificates.is_issued_by(certificate, leaf.authority.certificate)
        and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEW_BEFORE
        and certificates.alternative_names(certificate) >= leaf.names
    )


def of_server(layout: NanoLayout, authorities: Authorities, names: Sequence[str]) -> list[Leaf]:
    """Return the certificates of a server. `names`: all names and addresses of this server."""
    program = layout.flavour.name
    leaves = [
        client(layout.tls / file.format(program=program), authorities.client, user.format(program=program), groups)
        for file, (user, groups) in CLIENTS.items()
    ]
    leaves.append(client(layout.tls / "client-auth-proxy", authorities.request_header, AUTH_PROXY, ()))
    leaves.append(client(layout.etcd_tls / "client", authorities.etcd_server, "etcd-client", ()))
    leaves.append(_serving(layout.tls / "serving-kube-apiserver", authorities.server, "kube-apiserver", names))
    leaves.append(_serving(layout.etcd_tls / "server-client", authorities.etcd_server, "etcd-server", names, both=True))
    leaves.append(
        _serving(layout.etcd_tls / "peer-server-client", authorities.etcd_peer, "etcd-peer", names, both=True)
    )
    return leaves


def client(path: Path, authority: certificates.Authority, user: str, groups: Sequence[str]) -> Leaf:
    return Leaf(path, authority, lambda key, now: authority.issue_client(key, user, groups, LEAF_DAYS, now))


def _serving(
    path: Path, authority: certificates.Authority, common_name: str, names: Sequence[str], *, both: bool = False
) -> Leaf:
    def issue(key: _Key, now: datetime.datetime) -> x509.Certificate:
        return authority.sign_server(key.public_key(), common_name, names, LEAF_DAYS, now, also_client=both)

    return Leaf(path, authority, issue, frozenset(names))


def self_signed(folder: Path, name: str, names: Sequence[str], now: datetime.datetime) -> tuple[Path, Path]:
    """Create the self-signed pair of a component that finds none in its folder: the certificate, followed by its
    authority, whose key is discarded.
    """
    certificate_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    if not _serves_still(certificate_path, key_path, names, now):
        ca_key, key = certificates.new_key(), certificates.new_key()
        ca = certificates.make_ca(ca_key, f"{name}-ca@{int(now.timestamp())}", CA_DAYS, now)
        leaf = certificates.Authority(ca, ca_key).issue_server(key, names, LEAF_DAYS, now, common_name=name)
        certificate_path.unlink(missing_ok=True)
        write_file(key_path, certificates.key_pem(key))
        write_file(certificate_path, certificates.certificate_pem(leaf) + certificates.certificate_pem(ca), 0o644)
    return certificate_path, key_path


def _serves_still(certificate_path: Path, key_path: Path, names: Sequence[str], now: datetime.datetime) -> bool:
    pem = read_or_none(certificate_path)
    if pem is None or not key_path.exists():
        return False
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False
    return now < certificate.not_valid_after_utc - RENEW_BEFORE and certificates.alternative_names(
        certificate
    ) >= frozenset(names)
