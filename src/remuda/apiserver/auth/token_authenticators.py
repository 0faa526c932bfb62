"""Bearer tokens to users: the seam, and the two authenticators that are always there.

A `TokenAuthenticator` answers None for a token it does not know, so that the next may try, and raises TokenRejected
for one that is its own and not good. Embedding applications add theirs. Tokens are kept and found by a digest under a
key of this process: the time a lookup takes says nothing about a token, and none is written anywhere.
"""

from __future__ import annotations

import csv
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from remuda.apiserver.auth import tokens
from remuda.apiserver.auth.jws import KeySet
from remuda.apiserver.auth.tokens import Claims, Lookup, Settings
from remuda.apiserver.auth.user import User

_MOST_REMEMBERED = 4096


class Authenticated(msgspec.Struct, frozen=True):
    user: User
    audiences: tuple[str, ...] = ()


class TokenAuthenticator(Protocol):
    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        """Who the token stands for, if it is for one of the audiences. None: not a token of this authenticator.
        Raises tokens.TokenRejected. Must not block."""


class ServiceAccountTokens:
    """JWTs of service accounts. Signatures are checked once per token, everything else on every use."""

    def __init__(self, keys: KeySet, settings: Settings, lookup: Lookup, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._settings = settings
        self._lookup = lookup
        self._clock = clock
        self._read: OrderedDict[bytes, tuple[Claims, User]] = OrderedDict()

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        known = self._known(token)
        if known is None:
            return None
        claims, user = known
        common = tokens.common_audiences(claims, self._settings, audiences)
        tokens.check(claims, token, self._lookup, self._clock())
        return Authenticated(user, common)

    def _known(self, token: str) -> tuple[Claims, User] | None:
        digest = _digest(token)
        known = self._read.get(digest)
        if known is not None:
            self._read.move_to_end(digest)
            return known
        claims = tokens.read(self._keys, self._settings, token)
        if claims is None:
            return None
        known = self._read[digest] = (claims, tokens.user_of(claims))
        if len(self._read) > _MOST_REMEMBERED:
            self._read.popitem(last=False)
        return known


class StaticTokens:
    """Fixed tokens, as of a token file. Good for the API audiences only."""

    def __init__(self, users: Iterable[tuple[str, User]], api_audiences: tuple[str, ...]) -> None:
        self._users = {_digest(token): user for token, user in users}
        self._api_audiences = api_audiences

    def authenticate_token(self, token: str, audiences: tuple[str, ...]) -> Authenticated | None:
        found = self._users.get(_digest(token))
        common = tuple(audience for audience in self._api_audiences if audience in audiences)
        if found is None or not common:
            return None
        return Authenticated(found, common)


class TokenFileError(Exception):
    """The token file is unusable. Says where, never what."""


def read_token_file(path: Path) -> list[tuple[str, User]]:
    """CSV lines of token, user name, user uid and optionally the groups in one quoted field."""
    users = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, record in enumerate(csv.reader(file, skipinitialspace=True), 1):
            if not record or not record[0]:
                continue
            if len(record) < 3:
                raise TokenFileError(
                    f"token file '{path}' must have at least 3 columns (token, user name, user uid), "
                    f"found {len(record)} in record {number}"
                )
            groups = tuple(record[3].split(",")) if len(record) > 3 and record[3] else ()
            users.append((record[0], User(record[1], record[2], groups)))
    return users


_PROCESS_KEY = secrets.token_bytes(32)


def _digest(token: str) -> bytes:
    # surrogatepass: a token that is no valid text is simply an unknown token.
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=_PROCESS_KEY, digest_size=32).digest()
