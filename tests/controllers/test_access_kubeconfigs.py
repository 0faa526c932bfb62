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
from tests.controllers.doors import SITE, Doors
from tests.controllers.engine import Engine, Json, eventually, named


@pytest_asyncio.fixture(loop_scope="session")
async def doors(engine: Engine) -> Doors:
    return await Doors.create(engine)


def bearer_of(secret: Json) -> str:
    return base64.b64decode(secret["data"]["token"]).decode()


async def published(doors: Doors) -> Json:
    return await doors.engine.until(SECRETS, doors.namespace, "c-kubeconfig", lambda obj: "token" in obj["data"])


async def is_good(doors: Doors, bearer: str) -> None:
    async def good() -> bool:
        try:
            return doors.tokens.caller(bearer) is not None
        except Exception:
            return False

    await eventually(good)


async def test_kubeconfig_secret_uses_proxy_and_cluster_system_user(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        await doors.admin_kubeconfig()
        secret = await published(doors)
        user = await doors.engine.get(USER.target, "", system_user(doors.cluster))
        await is_good(doors, bearer_of(secret))
        caller = doors.tokens.caller(bearer_of(secret))
        (grant,) = await doors.engine.list(GRANT.target, doors.id)
        await doors.says("Granted", named(grant))
    config = yaml.safe_load(base64.b64decode(secret["data"]["value"]))
    cluster, credentials = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == f"https://ranch.example:6443/k8s/clusters/{doors.id}"
    assert base64.b64decode(cluster["certificate-authority-data"]) == SITE.ca_pem
    assert credentials == {"token": bearer_of(secret)}
    assert secret["type"] == "cluster.x-k8s.io/secret"
    assert secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c"
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "RKEControlPlane"
    assert user is not None
    assert caller is not None
    assert caller.name == system_user(doors.cluster)
    assert caller.clusters == (doors.id,)
    assert grant["roleTemplateName"] == "cluster-owner"
    assert grant["userName"] == system_user(doors.cluster)


async def test_kubeconfig_and_user_are_created_only_after_admin_kubeconfig_exists(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        await doors.settled()
        assert await doors.engine.get(SECRETS, doors.namespace, "c-kubeconfig") is None
        assert await doors.engine.get(USER.target, "", system_user(doors.cluster)) is None
        await doors.admin_kubeconfig()
        await published(doors)


async def test_foreign_kubeconfig_secret_is_not_overwritten(doors: Doors) -> None:
    await doors.secret("c-kubeconfig", {"value": "theirs"})
    async with doors.running():
        await doors.declared()
        await doors.admin_kubeconfig()
        await doors.settled()
        found = await doors.engine.get(SECRETS, doors.namespace, "c-kubeconfig")
        assert await doors.engine.get(USER.target, "", system_user(doors.cluster)) is None
    assert found is not None
    assert base64.b64decode(found["data"]["value"]) == b"theirs"


async def test_server_url_change_rewrites_kubeconfig_with_same_token(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        await doors.admin_kubeconfig()
        before = await published(doors)
        await doors.settled()
    doors.site = Site(server_url="https://elsewhere.example", ca_pem=b"-- another --\n")
    async with doors.running():
        after = await doors.engine.until(
            SECRETS, doors.namespace, "c-kubeconfig", lambda obj: obj["data"]["value"] != before["data"]["value"]
        )
    config = yaml.safe_load(base64.b64decode(after["data"]["value"]))
    assert config["clusters"][0]["cluster"]["server"] == f"https://elsewhere.example/k8s/clusters/{doors.id}"
    assert bearer_of(after) == bearer_of(before)


async def test_a_lost_secret_or_a_revoked_token_is_replaced(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        await doors.admin_kubeconfig()
        first = await published(doors)
        await doors.engine.delete(SECRETS, doors.namespace, "c-kubeconfig")
        second = await doors.engine.until(
            SECRETS, doors.namespace, "c-kubeconfig", lambda obj: bearer_of(obj) != bearer_of(first)
        )
        await is_good(doors, bearer_of(second))
        await doors.engine.delete(TOKEN.target, "", system_user(doors.cluster))
        third = await doors.engine.until(
            SECRETS, doors.namespace, "c-kubeconfig", lambda obj: bearer_of(obj) != bearer_of(second)
        )
        await is_good(doors, bearer_of(third))


async def test_an_idle_cluster_writes_nothing(doors: Doors) -> None:
    async with doors.running() as manager:
        await doors.declared()
        await doors.admin_kubeconfig()
        await published(doors)
        await doors.settled()
        before = await _versions(doors)
        for controller in manager.controllers.values():
            for obj in manager.caches.of(controller.kind).all():
                controller.enqueue(obj.key)
        await doors.settled()
        assert await _versions(doors) == before


async def test_undeclared_cluster_gets_derived_id_and_deletion_leaves_nothing(doors: Doors) -> None:
    doors.id = derived_id(doors.cluster)
    async with doors.running():
        await doors.plane()
        await doors.admin_kubeconfig()
        secret = await published(doors)
        (grant,) = await doors.engine.list(GRANT.target, doors.id)
        await doors.says("Granted", named(grant))
        await doors.engine.delete(RKE_CONTROL_PLANE.target, doors.namespace, "c")
        await doors.engine.gone(USER.target, "", system_user(doors.cluster))
        await doors.engine.gone(TOKEN.target, "", system_user(doors.cluster))
        await doors.engine.gone(NAMESPACES, "", doors.id)
        await doors.engine.gone(SECRETS, doors.namespace, "c-kubeconfig")
    assert f"/k8s/clusters/{doors.id}" in base64.b64decode(secret["data"]["value"]).decode()


async def _versions(doors: Doors) -> dict[str, str]:
    found = {}
    for target, namespace in (
        (USER.target, ""),
        (TOKEN.target, ""),
        (GRANT.target, doors.id),
        (SECRETS, doors.namespace),
    ):
        for obj in await doors.engine.list(target, namespace):
            found[f"{target.plural}/{named(obj)}"] = obj["metadata"]["resourceVersion"]
    return found
