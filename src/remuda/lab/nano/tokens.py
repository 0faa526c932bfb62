"""Tokens of a cluster: `K10<hash of its CA>::<user>:<password>`, or only the password.

With the hash, a joining host can verify the server before it sends the password. Users are `server`, who may read the
cluster's keys, and `node`. A bootstrap token (`abcdef.0123456789abcdef`) stands for a node.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.kube import certificates

_FULL = re.compile(r"K10([0-9a-f]{64})::(.+)", re.DOTALL)
_BOOTSTRAP = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")

SERVER = "server"
NODE = "node"


class BadToken(ValueError):
    """Invalid token. The message never contains the token."""


class JoinToken(msgspec.Struct, frozen=True):
    password: str
    user: str = ""  # empty: the caller decides
    ca_hash: str = ""  # empty: any CA is trusted

    @property
    def is_bootstrap(self) -> bool:
        return not self.user and _BOOTSTRAP.fullmatch(self.password) is not None

    def __repr__(self) -> str:
        return "<Token>"


def parse(text: str) -> JoinToken:
    """Parse a token. Raise BadToken."""
    text = text.strip()
    if not text:
        raise BadToken("the token is empty")
    if not text.startswith("K10"):
        return JoinToken(text)
    found = _FULL.fullmatch(text)
    if found is None:
        raise BadToken("invalid token format: K10<64 hex digits>::<user>:<password> is a whole token")
    ca_hash, credentials = found.groups()
    user, colon, password = credentials.partition(":")
    if not colon:
        return JoinToken(credentials, "", ca_hash)
    return JoinToken(password, user, ca_hash)


def full(user: str, password: str, ca_pem: bytes) -> str:
    return f"K10{ca_hash(ca_pem)}::{user}:{password}"


def ca_hash(pem: bytes) -> str:
    """Return the CA hash: of the bytes, if there is one certificate; else of the root that the first one leads to, so
    that another intermediate changes no token."""
    chain = x509.load_pem_x509_certificates(pem)
    if len(chain) == 1:
        return hashlib.sha256(pem).hexdigest()
    return hashlib.sha256(_root_of(chain[0], chain).public_bytes(Encoding.DER)).hexdigest()


def _root_of(certificate: x509.Certificate, others: Sequence[x509.Certificate]) -> x509.Certificate:
    for _ in others:
        issuer = next(
            (one for one in others if one != certificate and certificates.is_issued_by(certificate, one)), None
        )
        if issuer is None:
            break
        certificate = issuer
    return certificate


def same(given: str, wanted: str) -> bool:
    """Compare in constant time. An empty password never matches."""
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())
