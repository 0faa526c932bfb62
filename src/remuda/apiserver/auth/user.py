"""User and attributes of a request, as the authoriser sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from remuda.kube import names
from remuda.kube.authorization import MASTERS as MASTERS  # exported here with the other groups

ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
AUTHENTICATED = "system:authenticated"
MANAGER = "remuda"  # member of MASTERS: the manager that runs in the same process as the embedded engine
SERVICE_ACCOUNTS = "system:serviceaccounts"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"  # key of User.extra


class User(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """Question to the authorizer, about a resource or a non-resource `path`."""

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


# Lower-case header names, each with all its values in order. Values are bytes decoded as latin-1, as HTTP parsers
# return them; `header_text` decodes them as UTF-8.
Headers = Mapping[str, Sequence[str]]


def header_text(value: str) -> str:
    """Return a header's value as UTF-8 text, as clients send it; unchanged if it is not UTF-8."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def service_account_username(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def split_service_account(username: str) -> tuple[str, str] | None:
    """Return (namespace, name), or None if this is not the user name of a service account."""
    parts = username.split(":")
    if len(parts) != 4 or parts[0] != "system" or parts[1] != "serviceaccount":
        return None
    namespace, name = parts[2], parts[3]
    if names.dns1123_label(namespace) or names.dns1123_subdomain(name):
        return None
    return namespace, name


def with_group(user: User, group: str) -> User:
    return User(user.name, user.uid, (*user.groups, group), user.extra)


def marked_authenticated(user: User) -> User:
    """Add system:authenticated, unless the user already has it or system:unauthenticated."""
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return with_group(user, AUTHENTICATED)
