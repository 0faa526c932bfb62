"""Creation and checks of X.509 certificates: pure, without files.

Keys are EC P-256; an external authority's key may be RSA. Certificates carry the extensions that strict verifiers
require (Go, OpenSSL with X509_STRICT). Validity begins five minutes in the past, for clients whose clock is behind.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AuthorityKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_CLOCK_SKEW = datetime.timedelta(minutes=5)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def make_ca(key: ec.EllipticCurvePrivateKey, common_name: str, days: int, now: datetime.datetime) -> x509.Certificate:
    name = _subject(common_name, ())
    builder = _builder(name, name, key.public_key(), days, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return builder.sign(key, hashes.SHA256())


class Authority:
    """CA that can sign: its certificate and key."""

    def __init__(self, certificate: x509.Certificate, key: AuthorityKey) -> None:
        self.certificate = certificate
        self._key = key

    def issue_server(
        self,
        key: ec.EllipticCurvePrivateKey,
        names: Iterable[str],
        days: int,
        now: datetime.datetime,
        *,
        common_name: str = "kube-apiserver",
    ) -> x509.Certificate:
        return self.sign_server(key.public_key(), common_name, names, days, now)

    def issue_client(
        self,
        key: ec.EllipticCurvePrivateKey,
        common_name: str,
        organizations: Iterable[str],
        days: int,
        now: datetime.datetime,
    ) -> x509.Certificate:
        return self.sign_client(key.public_key(), common_name, organizations, days, now)

    def sign_client(
        self,
        public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        common_name: str,
        organizations: Iterable[str],
        days: int,
        now: datetime.datetime,
    ) -> x509.Certificate:
        """Sign a client certificate for a key that its owner keeps."""
        subject = _subject(common_name, organizations)
        builder = self._leaf(subject, public_key, days, now, (ExtendedKeyUsageOID.CLIENT_AUTH,))
        return builder.sign(self._key, hashes.SHA256())

    def sign_server(
        self,
        public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        common_name: str,
        names: Iterable[str],
        days: int,
        now: datetime.datetime,
        *,
        also_client: bool = False,
    ) -> x509.Certificate:
        """Sign a server certificate for a key that its owner keeps. `also_client`: valid for both ends of a connection,
        as peers need.
        """
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, *((ExtendedKeyUsageOID.CLIENT_AUTH,) if also_client else ()))
        builder = self._leaf(_subject(common_name, ()), public_key, days, now, usages)
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return builder.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())

    def _leaf(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        days: int,
        now: datetime.datetime,
        usages: Iterable[x509.ObjectIdentifier],
    ) -> x509.CertificateBuilder:
        builder = _builder(subject, self.certificate.subject, public_key, days, now)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(issuer_key, critical=False)


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def belongs_to(certificate: x509.Certificate, key: AuthorityKey) -> bool:
    return certificate.public_key() == key.public_key()


def alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def _subject(common_name: str, organizations: Iterable[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    days: int,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
