"""Grants on either engine: written at both ends, taken back from both, and never left half."""

from __future__ import annotations

import pytest
import pytest_asyncio

from remuda.access.types import CLUSTER_ROLE_BINDINGS, GRANT, MANAGEMENT_CLUSTER, TOKEN, USER
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import StatusError
from remuda.providers.shared import names
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from tests.controllers.access_harness import AccessHarness
from tests.controllers.engine import Engine, eventually
from tests.lab.proxied import AuditLines


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> AccessHarness:
    return await AccessHarness.create(engine)


@pytest.mark.parametrize(
    ("role", "downstream"),
    [("cluster-owner", "cluster-admin"), ("cluster-viewer", "view"), ("clusterrole:system:node", "system:node")],
)
async def test_grant_creates_management_and_cluster_bindings_and_deletion_removes_both(
    harness: AccessHarness, role: str, downstream: str
) -> None:
    async with harness.running():
        await harness.create_cluster()
        user = await harness.user()
        await harness.grant(user, role, name=f"g-{user}")
        assert user in await harness.says("Granted", f"g-{user}")
        role_there, here, there = (
            await harness.role(),
            await harness.management_binding(f"g-{user}"),
            await harness.workload_binding(f"g-{user}"),
        )
        await harness.engine.delete(GRANT.target, harness.id, f"g-{user}")
        await harness.until_grant_is_gone(f"g-{user}")
        assert await harness.management_binding(f"g-{user}") is None
        assert await harness.workload_binding(f"g-{user}") is None
    assert role_there is not None
    assert role_there["rules"] == [
        {
            "apiGroups": ["management.cattle.io"],
            "resources": ["clusters"],
            "resourceNames": [harness.id],
            "verbs": ["get"],
        }
    ]
    assert here is not None
    assert here["roleRef"]["name"] == f"remuda:cluster:{harness.id}"
    assert here["subjects"][0]["name"] == user
    assert there is not None
    assert there["roleRef"]["name"] == downstream
    assert there["subjects"][0]["name"] == user


async def test_group_grant_creates_group_binding(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        obj = await harness.grant("", groupName="wranglers", name=f"g-{harness.id}")
        await harness.says("Granted", f"g-{harness.id}")
        there = await harness.workload_binding(f"g-{harness.id}")
        await harness.engine.delete(GRANT.target, harness.id, obj["metadata"]["name"])
        await harness.until_grant_is_gone(f"g-{harness.id}")
    assert there is not None
    assert there["subjects"][0] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "wranglers"}


async def test_grant_for_unreachable_cluster_is_applied_when_reachable(harness: AccessHarness) -> None:
    harness.reachable = False
    async with harness.running():
        await harness.create_cluster()
        name = f"g-{harness.id}"
        await harness.grant(await harness.user(), name=name)
        assert "the workload cluster is disconnected" in await harness.says("ClusterUnreachable", name)
        assert await harness.management_binding(name) is not None
        harness.reconnect()
        await harness.says("Granted", name)
        assert await harness.workload_binding(name) is not None


async def test_revocation_cuts_access_at_once_and_reaches_cluster_later(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        name = f"g-{harness.id}"
        await harness.grant(await harness.user(), name=name)
        await harness.says("Granted", name)
        harness.disconnect()
        await eventually(lambda: _shut(harness))
        await harness.engine.delete(GRANT.target, harness.id, name)
        assert "can no longer reach the cluster" in await harness.says("Revoking", name)
        assert await harness.management_binding(name) is None
        assert await harness.workload_binding(name) is not None
        harness.reconnect()
        await harness.until_grant_is_gone(name)
        assert await harness.workload_binding(name) is None


async def test_grant_of_deleted_cluster_is_removed_without_cluster_access(harness: AccessHarness) -> None:
    harness.reachable = False
    async with harness.running():
        await harness.create_cluster()
        name = f"g-{harness.id}"
        await harness.grant(await harness.user(), name=name)
        await harness.says("ClusterUnreachable", name)
        await harness.engine.delete(GRANT.target, harness.id, name)
        await harness.engine.delete(RKE_CONTROL_PLANE.target, harness.namespace, "c")
        await harness.until_grant_is_gone(name)


async def test_user_deletion_removes_tokens_and_grants(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        user, name = await harness.user(), f"g-{harness.id}"
        token = await harness.token(user)
        await harness.grant(user, name=name)
        await harness.says("Granted", name)
        await harness.engine.until(
            TOKEN.target, "", token.obj["metadata"]["name"], lambda obj: obj["metadata"].get("ownerReferences")
        )
        await harness.engine.delete(USER.target, "", user)
        await harness.until_grant_is_gone(name)
        await harness.engine.gone(TOKEN.target, "", token.obj["metadata"]["name"])
        assert await harness.management_binding(name) is None
        assert await harness.workload_binding(name) is None


async def test_idle_grant_writes_nothing_when_reconciled_again(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        user, name = await harness.user(), f"g-{harness.id}"
        await harness.grant(user, name=name)
        await harness.says("Granted", name)
        harness.disconnect()
        await eventually(lambda: _shut(harness))
        await harness.settled()
        versions = await _version(harness, name)
        for grant in harness.manager.caches.of(GRANT).all(harness.id):
            harness.manager.controllers["clusterroletemplatebinding"].enqueue(grant.key)
        await harness.settled()
        assert await _version(harness, name) == versions


async def test_modified_cluster_binding_is_restored(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        name = f"g-{harness.id}"
        await harness.grant(await harness.user(), "cluster-viewer", name=name)
        await harness.says("Granted", name)
        there = await harness.workload_binding(name)
        assert there is not None
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "rustler"}]
        await harness.engine.patch(CLUSTER_ROLE_BINDINGS, "", there["metadata"]["name"], {"subjects": subjects})
        await harness.settled()
        for grant in harness.manager.caches.of(GRANT).all(harness.id):
            harness.manager.controllers["clusterroletemplatebinding"].enqueue(grant.key)

        async def right() -> bool:
            found = await harness.workload_binding(name)
            return found is not None and found["subjects"] == there["subjects"]

        await eventually(right)


async def test_creator_owns_cluster_until_grant_is_deleted(harness: AccessHarness) -> None:
    async with harness.running():
        user = await harness.user()
        await harness.create_cluster(**{names.CREATOR: user})
        await harness.says("Granted", "creator-cluster-owner")
        await harness.engine.until(
            MANAGEMENT_CLUSTER.target, "", harness.id, lambda obj: "remuda.dev/creator-granted" in str(obj["metadata"])
        )
        await harness.engine.delete(GRANT.target, harness.id, "creator-cluster-owner")
        await harness.until_grant_is_gone("creator-cluster-owner")
        await harness.engine.patch(
            MANAGEMENT_CLUSTER.target, "", harness.id, {"metadata": {"labels": {"looked": "at"}}}
        )
        await harness.settled()
        assert await harness.engine.get(GRANT.target, harness.id, "creator-cluster-owner") is None


async def test_creator_without_user_object_gets_no_grant(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster(**{names.CREATOR: "system:admin"})
        await harness.settled()
        assert await harness.engine.list(GRANT.target, harness.id) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"roleTemplateName": "sheriff"}, "cluster-owner"),
        ({"roleTemplateName": "clusterrole:a/b"}, "may not contain '/'"),
        ({"userName": "nobody-at-all"}, "user not found"),
        ({"userName": ""}, "either userName or groupName"),
        ({"groupName": "wranglers"}, "either userName or groupName"),
        ({"clusterName": "c-m-elsewhere"}, "whose namespace this is"),
    ],
)
async def test_invalid_grant_is_rejected_with_reason_and_audited(
    harness: AccessHarness, change: dict[str, str], words: str
) -> None:
    async with harness.running():
        await harness.create_cluster()
        user = await harness.user()
        with AuditLines() as audit, pytest.raises(StatusError, match=words):
            await harness.grant(user, **change)
    *again, line = audit.lines
    assert not again or harness.engine.name == "kubernetes"  # which asks twice: before and after its schema
    assert (line["code"], line["verb"]) == (422, "create")
    assert line["path"].startswith(f"/apis/management.cattle.io/v3/namespaces/{harness.id}/clusterroletemplatebindings")
    assert line["why"]


async def test_grant_for_missing_cluster_is_rejected(harness: AccessHarness) -> None:
    async with harness.running():
        user = await harness.user()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": harness.id}}
        await harness.engine.create(NAMESPACES, "", space)
        with pytest.raises(StatusError, match="no cluster has this id"):
            await harness.grant(user)


async def test_grant_is_immutable(harness: AccessHarness) -> None:
    async with harness.running():
        await harness.create_cluster()
        name = f"g-{harness.id}"
        await harness.grant(await harness.user(), "cluster-viewer", name=name)
        with pytest.raises(StatusError, match="is immutable"):
            await harness.engine.patch(GRANT.target, harness.id, name, {"roleTemplateName": "cluster-owner"})


async def _shut(harness: AccessHarness) -> bool:
    return harness._remote.look(harness.cluster).client is None


async def _version(harness: AccessHarness, name: str) -> str:
    found = await harness.engine.get(GRANT.target, harness.id, name)
    assert found is not None
    return found["metadata"]["resourceVersion"]  # type: ignore[no-any-return]
