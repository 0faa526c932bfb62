"""`<cluster>-kubeconfig` through the proxy, and the system user it is for, on either engine."""

from __future__ import annotations

import base64

import pytest_asyncio
import yaml

from remuda.access.system_users import system_user
from remuda.access.types import GRANT, TOKEN, USER
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.providers.controlplane.identity import derived_id
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from tests.controllers.access_harness import SITE, AccessHarness
from tests.controllers.engine import Engine, Json, eventually, named


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> AccessHarness:
    return await AccessHarness.create(engine)


def bearer_of(secret: Json) -> str:
    return base64.b64decode(secret["data"]["token"]).decode()


async def published(harness: AccessHarness) -> Json:
    return await harness.engine.until(SECRETS, harness.namespace, "c-kubeconfig", lambda obj: "token" in obj["data"])


async def is_good(harness: AccessHarness, bearer: str) -> None:
    async def good() -> bool:
        try:
            return harness.tokens.caller(bearer) is not None
        except Exception:
            return False

    await eventually(good)


async def test_kubeconfig_secret_uses_proxy_and_cluster_system_user(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        await harness.admin_kubeconfig()
        secret = await published(harness)
        user = await harness.engine.get(USER.target, "", system_user(harness.cluster))
        await is_good(harness, bearer_of(secret))
        caller = harness.tokens.caller(bearer_of(secret))
        (grant,) = await harness.engine.list(GRANT.target, harness.id)
        await harness.says("Granted", named(grant))
    config = yaml.safe_load(base64.b64decode(secret["data"]["value"]))
    cluster, credentials = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == f"https://ranch.example:6443/k8s/clusters/{harness.id}"
    assert base64.b64decode(cluster["certificate-authority-data"]) == SITE.ca_pem
    assert credentials == {"token": bearer_of(secret)}
    assert secret["type"] == "cluster.x-k8s.io/secret"
    assert secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c"
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "RKEControlPlane"
    assert user is not None
    assert caller is not None
    assert caller.name == system_user(harness.cluster)
    assert caller.clusters == (harness.id,)
    assert grant["roleTemplateName"] == "cluster-owner"
    assert grant["userName"] == system_user(harness.cluster)


async def test_kubeconfig_and_user_are_created_only_after_admin_kubeconfig_exists(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        await harness.settled()
        assert await harness.engine.get(SECRETS, harness.namespace, "c-kubeconfig") is None
        assert await harness.engine.get(USER.target, "", system_user(harness.cluster)) is None
        await harness.admin_kubeconfig()
        await published(harness)


async def test_foreign_kubeconfig_secret_is_not_overwritten(harness: AccessHarness) -> None:
    await harness.secret("c-kubeconfig", {"value": "theirs"})
    async with harness.running():
        await harness.create_cluster()
        await harness.admin_kubeconfig()
        await harness.settled()
        found = await harness.engine.get(SECRETS, harness.namespace, "c-kubeconfig")
        assert await harness.engine.get(USER.target, "", system_user(harness.cluster)) is None
    assert found is not None
    assert base64.b64decode(found["data"]["value"]) == b"theirs"


async def test_server_url_change_rewrites_kubeconfig_with_same_token(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        await harness.admin_kubeconfig()
        before = await published(harness)
        await harness.settled()
    harness.site = Site(server_url="https://elsewhere.example", ca_pem=b"-- another --\n")
    async with harness.running():
        after = await harness.engine.until(
            SECRETS, harness.namespace, "c-kubeconfig", lambda obj: obj["data"]["value"] != before["data"]["value"]
        )
    config = yaml.safe_load(base64.b64decode(after["data"]["value"]))
    assert config["clusters"][0]["cluster"]["server"] == f"https://elsewhere.example/k8s/clusters/{harness.id}"
    assert bearer_of(after) == bearer_of(before)


async def test_lost_secret_or_a_revoked_token_is_replaced(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        await harness.admin_kubeconfig()
        first = await published(harness)
        await harness.engine.delete(SECRETS, harness.namespace, "c-kubeconfig")
        second = await harness.engine.until(
            SECRETS, harness.namespace, "c-kubeconfig", lambda obj: bearer_of(obj) != bearer_of(first)
        )
        await is_good(harness, bearer_of(second))
        await harness.engine.delete(TOKEN.target, "", system_user(harness.cluster))
        third = await harness.engine.until(
            SECRETS, harness.namespace, "c-kubeconfig", lambda obj: bearer_of(obj) != bearer_of(second)
        )
        await is_good(harness, bearer_of(third))


async def test_idle_cluster_writes_nothing(harness: AccessHarness) -> None:
    async with harness.running() as manager:
        await harness.create_cluster()
        await harness.admin_kubeconfig()
        await published(harness)
        await harness.settled()
        before = await _versions(harness)
        for controller in manager.controllers.values():
            for obj in manager.caches.of(controller.kind).all():
                controller.enqueue(obj.key)
        await harness.settled()
        assert await _versions(harness) == before


async def test_undeclared_cluster_gets_derived_id_and_deletion_leaves_nothing(harness: AccessHarness) -> None:
    harness.id = derived_id(harness.cluster)
    async with harness.running():
        await harness.create_control_plane()
        await harness.admin_kubeconfig()
        secret = await published(harness)
        (grant,) = await harness.engine.list(GRANT.target, harness.id)
        await harness.says("Granted", named(grant))
        await harness.engine.delete(RKE_CONTROL_PLANE.target, harness.namespace, "c")
        await harness.engine.gone(USER.target, "", system_user(harness.cluster))
        await harness.engine.gone(TOKEN.target, "", system_user(harness.cluster))
        await harness.engine.gone(NAMESPACES, "", harness.id)
        await harness.engine.gone(SECRETS, harness.namespace, "c-kubeconfig")
    assert f"/k8s/clusters/{harness.id}" in base64.b64decode(secret["data"]["value"]).decode()


async def _versions(harness: AccessHarness) -> dict[str, str]:
    found = {}
    for target, namespace in (
        (USER.target, ""),
        (TOKEN.target, ""),
        (GRANT.target, harness.id),
        (SECRETS, harness.namespace),
    ):
        for obj in await harness.engine.list(target, namespace):
            found[f"{target.plural}/{named(obj)}"] = obj["metadata"]["resourceVersion"]
    return found
