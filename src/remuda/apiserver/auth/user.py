"""Who is asking, and what they ask for, as the authoriser sees it."""

from __future__ import annotations

from typing import Protocol

import msgspec

ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


class User(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the authoriser. Either a resource or a non-resource `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""  # for list/watch: taken from fieldSelector metadata.name=X, so that resourceNames covers it
    path: str = ""


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    def authorize(self, user: User, attributes: Attributes) -> Decision: ...
