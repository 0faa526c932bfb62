"""Authentication of callers at the proxy, and authorization to reach clusters.

Reaching a cluster is the permission to get its management Cluster, whichever rule gives it: a grant, or any other rule
of the management plane. What the caller may do inside the cluster is decided by the cluster itself. A token that is
limited to clusters opens no other cluster. Service accounts of the management plane (a node's, a Job's) reach no
cluster: their work is on the management plane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from remuda.access.administration import PermitsPath
from remuda.access.interfaces import Caller, Identify, MayReach
from remuda.access.tokens import AUTHENTICATED, Tokens
from remuda.access.types import MANAGEMENT_CLUSTER
from remuda.kube.authorization import RequiredAccess, Subject, permits, permits_path
from remuda.kube.client import Client, Target
from remuda.kube.errors import forbidden_request, unauthorized
from remuda.kube.web import Request

Others = Callable[[Request], Awaitable[Caller | None]]  # whom the engine knows; raises a 401 StatusError
Permits = Callable[[Caller, str], Awaitable[bool]]  # may the caller get the management Cluster of that name?

_SERVICE_ACCOUNT = "system:serviceaccount:"
_ANONYMOUS = "system:anonymous"
_TOKEN_REVIEWS = Target("authentication.k8s.io/v1", "tokenreviews")


def identifier(tokens: Tokens | None, others: Others) -> Identify:
    """Return the authentication: first our tokens, then the engine's methods. A client certificate takes precedence, as
    in Kubernetes."""

    async def identify(request: Request) -> Caller:
        bearer = bearer_of(request)
        caller = tokens.caller(bearer) if tokens and bearer and request.peer.certificate is None else None
        if caller is None:
            caller = await others(request)
        if caller is None or caller.name == _ANONYMOUS:
            raise unauthorized("authentication required: send a bearer token or a client certificate")
        return caller

    return identify


def bearer_of(request: Request) -> str:
    scheme, _, token = request.header(b"authorization").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def reaching(permits: Permits) -> MayReach:
    async def may_reach(caller: Caller, cluster: str) -> str:
        if caller.name.startswith(_SERVICE_ACCOUNT):
            raise forbidden_request("", "", "", f"service accounts cannot reach clusters, and you are {caller.name}")
        # The limit of the token comes before RBAC, which knows only the user.
        if caller.clusters is not None and cluster not in caller.clusters:
            return f"the token {caller.token} is not for this cluster"
        if await permits(caller, cluster):
            return ""
        return f"{caller.name} may not get {MANAGEMENT_CLUSTER.plural}.{MANAGEMENT_CLUSTER.group} {cluster}"

    return may_reach


# -- where the engine is a Kubernetes elsewhere


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _TokenReview(msgspec.Struct):
    status: _TokenReviewStatus = msgspec.field(default_factory=_TokenReviewStatus)


def reviewed_tokens(client: Client) -> Others:
    """Return the authentication of tokens by TokenReviews of the API server."""

    async def ask(request: Request) -> Caller | None:
        bearer = bearer_of(request)
        if not bearer:
            return None
        obj = {"apiVersion": _TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": bearer}}
        answer = msgspec.json.decode(await client.create(_TOKEN_REVIEWS, "", obj), type=_TokenReview).status
        if not answer.authenticated or not answer.user.username:
            raise unauthorized()
        user = answer.user
        return Caller(name=user.username, uid=user.uid, groups=user.groups or (AUTHENTICATED,), extra=user.extra or {})

    return ask


def reviewed_access(client: Client) -> Permits:
    """Return a check against the RBAC rules of the server.

    Each call asks it, so that a revoked permission takes effect.
    """

    async def ask(caller: Caller, cluster: str) -> bool:
        subject = _subject(caller)
        group, plural = MANAGEMENT_CLUSTER.group, MANAGEMENT_CLUSTER.plural
        return await permits(client, subject, RequiredAccess(verb="get", group=group, resource=plural, name=cluster))

    return ask


def reviewed_paths(client: Client) -> PermitsPath:
    """Return the same check for non-resource paths."""

    async def ask(caller: Caller, verb: str, path: str) -> bool:
        return await permits_path(client, _subject(caller), verb, path)

    return ask


def _subject(caller: Caller) -> Subject:
    return Subject(name=caller.name, uid=caller.uid, groups=caller.groups, extra=caller.extra)
