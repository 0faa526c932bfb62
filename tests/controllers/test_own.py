"""What users see of their own, on either engine, and that it is nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest_asyncio

from remuda.access.audit import Audit
from remuda.access.authorization import identifier, reaching
from remuda.access.clusters import Clusters
from remuda.access.interfaces import Caller
from remuda.access.self_service_api import CLUSTERS, TOKENS, SelfServiceApi
from remuda.access.types import TOKEN
from remuda.kube.web import Request
from remuda.runtime.manager import Manager
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine, eventually
from tests.lab.proxied import AuditLines


class Peer:
    certificate = None
    address = "192.0.2.1:4711"

    async def read_body(self, request: Request, limit: int) -> bytes:
        return b""


class SelfServiceHarness(AccessHarness):
    """Where users ask. The cluster is open to `guest`; an administrator comes without a token of ours."""

    guest = ""

    def _add(self, manager: Manager) -> None:
        super()._add(manager)

        async def permits(caller: Caller, cluster: str) -> bool:
            return caller.name == self.guest and cluster == self.id

        async def others(request: Request) -> Caller | None:
            return Caller(name="admin") if request.header(b"authorization") == "Bearer admin" else None

        identify = identifier(self.tokens, others)
        clusters = Clusters(manager.caches)
        self.own = SelfServiceApi(manager.client, manager.caches, clusters, identify, reaching(permits), Audit())

    async def ask(self, bearer: str, path: str, method: str = "GET") -> tuple[int, Any]:
        request = Request(Peer(), method, path, {b"authorization": f"Bearer {bearer}".encode()})
        answer = await self.own.serve(request)
        return answer.status, json.loads(answer.body)

    async def known(self, bearer: str) -> None:
        async def is_known() -> bool:
            return (await self.ask(bearer, CLUSTERS))[0] == 200

        await eventually(is_known)


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> SelfServiceHarness:
    return await SelfServiceHarness.create(engine)


async def test_user_lists_and_revokes_only_own_tokens(harness: SelfServiceHarness) -> None:
    async with harness.running():
        user, other = await harness.user(), await harness.user()
        mine, spare, theirs = await harness.token(user), await harness.token(user), await harness.token(other)
        for one in (mine, spare, theirs):
            await harness.known(one.bearer)
        names = {one.obj["metadata"]["name"] for one in (mine, spare)}
        code, found = await harness.ask(mine.bearer, TOKENS)
        assert (code, {one["metadata"]["name"] for one in found["items"]}) == (200, names)
        assert "sha256" not in json.dumps(found)
        with AuditLines() as audit:
            foreign = theirs.obj["metadata"]["name"]
            assert (await harness.ask(mine.bearer, f"{TOKENS}/{foreign}", "DELETE"))[0] == 404
            assert (await harness.ask(mine.bearer, f"{TOKENS}/{spare.obj['metadata']['name']}", "DELETE"))[0] == 200
        assert [(line["user"], line["code"]) for line in audit.lines] == [(user, 404), (user, 200)]
        await harness.engine.gone(TOKEN.target, "", spare.obj["metadata"]["name"])
        assert await harness.engine.get(TOKEN.target, "", foreign) is not None


async def test_non_users_and_cluster_scoped_tokens_are_denied_own_tokens(harness: SelfServiceHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        user = await harness.user()
        limited = await harness.token(user, clusters=(harness.id,))
        await harness.known(limited.bearer)
        for bearer in (limited.bearer, "admin"):
            assert (await harness.ask(bearer, TOKENS))[0] == 403
            assert (await harness.ask(bearer, f"{TOKENS}/{limited.obj['metadata']['name']}", "DELETE"))[0] == 403
        with AuditLines() as audit:
            assert (await harness.ask("nobody", TOKENS))[0] == 401
            assert (await harness.ask(f"token-guessed:{'a' * 52}", CLUSTERS))[0] == 401
        assert ["token-guessed" in line["why"] for line in audit.lines] == [False, True]
        assert (await harness.ask("admin", "/k8s/own/anything"))[0] == 404


async def test_user_lists_only_reachable_clusters(harness: SelfServiceHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        user, other = await harness.user(), await harness.user()
        harness.guest = user
        mine, theirs = await harness.token(user), await harness.token(other)
        await harness.known(mine.bearer)
        await harness.known(theirs.bearer)

        async def is_found() -> bool:
            return bool((await harness.ask(mine.bearer, CLUSTERS))[1]["items"])

        await eventually(is_found)
        expected = {"items": [{"id": harness.id, "name": "c", "namespace": harness.namespace}]}
        assert (await harness.ask(mine.bearer, CLUSTERS))[1] == expected
        assert (await harness.ask(theirs.bearer, CLUSTERS))[1] == {"items": []}
