"""Tokens that hosts register with. Pure.

A token names its purpose: `machine.<namespace/RKEBootstrap>.<secret>` grants access to one Machine's plan, and
`cluster.<namespace/Cluster>.<secret>` registers existing hosts for a Cluster. The secret has 256 bits. A machine's
token is stored only in its bootstrap script; an annotation of the Machine Bootstrap Secret (`TokenLedger`) holds its
hash, its expiry and the host that has used it.

A machine's token expires some hours after its creation, and a few minutes after its first use. In these minutes the
host that used it may use it again, because the answer may have been lost; no other host may, ever. A token that may
still be needed is renewed well before it expires; the old one stays valid until its own expiry, because a server may be
booting with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Literal

import msgspec

from remuda.kube import clock
from remuda.kube.objects import Key

LEDGER = "remuda.dev/bootstrap-tokens"  # annotation of a Machine Bootstrap Secret

DEFAULT_TTL_SECONDS = 2 * 3600.0
AFTER_USE_SECONDS = 5 * 60.0
_FRESH = 0.5  # a token is followed by a new one when no more than this part of its time is left
_SECRET_BYTES = 32
_LONGEST = 512  # of a token: names of objects are bounded

Purpose = Literal["machine", "cluster"]
Verdict = Literal["good", "unknown", "expired", "spent", "replayed"]


class RegistrationToken(msgspec.Struct, frozen=True):
    """Parsed token. Its claims are trusted only if its secret is correct."""

    purpose: Purpose
    about: Key  # of the RKEBootstrap, or of the Cluster
    secret: str

    def __repr__(self) -> str:
        return f"<token for {self.purpose} {self.about}>"  # never the secret

    @property
    def text(self) -> str:
        return f"{self.purpose}.{_encode(str(self.about).encode())}.{self.secret}"

    @property
    def hash(self) -> str:
        # Neither salt nor slow hash is needed: nobody can guess 256 random bits.
        return hashlib.sha256(self.secret.encode()).hexdigest()


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Record of one machine's token."""

    hash: str
    expires: str  # RFC 3339
    used_by: str = ""  # the id of the host that used it first
    used_at: str = ""


class TokenLedger(msgspec.Struct, frozen=True):
    """The tokens of one machine: the newest first, and at most one before it."""

    entries: Sequence[TokenRecord] = ()


def make(purpose: Purpose, about: Key) -> RegistrationToken:
    return RegistrationToken(purpose, about, _encode(secrets.token_bytes(_SECRET_BYTES)))


def parse(text: str) -> RegistrationToken | None:
    """Return the parsed token; None if the text is not one of our tokens."""
    if len(text) > _LONGEST or not text.isascii():
        return None
    parts = text.split(".")
    if len(parts) != 3 or parts[0] not in ("machine", "cluster"):
        return None
    try:
        namespace, slash, name = _decode(parts[1]).decode().partition("/")
    except (binascii.Error, ValueError):
        return None
    if not (slash and namespace and name and parts[2]) or "/" in name:
        return None
    return RegistrationToken("machine" if parts[0] == "machine" else "cluster", Key(namespace, name), parts[2])


def read(annotation: str) -> TokenLedger:
    """Return the ledger in an annotation. An unreadable one is empty: no token is valid, and a new one is made."""
    try:
        found = msgspec.json.decode(annotation, type=TokenLedger) if annotation else TokenLedger()
        for entry in found.entries:
            clock.parse(entry.expires)
            clock.parse(entry.used_at or entry.expires)
    except (ValueError, msgspec.MsgspecError):
        return TokenLedger()
    return found


def write(ledger: TokenLedger) -> str:
    return msgspec.json.encode(ledger).decode()


def add(ledger: TokenLedger, token: RegistrationToken, ttl_seconds: float) -> TokenLedger:
    """Return the ledger with a new token; the newest one before stays valid until it expires."""
    entry = TokenRecord(hash=token.hash, expires=clock.rfc3339(clock.time() + ttl_seconds))
    return TokenLedger((entry, *ledger.entries[:1]))


def judge(ledger: TokenLedger, token: RegistrationToken, machine_id: str) -> Verdict:
    """Return whether that host may use the token now, or why not. Every entry is compared, in constant time."""
    found = _find(ledger, token)
    if found is None:
        return "unknown"
    # Before the expiry: the use of a token by another host is reported even if the token has expired.
    if found.used_by and found.used_by != machine_id:
        return "replayed"
    if clock.time() >= clock.parse(found.expires):
        return "expired"
    if found.used_at and clock.time() >= clock.parse(found.used_at) + AFTER_USE_SECONDS:
        return "spent"
    return "good"


def claim(ledger: TokenLedger, token: RegistrationToken, machine_id: str) -> TokenLedger:
    """Return the ledger with the first use of a token recorded; the same ledger if it was recorded before."""
    found = _find(ledger, token)
    if found is None or found.used_by:
        return ledger
    used = msgspec.structs.replace(found, used_by=machine_id, used_at=clock.now())
    return TokenLedger(tuple(used if entry is found else entry for entry in ledger.entries))


def user(ledger: TokenLedger, token: RegistrationToken) -> str:
    """Return the id of the host that used the token first."""
    found = _find(ledger, token)
    return "" if found is None else found.used_by


def seconds_fresh(ledger: TokenLedger, ttl_seconds: float) -> float:
    """Return the seconds until servers started from then on need a new token. A token expires early once it is used."""
    newest = ledger.entries[0] if ledger.entries else None
    if newest is None:
        return 0.0
    left = clock.parse(newest.expires) - clock.time() - ttl_seconds * _FRESH
    if newest.used_at:
        left = min(left, clock.parse(newest.used_at) + AFTER_USE_SECONDS - clock.time())
    return max(left, 0.0)


def matches(given: str, known: str) -> bool:
    """Return whether the secret matches, in constant time."""
    return hmac.compare_digest(given.encode(), known.encode())


def _find(ledger: TokenLedger, token: RegistrationToken) -> TokenRecord | None:
    wanted = token.hash
    found = None
    # No early exit: the time that this takes must not reveal which entry matches.
    for entry in ledger.entries:
        if matches(wanted, entry.hash):
            found = entry
    return found


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
