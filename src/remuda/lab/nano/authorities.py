"""Certificate authorities of a cluster, as files of a server.

Files that were delivered before the first start or fetched from another server are used unchanged; missing ones are
created; existing ones are never replaced. If a key lacks its certificate or does not match it, an administrator must
act.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from remuda.kube import certificates
from remuda.lab.nano.configuration import FatalError
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file

CA_DAYS = 3650

# Files below server/tls that all servers of a cluster share, with K3s' common names.
NAMES: Mapping[str, str] = {
    "server-ca": "{program}-server-ca",
    "client-ca": "{program}-client-ca",
    "request-header-ca": "{program}-request-header-ca",
    "etcd/server-ca": "etcd-server-ca",
    "etcd/peer-ca": "etcd-peer-ca",
}
SERVICE_KEY = "service.key"
CURRENT_SERVICE_KEY = "service.current.key"


class Authorities:
    def __init__(self, layout: NanoLayout) -> None:
        """Read the files that `prepare` has written. Raise FatalError."""
        self.tls = layout.tls
        found = {name: _load(self.tls, name) for name in NAMES}
        self.server = found["server-ca"]
        self.client = found["client-ca"]
        self.request_header = found["request-header-ca"]
        self.etcd_server = found["etcd/server-ca"]
        self.etcd_peer = found["etcd/peer-ca"]
        self.service_key = _load_key(self.tls / SERVICE_KEY)

    def pem(self, name: str) -> bytes:
        """Return the whole file, including the authorities above it, if any."""
        return (self.tls / f"{name}.crt").read_bytes()


def prepare(layout: NanoLayout) -> Authorities:
    """Create missing files. Raise FatalError."""
    for name, common_name in NAMES.items():
        key_path, certificate_path = layout.tls / f"{name}.key", layout.tls / f"{name}.crt"
        if certificate_path.exists():
            continue
        if not key_path.exists():
            write_file(key_path, certificates.key_pem(certificates.new_key()))
        key = _load_key(key_path)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise FatalError(f"{certificate_path} is missing, and cannot be created for the existing key")
        now = datetime.datetime.now(datetime.UTC)
        made = certificates.make_ca(
            key, f"{common_name.format(program=layout.flavour.name)}@{int(now.timestamp())}", CA_DAYS, now
        )
        write_file(certificate_path, certificates.certificate_pem(made), 0o644)
    if not (layout.tls / SERVICE_KEY).exists():
        write_file(layout.tls / SERVICE_KEY, certificates.key_pem(certificates.new_key()))
    if not (layout.tls / CURRENT_SERVICE_KEY).exists():
        write_file(layout.tls / CURRENT_SERVICE_KEY, (layout.tls / SERVICE_KEY).read_bytes())
    return Authorities(layout)


def shared(layout: NanoLayout) -> dict[str, bytes]:
    """Return all files by name, for a joining server."""
    return {name: (layout.tls / name).read_bytes() for name in shared_names()}


def accept(layout: NanoLayout, given: Mapping[str, bytes]) -> None:
    """Store the files of another server. Existing files must be equal. Raise FatalError."""
    for name in shared_names():
        content = given.get(name)
        if content is None:
            raise FatalError(f"the server of the cluster sent no {name}")
        present = read_or_none(layout.tls / name)
        if present is None:
            write_file(layout.tls / name, content, 0o644 if name.endswith(".crt") else 0o600)
        elif present.strip() != content.strip():
            raise FatalError(
                f"{layout.tls / name} is not what the cluster has: this host belongs to another cluster, or was given "
                "other authorities"
            )


def shared_names() -> list[str]:
    return [f"{name}.{end}" for name in NAMES for end in ("crt", "key")] + [SERVICE_KEY, CURRENT_SERVICE_KEY]


def _load(tls: Path, name: str) -> certificates.Authority:
    key_path, certificate_path = tls / f"{name}.key", tls / f"{name}.crt"
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
    except ValueError:
        raise FatalError(f"{certificate_path} is not a certificate in PEM") from None
    key = _load_key(key_path)
    if not certificates.belongs_to(certificate, key):
        raise FatalError(f"{certificate_path} does not belong to {key_path}")
    return certificates.Authority(certificate, key)


def _load_key(path: Path) -> certificates.AuthorityKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise FatalError(f"{path} is missing, but its certificate is there: restore the key from a backup") from None
    except (ValueError, TypeError):
        raise FatalError(f"{path} is not a private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise FatalError(f"{path} is neither an EC nor an RSA key")
    return key
