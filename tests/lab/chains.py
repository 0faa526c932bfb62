"""Certificates as a company makes them for its servers: a root, one that it signs with, and what that signs, with a
life of one's choosing."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.lab.certificates import new_key

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class CompanyAuthority:
    def __init__(self, name: str = "Ranch") -> None:
        self._root_key, self._signing_key = new_key(), new_key()
        self.root = _sign(f"{name} Root", self._root_key, f"{name} Root", self._root_key, authority=True)
        self.between = _sign(f"{name} Issuing", self._signing_key, f"{name} Root", self._root_key, authority=True)
        self._issuer = f"{name} Issuing"

    def certificate(
        self, *names: str, days: float = 90, since: float = 0.01, key: Key | None = None
    ) -> tuple[bytes, bytes]:
        """The server's own and the one between, as such files are delivered; and the key."""
        key = key or new_key()
        leaf = _sign(names[0], key, self._issuer, self._signing_key, names=names, days=days, since=since)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return leaf + self.between, pem

    def files(self, folder: Path, *names: str, days: float = 90, root: bool = True) -> tuple[Path, Path]:
        """chain.pem, with the root at its end, and key.pem, which only its owner may read."""
        chain, key = self.certificate(*names, days=days)
        return write(folder, chain + (self.root if root else b""), key)


def write(folder: Path, chain: bytes, key: bytes) -> tuple[Path, Path]:
    """Each file is there whole or not at all, as by those who renew."""
    paths = folder / "chain.pem", folder / "key.pem"
    for path, content in zip(paths, (chain, key), strict=True):
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.replace(path)
    return paths


def _sign(
    subject: str,
    key: Key,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    names: tuple[str, ...] = (),
    days: float = 365,
    since: float = 0.01,
) -> bytes:
    now = datetime.now(UTC)
    identity = x509.SubjectKeyIdentifier.from_public_key
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=since))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(identity(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_usage(authority), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(alternatives, critical=False).add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _usage(authority: bool) -> x509.KeyUsage:
    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, decipher_only=False, **others
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
