"""The server's keys and certificates on disk, under DIR/pki.

`prepare` creates missing files and renews certificates that are about to expire. It can be killed at any point and run
again: each file is written atomically, a key is written before its certificate, and a leaf that does not match its key,
its CA or the requested names is issued again. The CA and the service-account key are never replaced: clients and tokens
depend on them. If the key of a CA is missing, an administrator must act.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from remuda.apiserver import ApiServerError
from remuda.apiserver.auth.user import MASTERS
from remuda.kube import certificates
from remuda.kube.names import dns1123_subdomain

CA_DAYS = 3650
LEAF_DAYS = 365
RENEW_BEFORE = datetime.timedelta(days=30)
ADMIN = "kubernetes-admin"
_STANDARD_NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

TokenKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class PkiError(ApiServerError):
    """File under DIR/pki that the server can neither use nor replace."""


class KeyPair(NamedTuple):
    certificate_pem: bytes
    key_pem: bytes


class Pki:
    """PKI files that `prepare` left on disk, and the CA that issues further certificates."""

    def __init__(self, folder: Path, authority: certificates.Authority, token_key: TokenKey) -> None:
        self.folder = folder
        self.ca_certificate = authority.certificate
        self.ca_certificate_pem = certificates.certificate_pem(authority.certificate)
        self.token_key = token_key  # signs service-account tokens
        self._authority = authority

    @property
    def admin(self) -> KeyPair:
        return KeyPair((self.folder / "admin.crt").read_bytes(), (self.folder / "admin.key").read_bytes())

    def issue_client_certificate(self, cn: str, organizations: Iterable[str] = (), days: int = LEAF_DAYS) -> KeyPair:
        """Issue a client certificate for the user `cn` in the groups `organizations`."""
        key = certificates.new_key()
        certificate = self._authority.issue_client(key, cn, organizations, days, _now())
        return KeyPair(certificates.certificate_pem(certificate), certificates.key_pem(key))

    def server_context(self) -> ssl.SSLContext:
        context = self.bare_context()
        self.show(context)
        return context

    def show(self, context: ssl.SSLContext) -> None:
        """Load the serving certificate from disk, for all new connections."""
        context.load_cert_chain(self.folder / "apiserver.crt", self.folder / "apiserver.key")

    def bare_context(self) -> ssl.SSLContext:
        """Return a TLS context (1.2 and up) without a server certificate. Client certificates are optional, and must be
        from our CA.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=self.ca_certificate_pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context


def prepare(data_dir: Path, *, listen_address: str = "", extra_names: Iterable[str] = ()) -> Pki:
    """Create or renew everything under data_dir/pki. Raise PkiError, OSError."""
    folder = data_dir / "pki"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # `_write` creates its temporary file with O_EXCL, so one left by a crash would make every later write fail.
    _remove_half_written(folder)
    authority = _authority(folder)
    names = serving_names(listen_address, extra_names)
    _ensure_leaf(
        folder,
        "apiserver",
        authority,
        lambda key: authority.issue_server(key, names, LEAF_DAYS, _now()),
        lambda certificate: certificates.alternative_names(certificate) >= frozenset(names),
    )
    _ensure_leaf(
        folder,
        "admin",
        authority,
        lambda key: authority.issue_client(key, ADMIN, (MASTERS,), LEAF_DAYS, _now()),
        lambda certificate: True,
    )
    pki = Pki(folder, authority, _token_key(folder))
    _sync_folder(folder)
    return pki


def serving_names(listen_address: str, extra: Iterable[str]) -> tuple[str, ...]:
    """Return every name and address of the serving certificate, without repetitions. Raise PkiError for an
    invalid one.
    """
    own = [name for name in (socket.gethostname(),) if _is_dns_name(name.lower())]
    asked = (name for name in (listen_address, *extra) if not _is_wildcard(name))
    return tuple(dict.fromkeys((*_STANDARD_NAMES, *map(str.lower, own), *map(_canonical, asked))))


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        if not _is_dns_name(name.lower().removeprefix("*.")):
            raise PkiError(f"{name!r} is neither a DNS name nor an IP address") from None
        return name.lower()


def _is_dns_name(name: str) -> bool:
    """Return whether the text is a DNS name. Underscores are accepted, because many machines have them in
    their names.
    """
    return not dns1123_subdomain(name.replace("_", "x")) and all(len(label) < 64 for label in name.split("."))


def _is_wildcard(address: str) -> bool:
    return address.strip("[]") in ("", "0.0.0.0", "::")  # noqa: S104  (an address to leave out, not to listen on)


def _authority(folder: Path) -> certificates.Authority:
    key_path, certificate_path = folder / "ca.key", folder / "ca.crt"
    if not key_path.exists():
        if certificate_path.exists():
            raise PkiError(
                f"{key_path} is missing but {certificate_path} exists: restore the key from a backup, or remove the "
                "certificate to start with a new CA that no existing client trusts"
            )
        _write(key_path, certificates.key_pem(certificates.new_key()), secret=True)
    key = _load_ec_key(key_path)
    certificate = _load_certificate(certificate_path)
    if certificate is None:
        # With the same key and name, clients that trust an earlier certificate of this CA trust its new leaves too.
        certificate = certificates.make_ca(key, "kubernetes", CA_DAYS, _now())
        _write(certificate_path, certificates.certificate_pem(certificate))
    if not certificates.belongs_to(certificate, key):
        raise PkiError(f"{certificate_path} does not belong to {key_path}")
    return certificates.Authority(certificate, key)


def _ensure_leaf(
    folder: Path,
    name: str,
    authority: certificates.Authority,
    issue: Callable[[ec.EllipticCurvePrivateKey], x509.Certificate],
    is_wanted: Callable[[x509.Certificate], bool],
) -> None:
    key_path, certificate_path = folder / f"{name}.key", folder / f"{name}.crt"
    if _is_good_leaf(key_path, certificate_path, authority, is_wanted):
        return
    key = certificates.new_key()
    certificate = issue(key)
    # Remove the old certificate first: after a crash at any point, `_is_good_leaf` finds no matching pair.
    certificate_path.unlink(missing_ok=True)
    _write(key_path, certificates.key_pem(key), secret=True)
    _write(certificate_path, certificates.certificate_pem(certificate))


def _is_good_leaf(
    key_path: Path,
    certificate_path: Path,
    authority: certificates.Authority,
    is_wanted: Callable[[x509.Certificate], bool],
) -> bool:
    certificate = _load_certificate(certificate_path)
    if certificate is None:
        return False
    try:
        key = _load_ec_key(key_path)
    except (OSError, PkiError):
        return False
    key_path.chmod(0o600)
    return (
        certificates.belongs_to(certificate, key)
        and certificates.is_issued_by(certificate, authority.certificate)
        and certificate.not_valid_before_utc <= _now() < certificate.not_valid_after_utc - RENEW_BEFORE
        and is_wanted(certificate)
    )


def _token_key(folder: Path) -> TokenKey:
    path = folder / "sa.key"
    if not path.exists():
        _write(path, certificates.key_pem(certificates.new_key()), secret=True)
    key = _load_key(path)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public_path = folder / "sa.pub"
    if not public_path.exists() or public_path.read_bytes() != public:
        _write(public_path, public)
    return key


def _load_key(path: Path) -> TokenKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        # Without the cause: a parser's message about a private key must not get into a log.
        raise PkiError(f"{path} is not a private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise PkiError(f"{path} is neither an EC nor an RSA key")
    path.chmod(0o600)
    return key


def _load_ec_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _load_key(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{path} is not an EC key")
    return key


def _load_certificate(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


_TEMPORARY = ".new"


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write the file atomically. A key is never readable by others, not even for a moment."""
    temporary = path.with_name(path.name + _TEMPORARY)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _remove_half_written(folder: Path) -> None:
    for leftover in folder.glob(f"*{_TEMPORARY}"):
        with contextlib.suppress(FileNotFoundError):
            leftover.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
