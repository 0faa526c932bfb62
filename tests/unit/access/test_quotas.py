"""Quotas of users on the embedded engine: defaults, exceptions, and requests that arrive at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.access import roles
from remuda.access import setup as access
from remuda.access.tokens import USERS, mint
from remuda.access.types import CLUSTER_ROLE_BINDINGS, TOKEN, USER, Quota
from remuda.apiserver.auth.user import User
from remuda.apiserver.client import LocalClient
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.controllers import embedded_admission
from remuda.kube import clock
from remuda.kube.errors import AlreadyExists, StatusError
from remuda.kube.objects import ObjectMeta
from remuda.provisioning.definitions import definitions as provisioning
from remuda.provisioning.types import CLUSTER
from remuda.runtime.definitions import install
from tests.unit.provisioning.clusters import declared, pool

NS = "team"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    quota = Quota(clusters=3, machines=6, tokens=2)
    settings = ServerSettings(data_dir=tmp_path, port=0)
    running = await ApiServer.start(settings, admission=embedded_admission(quota))
    try:
        await install(running.client(), [*access.definitions(), *provisioning()])
        await roles.install(running.client())
        await access.allow_own_tokens(running.client())
        yield running
    finally:
        await running.stop()


async def user(server: ApiServer, name: str = "alice", *, known: bool = True, **fields: Any) -> LocalClient:
    metadata = ObjectMeta(name=name, uid="none")
    if known:
        made = await server.client().create(USER.target, "", {"metadata": {"name": name}, **fields})
        metadata = USER.decode(made).metadata
    for target, place, obj in roles.tenancy(metadata, NS):
        obj["metadata"].pop("ownerReferences", None)
        with contextlib.suppress(AlreadyExists):
            await server.client().create(target, place, obj)
    return server.client(User(name, groups=(USERS, "system:authenticated")))


async def cluster(client: LocalClient, name: str, quantity: int = 1) -> None:
    obj = declared(*([pool(quantity=quantity)] if quantity else []))
    obj["metadata"] = {"name": name}
    await client.create(CLUSTER.target, NS, obj)


async def token(client: LocalClient, name: str, seconds: float | None = None) -> None:
    until = None if seconds is None else clock.time() + seconds
    await client.create(TOKEN.target, "", mint(name, expires_at=until).obj)


async def accepted(*requests: Any) -> int:
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert all(one is None or (isinstance(one, StatusError) and one.code == 403) for one in results), results
    return results.count(None)


async def test_concurrent_clusters_do_not_exceed_the_quota(server: ApiServer) -> None:
    alice = await user(server)
    assert await accepted(*(cluster(alice, f"c{n}", 0) for n in range(20))) == 3
    assert len((await alice.list(CLUSTER.target, NS)).items) == 3


async def test_concurrent_changes_of_pools_do_not_exceed_the_quota(server: ApiServer) -> None:
    alice = await user(server)
    for name in ("a", "b", "c"):
        await cluster(alice, name)
    more = {"spec": {"rkeConfig": {"machinePools": [pool(quantity=4)]}}}
    assert await accepted(*(_patched(alice, name, more) for name in ("a", "b", "c"))) == 1


async def _patched(client: LocalClient, name: str, change: dict[str, Any]) -> None:
    await client.patch(CLUSTER.target, NS, name, change)


async def test_concurrent_tokens_do_not_exceed_the_quota(server: ApiServer) -> None:
    alice = await user(server)
    assert await accepted(*(token(alice, "alice") for _ in range(10))) == 2


async def test_token_quota_error_reports_usage_and_how_to_raise_the_quota(server: ApiServer) -> None:
    alice = await user(server, quota={"tokens": 1})
    await token(alice, "alice")
    with pytest.raises(StatusError) as caught:
        await token(alice, "alice")
    assert caught.value.message == (
        "tokens.management.cattle.io is forbidden: user alice has 1 valid token and may have 1; ask an administrator "
        'for more: kubectl patch users.management.cattle.io alice --type=merge -p \'{"quota":{"tokens":2}}\''
    )


async def test_token_quota_ignores_expired_tokens_and_other_users_tokens(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = await user(server), await user(server, "bob")
    await token(bob, "bob")
    await token(alice, "alice", 60.0)
    await token(alice, "alice", 60.0)
    assert await accepted(token(alice, "alice")) == 0
    now = clock.time()
    monkeypatch.setattr(clock, "time", lambda: now + 61.0)
    assert await accepted(token(alice, "alice")) == 1


async def test_administrator_creates_tokens_for_a_user_above_the_quota(server: ApiServer) -> None:
    await user(server)
    admin = server.client()
    assert await accepted(*(token(admin, "alice") for _ in range(5))) == 5


async def test_quota_of_a_user_replaces_the_default(server: ApiServer) -> None:
    alice = await user(server, quota={"clusters": 5})
    assert await accepted(*(cluster(alice, f"c{n}", 0) for n in range(6))) == 5
    with pytest.raises(StatusError, match="may own 6"):
        await _patched(alice, "c0", {"spec": {"rkeConfig": {"machinePools": [pool(quantity=7)]}}})


async def test_quota_does_not_limit_cluster_admins_and_non_remuda_users(server: ApiServer) -> None:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": "chief"}]
    binding = {"metadata": {"name": "chief"}, "roleRef": reference, "subjects": subjects}
    await server.client().create(CLUSTER_ROLE_BINDINGS, "", binding)
    for client, name in ((await user(server, "chief"), "a"), (await user(server, "robot", known=False), "b")):
        assert await accepted(*(cluster(client, f"{name}{n}", 3) for n in range(5))) == 5


async def test_negative_quota_is_refused(server: ApiServer) -> None:
    with pytest.raises(StatusError, match="should be greater than or equal to 0"):
        await user(server, quota={"clusters": -1})
