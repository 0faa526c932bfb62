"""The proxy ends requests in progress when the access of their user is revoked, on either engine, and records why."""

from __future__ import annotations

import pytest_asyncio

from remuda.access.active_requests import ActiveRequest, ActiveRequests, end_revoked_requests, still_reaching
from remuda.access.authorization import reaching, reviewed_access
from remuda.access.interfaces import Caller
from remuda.access.types import GRANT, TOKEN, USER
from remuda.runtime.manager import Manager
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine, eventually


class ActiveRequestsHarness(AccessHarness):
    """With calls under way; who may is the engine's own word."""

    active_requests: ActiveRequests

    def _add(self, manager: Manager) -> None:
        super()._add(manager)
        may_reach = reaching(reviewed_access(self.engine.client))
        self.active_requests = ActiveRequests(still_reaching(self.tokens, may_reach), self.tokens.expires)
        end_revoked_requests(self.active_requests, manager.caches)
        manager.at_end(self.active_requests.close)

    async def granted(self) -> str:
        """A user who may reach the cluster."""
        await self.create_cluster()
        user = await self.user()
        await self.grant(user, "cluster-viewer")  # the cluster is the engine itself, where an owner may anything
        await self.says("Granted")
        return user

    async def call(self, bearer: str) -> ActiveRequest:
        """A watch that goes on, once the token is known."""
        found: list[Caller] = []

        async def known() -> bool:
            try:
                caller = self.tokens.caller(bearer)
            except Exception:
                return False
            assert caller is not None
            found[:] = [caller]
            return True

        await eventually(known)
        call = self.active_requests.begin(found[0], self.id, lasting=True)
        call.__enter__()
        return call


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ActiveRequestsHarness:
    return await ActiveRequestsHarness.create(engine)


async def ended(call: ActiveRequest) -> str:
    async def over() -> bool:
        return bool(call.why)

    await eventually(over)
    call.__exit__()
    return call.why


async def test_revoked_token_ends_only_its_own_requests(harness: ActiveRequestsHarness) -> None:
    async with harness.running():
        user = await harness.granted()
        token, other = await harness.token(user), await harness.token(user)
        call, goes_on = await harness.call(token.bearer), await harness.call(other.bearer)
        name = token.obj["metadata"]["name"]
        await harness.engine.delete(TOKEN.target, "", name)
        assert await ended(call) == f"token {name}: it was revoked"
        assert not goes_on.why


async def test_expired_token_ends_its_requests(harness: ActiveRequestsHarness) -> None:
    async with harness.running():
        user = await harness.granted()
        token = await harness.token(user)
        call = await harness.call(token.bearer)
        await harness.expires_soon(token.obj["metadata"]["name"])
        assert ": it expired at " in await ended(call)


async def test_token_narrowed_to_other_clusters_ends_its_requests(harness: ActiveRequestsHarness) -> None:
    async with harness.running():
        user = await harness.granted()
        token = await harness.token(user)
        call = await harness.call(token.bearer)
        other = await ActiveRequestsHarness.create(harness.engine)
        await other.create_cluster()
        await harness.engine.patch(TOKEN.target, "", token.obj["metadata"]["name"], {"clusterNames": [other.id]})
        assert "is not for this cluster" in await ended(call)


async def test_disabling_user_ends_its_requests(harness: ActiveRequestsHarness) -> None:
    async with harness.running():
        user = await harness.granted()
        call = await harness.call((await harness.token(user)).bearer)
        await harness.engine.patch(USER.target, "", user, {"enabled": False})
        assert f"its user {user} is disabled" in await ended(call)


async def test_revoked_grant_ends_requests_even_when_cluster_is_unreachable(
    harness: ActiveRequestsHarness,
) -> None:
    async with harness.running():
        user = await harness.granted()
        call = await harness.call((await harness.token(user)).bearer)
        harness.disconnect()
        await harness.engine.delete(GRANT.target, harness.id, "g")
        assert f"{user} may not get clusters.management.cattle.io {harness.id}" == await ended(call)
        harness.reconnect()
        await harness.until_grant_is_gone()
