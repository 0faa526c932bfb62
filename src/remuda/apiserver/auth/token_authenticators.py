"""Authentication of bearer tokens: the interface, and the two authenticators that every server has.

A `TokenAuthenticator` returns None for an unknown token, so that the next one may try, and raises TokenRejected for a
token of its own that is invalid. Embedding applications can add theirs. Tokens are stored and found by a digest under a
key of this process, so the time of a lookup reveals nothing about a token, and no token is written anywhere.
"""

from __future__ import annotations

import csv
import hashlib
import io
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.auth import tokens
from remuda.apiserver.auth.jws import KeySet
from remuda.apiserver.auth.tokens import Claims, Lookup, TokenSettings
from remuda.apiserver.auth.user import User, marked_authenticated
from remuda.apiserver.storage.types import StoreEntry

_MOST_REMEMBERED = 4096


class Authenticated(msgspec.Struct, frozen=True):
    user: User
    audiences: tuple[str, ...] = ()


class TokenAuthenticator(Protocol):
    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        """Return the user that the token authenticates, if the token is for one of the audiences.

        None: not a token of this authenticator. Raises tokens.TokenRejected. Must not block.
        """


class _KnownToken:
    """Token with a verified signature, and the stored entries that its last check depended on."""

    __slots__ = ("audiences", "claims", "seen", "user")

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.user = marked_authenticated(tokens.user_of(claims))
        self.seen: list[_Seen] = []
        # requested audiences, and those in common with the token
        self.audiences: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def rests_on_the_same(self, lookup: Lookup) -> bool:
        """Return whether the entries are the same. Entries are immutable, so the result is the same too."""
        return bool(self.seen) and all(lookup(table, ns, name) is entry for table, ns, name, entry in self.seen)


_Seen = tuple[str, str, str, StoreEntry]


class ServiceAccountTokens:
    """JWTs of service accounts. Signatures are verified once per token, everything else on every use."""

    def __init__(self, keys: KeySet, settings: TokenSettings, lookup: Lookup, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._settings = settings
        self._lookup = lookup
        self._clock = clock
        self._known: OrderedDict[bytes, _KnownToken] = OrderedDict()

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        known = self._recall(token)
        if known is None:
            return None
        if known.audiences[0] != audiences:
            known.audiences = (audiences, tokens.common_audiences(known.claims, self._settings, audiences))
        now = self._clock()
        tokens.check_times(known.claims, now)
        if not known.rests_on_the_same(self._lookup):
            known.seen = self._check_existence(known.claims, token, now)
        return Authenticated(known.user, known.audiences[1])

    def _recall(self, token: str) -> _KnownToken | None:
        digest = _digest(token)
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            return known
        claims = tokens.read(self._keys, self._settings, token)
        if claims is None:
            return None
        known = self._known[digest] = _KnownToken(claims)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _check_existence(self, claims: Claims, token: str, now: float) -> list[_Seen]:
        """Return the entries that the result depends on; an empty list when the result may change with time alone."""
        seen: list[_Seen] = []

        def noting(table: str, namespace: str, name: str) -> StoreEntry | None:
            entry = self._lookup(table, namespace, name)
            if entry is not None:
                seen.append((table, namespace, name, entry))
            return entry

        tokens.check_existence(claims, token, noting, now)
        return [] if any(b'"deletionTimestamp"' in entry.value for *_, entry in seen) else seen


class StaticTokens:
    """Fixed tokens from a token file. Valid for the API audiences only."""

    def __init__(self, users: Iterable[tuple[str, User]], api_audiences: tuple[str, ...]) -> None:
        self._users = {_digest(token): user for token, user in users}
        self._api_audiences = api_audiences

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        found = self._users.get(_digest(token))
        common = tuple(audience for audience in self._api_audiences if audience in audiences)
        if found is None or not common:
            return None
        return Authenticated(found, common)


class TokenFileError(ApiServerError):
    """Unusable token file. The message names the line, never its content."""


def read_token_file(path: Path) -> list[tuple[str, User]]:
    """Read CSV lines of token, user name, user uid and optionally the groups in one quoted field."""
    users = []
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenFileError(f"token file '{path}' cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"token file '{path}' is not UTF-8") from None
    records = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    number = 0
    try:
        for number, record in enumerate(records, 1):
            if record and record[0]:
                users.append(_token_user(path, number, record))
    except csv.Error as error:
        raise TokenFileError(f"token file '{path}' has a fault in record {number + 1}: {error}") from None
    return users


def _token_user(path: Path, number: int, record: list[str]) -> tuple[str, User]:
    if len(record) < 3:
        raise TokenFileError(
            f"token file '{path}' must have at least 3 columns (token, user name, user uid), "
            f"found {len(record)} in record {number}"
        )
    groups = tuple(record[3].split(",")) if len(record) > 3 and record[3] else ()
    return record[0], User(record[1], record[2], groups)


_KEYED = hashlib.sha256(secrets.token_bytes(64))


def _digest(token: str) -> bytes:
    digest = _KEYED.copy()
    # surrogatepass, so that a token that is not valid text is just an unknown token.
    digest.update(token.encode("utf-8", "surrogatepass"))
    return digest.digest()
