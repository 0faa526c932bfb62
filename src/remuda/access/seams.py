"""What the parts of access know of each other.

The proxy knows neither tokens nor Secrets nor tunnels: it is given somebody who tells callers apart, somebody who
decides whom a cluster is open to, and somebody who knows the way.
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

P = TypeVar("P", bound=asyncio.Protocol)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `clusters`: the ids a token is limited to; None: whatever its user may reach. `token` names the token's
    resource, for the audit line; never the token itself."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    clusters: tuple[str, ...] | None = None
    token: str = ""


class Identify(Protocol):
    async def __call__(self, request: Request) -> Caller:
        """Raises a StatusError 401 for credentials that are nobody's, and for none at all."""


class MayReach(Protocol):
    async def __call__(self, caller: Caller, cluster: str) -> str:
        """Whether `caller` may reach the cluster with this id: "" or why not, in words for the audit line. Raises a 403
        StatusError where the caller may know why."""


class Way(Protocol):
    """How one cluster is reached at this moment, as somebody who may impersonate. It stays good while it is used (`with
    way:`), even when another takes its place."""

    cluster: str  # its id
    key: Key  # of its CAPI Cluster
    server: str  # https://host:port, as the cluster's API calls itself
    through: str  # "tunnel" or "direct", for the audit line
    proof: tuple[tuple[str, str], ...]  # headers that say who we are, where connections alone do not

    def __enter__(self) -> Self: ...
    def __exit__(self, *what: object) -> None: ...

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        """Up to the head of the answer, which its user closes. Raises OSError, TimeoutError or aiohttp.ClientError."""

    async def connect(self, make: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        """A connection of its own, TLS done, for what is to be upgraded. Raises OSError in words."""

    def unreachable(self, why: str) -> StatusError:
        """What to say when it has come to nothing: a 503 that tells how the cluster stands, with a Retry-After where it
        is likely to be back soon."""


class Ways(Protocol):
    async def of(self, cluster: str) -> Way:
        """By the cluster's id. Raises a StatusError: 404 for no such cluster, 503 for one that cannot be reached now,
        saying since when and why."""
