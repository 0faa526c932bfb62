"""Custom certificate with its chain and key: its names, its validity, and whether clients would trust it. No files.

Clients must trust the root at the end of the chain, never the certificate itself or an intermediate one: both are
replaced when the certificate is renewed. A TLS handshake in memory, by OpenSSL, shows whether clients trust it.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from remuda.kube import KubeError, certificates
from remuda.kube.http.tls import load_pair


class UnusableChain(KubeError):
    """Certificate chain that cannot be used for serving; the message says why and what to do."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    certificates: Sequence[x509.Certificate]  # the server's own certificate first
    pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        return f"<Chain for {', '.join(self.names)}>"  # because the object contains a key

    @property
    def leaf(self) -> x509.Certificate:
        return self.certificates[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the DNS names and IP addresses that the certificate is valid for."""
        return tuple(sorted(certificates.alternative_names(self.leaf)))

    @property
    def has_addresses(self) -> bool:
        return any(_address(name) is not None for name in self.names)

    def days_left(self, now: datetime.datetime) -> int:
        return (self.leaf.not_valid_after_utc - now).days

    def covers(self, host: str) -> bool:
        """Return whether the certificate covers a host, as clients compare: an address exactly, a name also by a `*` as
        its first label.
        """
        address = _address(host)
        if address is not None:
            return any(_address(name) == address for name in self.names)
        asked = host.lower().rstrip(".")
        below = f"*.{asked.partition('.')[2]}"
        return any(name.lower() in (asked, below) for name in self.names if _address(name) is None)

    @property
    def root(self) -> bytes:
        """Return the PEM of the root of the chain, if it is included."""
        found, rest = self.leaf, list(self.certificates)
        while not certificates.is_issued_by(found, found):
            issuer = next((one for one in rest if certificates.is_issued_by(found, one)), None)
            if issuer is None:
                return b""
            rest.remove(issuer)
            found = issuer
        return certificates.certificate_pem(found)


def parse(pem: bytes, key_pem: bytes) -> Chain:
    """Parse a chain and its key. Raise UnusableChain."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise UnusableChain("the certificate file has no certificate in PEM") from None
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except TypeError:
        raise UnusableChain("the key is encrypted: store it without a password, readable by its owner only") from None
    except ValueError:
        # Without the cause: a parser's message about a private key must not get into a log.
        raise UnusableChain("the key file has no private key in PEM") from None
    if found[0].public_key() != key.public_key():
        raise UnusableChain(
            "the key does not belong to the first certificate: the file must begin with the certificate of the server, "
            "followed by its intermediate certificates"
        )
    return Chain(certificates=found, pem=pem, key_pem=key_pem)


def judge(chain: Chain, host: str, authorities: bytes, now: datetime.datetime) -> None:
    """Raise UnusableChain if clients that trust only these authorities would not trust the chain at that host. If the
    host is empty, the first name of the certificate is used."""
    leaf = chain.leaf
    if now >= leaf.not_valid_after_utc:
        raise UnusableChain(f"the certificate expired on {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: renew it")
    if now < leaf.not_valid_before_utc:
        raise UnusableChain(
            f"the certificate is not valid before {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC: check the clock"
        )
    if not chain.names:
        raise UnusableChain("the certificate has no host name in subjectAltName, and clients check no other field")
    if host and not chain.covers(host):
        raise UnusableChain(f"the certificate is for {', '.join(chain.names)}, not for {host}")
    if why := refusal(chain, host, authorities):
        raise UnusableChain(f"clients would not trust the certificate: {why}")


def refusal(chain: Chain, host: str, authorities: bytes, *, strict: bool = False) -> str:
    """Return why a client that trusts only these authorities would reject the chain at that host; empty if it would
    accept it.

    `strict`: verify as Python 3.13 and later do by default.
    """
    asked = host or chain.names[0].replace("*", "any", 1)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(server, chain.pem, chain.key_pem, "this certificate")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authorities.decode("ascii"))
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if strict:
        client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(here, there, server_hostname=asked)
    answering = server.wrap_bio(there, here, server_side=True)
    # The client's hello, the server's answer with its chain, the client's verification: no more of the handshake is
    # needed.
    for end in (asking, answering, asking):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message)
    return ""


def bundle(*parts: bytes) -> bytes:
    """Return all these certificates in PEM, without repetitions."""
    found = {one: None for part in parts if part for one in x509.load_pem_x509_certificates(part)}
    return b"".join(map(certificates.certificate_pem, found))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
