"""Tokens: creation, storage as a hash, and authentication.

    <name of the Token>:<52 characters that are not stored>

The secret has 256 random bits, so its plain SHA-256 reveals nothing. A token is checked on each use, from caches: if it
was revoked or has expired, or if its user was disabled or deleted, the next request is denied. The exact reason is the
cause of the 401, for the audit line; the caller only learns that the token is invalid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.access import AccessError
from remuda.access.interfaces import Caller
from remuda.access.types import DIGEST_PREFIX, TOKEN, USER, Token, belongs_to
from remuda.kube import clock, random_source
from remuda.kube.errors import StatusError, unauthorized
from remuda.runtime.caches import Caches

USERS = "remuda:users"  # group of all callers that present a Remuda token
AUTHENTICATED = "system:authenticated"

# Kubernetes' alphabet for generated names.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FORM = re.compile(r"([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?):([a-z2-7]{52})")
_NOTHING = DIGEST_PREFIX + "0" * 64


class NewToken(msgspec.Struct, frozen=True):
    """New token: `bearer` is shown once, `obj` is stored."""

    bearer: str
    obj: dict[str, Any]


def mint(
    user: str,
    *,
    name: str = "",
    expires_at: float | None = None,
    clusters: Sequence[str] = (),
    description: str = "",
    labels: dict[str, str] | None = None,
) -> NewToken:
    name = name or f"token-{random_source.letters(_ALPHABET, 8)}"
    # Not from `random_source`, which a simulation can seed.
    secret = base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()
    obj: dict[str, Any] = {
        "apiVersion": TOKEN.api_version,
        "kind": TOKEN.name,
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "userId": user,
        "hash": digest(secret),
    }
    if expires_at is not None:
        obj["expiresAt"] = clock.rfc3339(expires_at)
    if clusters:
        obj["clusterNames"] = list(clusters)
    if description:
        obj["description"] = description
    return NewToken(f"{name}:{secret}", obj)


def digest(secret: str) -> str:
    return DIGEST_PREFIX + hashlib.sha256(secret.encode()).hexdigest()


def is_of(bearer: str, token: Token) -> bool:
    """Return whether the bearer token is that of this Token."""
    name, _, secret = bearer.partition(":")
    same = hmac.compare_digest(digest(secret).encode(), token.hash.encode())
    return same and name == token.metadata.name


def expired(token: Token, now: float) -> bool:
    """Return whether a token has expired; one with an unreadable time has."""
    if token.expires_at is None:
        return False
    try:
        return clock.parse(token.expires_at) <= now
    except ValueError:
        return True


class NotGood(AccessError):
    """Reason why a token is invalid, for the log."""


class Tokens:
    """Authentication by tokens, from caches."""

    def __init__(self, caches: Caches) -> None:
        self._tokens = caches.of(TOKEN)
        self._users = caches.of(USER)

    def caller(self, bearer: str) -> Caller | None:
        """Return the caller of a bearer token; None if it does not have the form of ours. Raises a 401 StatusError if
        it is invalid."""
        read = _FORM.fullmatch(bearer)
        if read is None:
            return None
        name = read[1]
        token = self._tokens.get("", name)
        # Compare in constant time, and also if no Token has this name, so that the time of the answer reveals neither.
        if not hmac.compare_digest(digest(read[2]).encode(), (token.hash if token else _NOTHING).encode()):
            raise _refused(name, "wrong secret" if token else "no token has this name")
        return self.again(name)

    def again(self, name: str) -> Caller:
        """Return the caller that an already presented token stands for.

        Raises a 401 StatusError if it is no longer valid.
        """
        token = self._tokens.get("", name)
        if token is None or token.metadata.deleting:
            raise _refused(name, "it was revoked")
        if expired(token, clock.time()):
            raise _refused(name, f"it expired at {token.expires_at}")
        user = self._users.get("", token.user_id)
        if user is None or user.metadata.deleting or not belongs_to(token.metadata, user.metadata):
            raise _refused(name, f"its user {token.user_id} does not exist")
        if not user.enabled:
            raise _refused(name, f"its user {token.user_id} is disabled")
        return Caller(
            name=user.metadata.name,
            uid=user.metadata.uid,
            groups=(USERS, AUTHENTICATED),
            clusters=tuple(token.cluster_names) or None,
            token=name,
        )

    def expires(self, caller: Caller) -> float | None:
        """Return when the caller's token expires; None if it never does."""
        token = self._tokens.get("", caller.token) if caller.token else None
        if token is None or token.expires_at is None:
            return None
        try:
            return clock.parse(token.expires_at)
        except ValueError:
            return 0.0


def _refused(name: str, why: str) -> StatusError:
    error = unauthorized("invalid token: it may have expired or been revoked")
    error.__cause__ = NotGood(f"token {name}: {why}")
    return error
