"""Interfaces between the parts of access.

The proxy knows neither tokens nor Secrets nor tunnels: it is given a function that identifies callers, a function that
authorizes them for a cluster, and a pool of transports to clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import aiohttp
import msgspec

from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.kube.web import Request

# The path of a cluster: PREFIX + its id. The id is RKEControlPlane's spec.managementClusterName.
PREFIX = "/k8s/clusters/"
OWN = "/k8s/own/"  # self-service endpoints of users
ADMINISTRATION = "/k8s/manager/"  # endpoints for administrators of the manager itself

P = TypeVar("P", bound=asyncio.Protocol)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the caller of a request.

    `clusters`: the ids a token is limited to; None: every cluster that its user may reach. `token` names the token's
    resource, for the audit line; it is never the token itself.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    clusters: tuple[str, ...] | None = None
    token: str = ""


class Identify(Protocol):
    async def __call__(self, request: Request) -> Caller:
        """Identify the caller. Raise a 401 StatusError for missing or invalid credentials."""


class MayReach(Protocol):
    async def __call__(self, caller: Caller, cluster: str) -> str:
        """Check whether `caller` may reach the cluster with this id: return "", or the reason for the audit line.

        Raises a 403 StatusError where the caller may know the reason.
        """


class Transport(Protocol):
    """Transport to one cluster at this moment, as a user that may impersonate.

    It stays usable while it is in use (`with way:`), even when another one replaces it.
    """

    cluster: str  # its id
    key: Key  # of its CAPI Cluster
    server: str  # https://host:port, as the cluster's API calls itself
    through: str  # "tunnel" or "direct", for the audit line
    proof: tuple[tuple[str, str], ...]  # headers that authenticate the manager, if the connection alone does not

    def __enter__(self) -> Self: ...
    def __exit__(self, *what: object) -> None: ...

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        """Up to the head of the answer, which its user closes. Raises OSError, TimeoutError or aiohttp.ClientError."""

    async def connect(self, make: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """Open a separate connection with TLS, for an upgrade. Raise OSError with a readable message."""

    def unreachable(self, why: str) -> StatusError:
        """Return the error for a failed request: a 503 that reports the cluster's connectivity.

        It has a Retry-After where the cluster is likely to be back soon.
        """


class Transports(Protocol):
    async def of(self, cluster: str) -> Transport:
        """By the cluster's id. Raises a StatusError: 404 for no such cluster, 503 for one that cannot be reached now,
        saying since when and why."""
