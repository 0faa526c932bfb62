"""API for users' own objects: their tokens, which they may revoke, and the clusters they may reach.

    GET    /k8s/own/tokens            the caller's, without what is secret of them
    DELETE /k8s/own/tokens/<name>     revokes one of them
    GET    /k8s/own/clusters          ids and names

RBAC rules cannot express who owns an object, so this module checks it. Other users' objects return 404. A token that is
limited to clusters sees its clusters here, and no tokens.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.access.audit import Audit, AuditEntry, reason
from remuda.access.clusters import Clusters
from remuda.access.interfaces import OWN, Caller, Identify, MayReach
from remuda.access.types import TOKEN, Token
from remuda.kube.client import Client
from remuda.kube.errors import StatusError, forbidden_request, no_such_path, not_found
from remuda.kube.web import Request, Response, header_block
from remuda.providers.controlplane.identity import cluster_of, id_of
from remuda.runtime.caches import Caches

TOKENS, CLUSTERS = OWN + "tokens", OWN + "clusters"

_HEADERS = (("Cache-Control", "no-cache, private"), ("Content-Type", "application/json"))


class SelfServiceApi:
    def __init__(
        self, client: Client, caches: Caches, clusters: Clusters, identify: Identify, may_reach: MayReach, audit: Audit
    ) -> None:
        self._client = client
        self._tokens = caches.of(TOKEN)
        self._clusters = clusters
        self._identify = identify
        self._may_reach = may_reach
        self._audit = audit

    async def serve(self, request: Request) -> Response:
        """A `kube.web.Handler`."""
        entry = self._audit.request(request)
        try:
            code, answer = 200, await self._answer(request, entry)
            entry.end(code)
        except StatusError as error:
            code, answer = error.code, error.status()
            entry.end(code, reason(error))
            return _response(code, answer, entry, error.headers)
        except BaseException:
            entry.end(500, "internal error")
            raise
        return _response(code, answer, entry)

    async def _answer(self, request: Request, entry: AuditEntry) -> dict[str, Any]:
        caller = entry.caller = await self._identify(request)
        what = (request.method, request.path)
        if what == ("GET", CLUSTERS):
            return await self._clusters_of(caller)
        if what == ("GET", TOKENS):
            return {"kind": "TokenList", "apiVersion": TOKEN.api_version, "items": [*map(_shown, self._of(caller))]}
        if request.method == "DELETE" and request.path.startswith(TOKENS + "/"):
            return await self._revoke(caller, request.path.removeprefix(TOKENS + "/"))
        raise no_such_path()

    def _of(self, caller: Caller) -> list[Token]:
        if not caller.token or caller.clusters is not None:
            raise forbidden_request(
                TOKEN.group, TOKEN.plural, "", "only a user whose token is not limited to clusters may use this"
            )
        found = [one for one in self._tokens.all() if one.user_id == caller.name and not one.metadata.deleting]
        return sorted(found, key=lambda one: one.metadata.name)

    async def _revoke(self, caller: Caller, name: str) -> dict[str, Any]:
        uids = [one.metadata.uid for one in self._of(caller) if one.metadata.name == name]
        if not uids:
            raise not_found(TOKEN.group, TOKEN.plural, name)
        await self._client.delete(TOKEN.target, "", name, uid=uids[0])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    async def _clusters_of(self, caller: Caller) -> dict[str, Any]:
        found = []
        for plane in self._clusters.planes.all():
            id, key = id_of(plane), cluster_of(plane)
            if self._clusters.find(id) == key and not await self._may_reach(caller, id):
                found.append({"id": id, "name": key.name, "namespace": key.namespace})
        return {"items": sorted(found, key=lambda one: (one["namespace"], one["name"]))}


def _shown(token: Token) -> dict[str, Any]:
    """Return a token as its user sees it: everything but its hash."""
    metadata = {"name": token.metadata.name, "creationTimestamp": token.metadata.creation_timestamp}
    said = {
        "metadata": metadata,
        "userId": token.user_id,
        "expiresAt": token.expires_at,
        "clusterNames": list(token.cluster_names),
        "description": token.description,
    }
    return {name: value for name, value in said.items() if value}


def _response(code: int, answer: dict[str, Any], entry: AuditEntry, more: dict[str, str] | None = None) -> Response:
    headers = [*_HEADERS, ("Audit-Id", entry.id), *(more or {}).items()]
    return Response(code, msgspec.json.encode(answer), header_block(headers))
