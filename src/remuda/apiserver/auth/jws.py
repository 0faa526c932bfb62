"""Signed JSON tokens: keys, compact serialization, and the published key set. This module knows no claims.

PyJWT creates and verifies signatures. Its token parser is not used: it skips characters that are not base64url, so that
one token would have many spellings. A token is accepted only with the algorithm of the key itself (never one that the
token chose), and only up to the length that our tokens can have. Exceptions and logs never contain a token or a key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from remuda.apiserver import ApiServerError

# Our tokens have about 1 KB, and stay well below this limit even with the longest names and many audiences.
LONGEST_TOKEN = 32 * 1024

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class InvalidToken(ApiServerError):
    """Token that none of our keys signed."""


class _Header(msgspec.Struct):
    alg: str
    kid: str = ""
    crit: msgspec.Raw | None = None


_decode_header = msgspec.json.Decoder(_Header).decode


def _algorithm(key: PublicKey) -> tuple[str, Any]:
    """Return the name of the one algorithm that a key is used with, and PyJWT's implementation of it."""
    if isinstance(key, rsa.RSAPublicKey):
        return "RS256", RSAAlgorithm(RSAAlgorithm.SHA256)
    if not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("a service-account key must be EC P-256 or RSA")
    return "ES256", ECAlgorithm(ECAlgorithm.SHA256)


def key_id(key: PublicKey) -> str:
    """Derive the id from the public key, so that every server with the same key uses the same id."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encode_segment(hashlib.sha256(der).digest()).decode()


class Signer:
    """Signs with one private key."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self.public_key: PublicKey = key.public_key()
        name, self._algorithm = _algorithm(self.public_key)
        self._header = encode_segment(msgspec.json.encode({"alg": name, "kid": key_id(self.public_key)}))

    def sign(self, payload: bytes) -> str:
        message = self._header + b"." + encode_segment(payload)
        signature = self._algorithm.sign(message, self._key)
        return (message + b"." + encode_segment(signature)).decode()


class _VerificationKey:
    def __init__(self, key: PublicKey) -> None:
        self._key = key
        self.name, self._algorithm = _algorithm(key)

    def accepts(self, algorithm: str, message: bytes, signature: bytes) -> bool:
        return algorithm == self.name and bool(self._algorithm.verify(message, self._key, signature))

    def jwk(self, kid: str) -> dict[str, Any]:
        described: dict[str, Any] = self._algorithm.to_jwk(self._key, as_dict=True)
        described.pop("key_ops", None)  # upstream sets "use" instead, and a key should not have both
        return {"use": "sig", "kid": kid, "alg": self.name, **described}


class KeySet:
    """Public keys that may verify tokens: the current one first, then its predecessors."""

    def __init__(self, keys: Sequence[PublicKey]) -> None:
        self._keys = {key_id(key): _VerificationKey(key) for key in keys}

    def verify(self, token: str) -> bytes:
        """Return the payload of a token that one of the keys signed. Raise InvalidToken."""
        if len(token) > LONGEST_TOKEN:
            raise InvalidToken("the token is too long")
        try:
            message, _, signature_segment = token.encode("ascii").rpartition(b".")
            header_segment, _, payload_segment = message.partition(b".")
            header = _decode_header(decode_segment(header_segment))
            payload, signature = decode_segment(payload_segment), decode_segment(signature_segment)
        except (ValueError, RecursionError):
            raise InvalidToken("not a signed token") from None
        if header.crit is not None or not self._is_signed(header, message, signature):
            raise InvalidToken("invalid signature")
        return payload

    def _is_signed(self, header: _Header, message: bytes, signature: bytes) -> bool:
        if header.kid:
            named = self._keys.get(header.kid)
            return named is not None and named.accepts(header.alg, message, signature)
        return any(key.accepts(header.alg, message, signature) for key in self._keys.values())

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.name for key in self._keys.values()})

    def jwks(self) -> dict[str, Any]:
        """Return the JSON Web Key Set with which relying parties verify our tokens."""
        return {"keys": [key.jwk(kid) for kid, key in self._keys.items()]}


def encode_segment(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def decode_segment(text: bytes) -> bytes:
    """Decode strictly: the standard decoder would skip characters outside the alphabet. Raise ValueError."""
    if b"+" in text or b"/" in text or b"=" in text:
        raise binascii.Error("not base64url")
    padded = text.translate(_TO_STANDARD) + b"=" * (-len(text) % 4)
    return base64.b64decode(padded, validate=True)


_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
