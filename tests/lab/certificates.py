"""Keys and certificates for one throw-away cluster."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common: str, organisation: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organisation:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


class Authority:
    """Signs what it is asked to."""

    def __init__(self, common: str) -> None:
        self.key = new_key()
        self.name = _name(common)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._builder(self.name, self.key).add_extension(constraints, critical=True)
        self.pem = self._sign(self.certificate)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=2))
        )

    def _sign(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self, *addresses: str) -> tuple[bytes, bytes]:
        key = new_key()
        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = self._builder(_name("server"), key).add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._sign(builder.add_extension(usage, critical=False)), key_pem(key)

    def client(self, common: str, organisation: str = "") -> tuple[bytes, bytes]:
        key = new_key()
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._builder(_name(common, organisation), key).add_extension(usage, critical=False)
        return self._sign(builder), key_pem(key)


def write(folder: Path, **files: bytes) -> dict[str, Path]:
    """Each as folder/<name>.pem, readable by the owner only."""
    paths = {}
    for name, content in files.items():
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(content)
        paths[name] = path
    return paths
