"""Signed JSON tokens: the keys, the compact form, and the published key set. Knows nothing of claims.

A token is accepted only with the algorithm of the key itself (never one the token chose), and only as long as a
token of ours can be. Nothing here puts a token or a key into an exception or a log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# Ours are about 1 KB; with the longest names and many audiences still well below.
LONGEST_TOKEN = 32 * 1024

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class InvalidToken(Exception):
    """Not a token signed by one of our keys."""


class _Header(msgspec.Struct):
    alg: str
    kid: str = ""
    crit: msgspec.Raw | None = None


_decode_header = msgspec.json.Decoder(_Header).decode


class _Rs256:
    name = "RS256"

    def sign(self, message: bytes, key: Any) -> bytes:
        signature: bytes = key.sign(message, padding.PKCS1v15(), SHA256())
        return signature

    def verify(self, message: bytes, key: Any, signature: bytes) -> bool:
        try:
            key.verify(signature, message, padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True


class _Es256:
    """Tokens hold the two numbers of a signature side by side, 32 bytes each, where libraries wrap them in DER."""

    name = "ES256"

    def sign(self, message: bytes, key: Any) -> bytes:
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def verify(self, message: bytes, key: Any, signature: bytes) -> bool:
        if len(signature) != 64:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            key.verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def _algorithm(key: PublicKey) -> _Rs256 | _Es256:
    if isinstance(key, rsa.RSAPublicKey):
        return _Rs256()
    if not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("a service-account key must be EC P-256 or RSA")
    return _Es256()


def key_id(key: PublicKey) -> str:
    """Derived from the public key, so that every server with the same key says the same."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encode_segment(hashlib.sha256(der).digest()).decode()


class Signer:
    """Signs with one private key."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self.public_key: PublicKey = key.public_key()
        self._algorithm = _algorithm(self.public_key)
        header = {"alg": self._algorithm.name, "kid": key_id(self.public_key)}
        self._header = encode_segment(msgspec.json.encode(header))

    def sign(self, payload: bytes) -> str:
        message = self._header + b"." + encode_segment(payload)
        signature = self._algorithm.sign(message, self._key)
        return (message + b"." + encode_segment(signature)).decode()


class _Verification:
    def __init__(self, key: PublicKey) -> None:
        self.key = key
        self._algorithm = _algorithm(key)
        self.name = self._algorithm.name

    def accepts(self, algorithm: str, message: bytes, signature: bytes) -> bool:
        return algorithm == self.name and self._algorithm.verify(message, self.key, signature)


class KeySet:
    """The public keys tokens may be signed with: the current one first, then those it replaced."""

    def __init__(self, keys: Sequence[PublicKey]) -> None:
        self._keys = {key_id(key): _Verification(key) for key in keys}

    def verify(self, token: str) -> bytes:
        """The payload of a token that one of the keys signed. Raises InvalidToken."""
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
        """The JSON Web Key Set that relying parties verify our tokens with."""
        return {"keys": [_jwk(kid, key) for kid, key in self._keys.items()]}


def _jwk(kid: str, verification: _Verification) -> dict[str, Any]:
    key = verification.key
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        shape = {"kty": "RSA", "kid": kid, "alg": verification.name}
        return {"use": "sig", **shape, "n": _number(numbers.n), "e": _number(numbers.e)}
    point = key.public_numbers()
    shape = {"kty": "EC", "kid": kid, "crv": "P-256", "alg": verification.name}
    return {"use": "sig", **shape, "x": _number(point.x, 32), "y": _number(point.y, 32)}


def _number(value: int, size: int = 0) -> str:
    return encode_segment(value.to_bytes(size or (value.bit_length() + 7) // 8, "big")).decode()


def encode_segment(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def decode_segment(text: bytes) -> bytes:
    """Strict: the standard decoder would skip characters outside the alphabet. Raises ValueError."""
    if b"+" in text or b"/" in text or b"=" in text:
        raise binascii.Error("not base64url")
    padded = text.translate(_TO_STANDARD) + b"=" * (-len(text) % 4)
    return base64.b64decode(padded, validate=True)


_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
