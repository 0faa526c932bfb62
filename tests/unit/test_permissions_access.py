"""The rights of access in examples/rbac.yaml, beside what its code asks for in the scenario of users and a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from remuda.access import authorization, users
from remuda.access.active_requests import ActiveRequests, end_revoked_requests, still_reaching
from remuda.access.interfaces import Caller
from remuda.access.system_users import system_user
from remuda.access.types import GRANT, TOKEN, USER
from remuda.apiserver.server import ApiServer
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import StatusError
from remuda.kube.web import Request
from remuda.providers.controlplane.identity import derived_id
from remuda.providers.shared import names
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.runtime.manager import Manager
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine
from tests.unit.test_permissions import ACCESS, MANAGER, RIGHTS, rights
from tests.unit.test_permissions_providers import engine


class Limited(AccessHarness):
    """The controllers have the rights of a manager; whoever tells the scenario has all of them."""

    server: ApiServer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Manager]:
        mine = Engine("embedded", self.server.client(MANAGER), self.server.kubeconfig)
        async with mine.running("", self._add) as manager:
            self.manager = manager
            self._remote.want(self.cluster)
            yield manager

    def _add(self, manager: Manager) -> None:
        super()._add(manager)
        end_revoked_requests(ActiveRequests(still_reaching(self.tokens, nobody_may)), manager.caches)


async def nobody_may(caller: Caller, cluster: str) -> str:
    return "nobody asks"


class Nobody:
    """A connection without a certificate."""

    certificate = None
    address = "192.0.2.1:1"

    async def read_body(self, request: Request, limit: int) -> bytes:
        return b""


async def test_access_rbac_rules_are_sufficient_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "EXPIRED_SECONDS", 0.0)
    async with engine(tmp_path) as (server, authorizer):
        everybody = Engine("embedded", server.client(), server.kubeconfig)
        for declared in (True, False):
            harness = await Limited.create(everybody)
            assert isinstance(harness, Limited)
            harness.server = server
            await a_cluster_with_users(harness, declared)
        await somebody_asks(server)
    assert authorizer.refused == set()
    objects = [one for one in yaml.safe_load_all(RIGHTS.read_text()) if one["metadata"]["name"] == ACCESS]
    assert set(rights(objects)) - authorizer.asked == {("get", "clusters.management.cattle.io")}  # it is only given on


async def a_cluster_with_users(harness: AccessHarness, declared: bool) -> None:
    async with harness.running():
        user = await harness.user()
        if declared:
            await harness.create_cluster(**{names.CREATOR: user})
        else:
            harness.id = derived_id(harness.cluster)
            await harness.create_control_plane()
        await harness.admin_kubeconfig()
        await harness.engine.until(SECRETS, harness.namespace, "c-kubeconfig", lambda obj: "token" in obj["data"])
        grant = names.join(harness.id, harness.namespace, "owner")
        await harness.says("Granted", grant)
        token = await harness.token(user, seconds=2.0)
        await harness.engine.gone(TOKEN.target, "", token.obj["metadata"]["name"])
        for target, place, name in (  # either is made anew
            (TOKEN.target, "", system_user(harness.cluster)),
            (SECRETS, harness.namespace, "c-kubeconfig"),
        ):
            await harness.settled()
            await harness.engine.delete(target, place, name)
            await harness.engine.until(target, place, name, lambda obj: True)
        await harness.grant(user, name=f"g-{harness.id}")
        await harness.says("Granted", f"g-{harness.id}")
        await harness.engine.delete(GRANT.target, harness.id, f"g-{harness.id}")
        await harness.until_grant_is_gone(f"g-{harness.id}")
        await harness.engine.delete(RKE_CONTROL_PLANE.target, harness.namespace, "c")
        await harness.engine.gone(USER.target, "", system_user(harness.cluster))
        if not declared:
            await harness.engine.gone(NAMESPACES, "", harness.id)


async def somebody_asks(server: ApiServer) -> None:
    client = server.client(MANAGER)
    request = Request(Nobody(), "GET", "/k8s/clusters/c/version", {b"authorization": b"Bearer nobodys"})
    with pytest.raises(StatusError, match="Unauthorized"):
        await authorization.reviewed_tokens(client)(request)
    assert not await authorization.reviewed_access(client)(Caller(name="rider"), "c")
