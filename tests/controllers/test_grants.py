"""Grants on either engine: written at both ends, taken back from both, and never left half."""

from __future__ import annotations

import pytest
import pytest_asyncio

from remuda.access.types import CLUSTER_ROLE_BINDINGS, GRANT, MANAGEMENT_CLUSTER, TOKEN, USER
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import StatusError
from remuda.providers.shared import names
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from tests.controllers.doors import Doors
from tests.controllers.engine import Engine, eventually
from tests.lab.proxied import AuditLines


@pytest_asyncio.fixture(loop_scope="session")
async def doors(engine: Engine) -> Doors:
    return await Doors.create(engine)


@pytest.mark.parametrize(
    ("role", "downstream"),
    [("cluster-owner", "cluster-admin"), ("cluster-viewer", "view"), ("clusterrole:system:node", "system:node")],
)
async def test_grant_creates_management_and_cluster_bindings_and_deletion_removes_both(
    doors: Doors, role: str, downstream: str
) -> None:
    async with doors.running():
        await doors.declared()
        rider = await doors.user()
        await doors.grant(rider, role, name=f"g-{rider}")
        assert rider in await doors.says("Granted", f"g-{rider}")
        role_there, here, there = (
            await doors.role(),
            await doors.reaching(f"g-{rider}"),
            await doors.downstream(f"g-{rider}"),
        )
        await doors.engine.delete(GRANT.target, doors.id, f"g-{rider}")
        await doors.no_grant(f"g-{rider}")
        assert await doors.reaching(f"g-{rider}") is None
        assert await doors.downstream(f"g-{rider}") is None
    assert role_there is not None
    assert role_there["rules"] == [
        {
            "apiGroups": ["management.cattle.io"],
            "resources": ["clusters"],
            "resourceNames": [doors.id],
            "verbs": ["get"],
        }
    ]
    assert here is not None
    assert here["roleRef"]["name"] == f"remuda:cluster:{doors.id}"
    assert here["subjects"][0]["name"] == rider
    assert there is not None
    assert there["roleRef"]["name"] == downstream
    assert there["subjects"][0]["name"] == rider


async def test_group_grant_creates_group_binding(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        obj = await doors.grant("", groupName="wranglers", name=f"g-{doors.id}")
        await doors.says("Granted", f"g-{doors.id}")
        there = await doors.downstream(f"g-{doors.id}")
        await doors.engine.delete(GRANT.target, doors.id, obj["metadata"]["name"])
        await doors.no_grant(f"g-{doors.id}")
    assert there is not None
    assert there["subjects"][0] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "wranglers"}


async def test_grant_for_unreachable_cluster_is_applied_when_reachable(doors: Doors) -> None:
    doors.open = False
    async with doors.running():
        await doors.declared()
        name = f"g-{doors.id}"
        await doors.grant(await doors.user(), name=name)
        assert "the door is shut" in await doors.says("ClusterUnreachable", name)
        assert await doors.reaching(name) is not None
        doors.unlock()
        await doors.says("Granted", name)
        assert await doors.downstream(name) is not None


async def test_revocation_cuts_access_at_once_and_reaches_cluster_later(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        name = f"g-{doors.id}"
        await doors.grant(await doors.user(), name=name)
        await doors.says("Granted", name)
        doors.shut()
        await eventually(lambda: _shut(doors))
        await doors.engine.delete(GRANT.target, doors.id, name)
        assert "can no longer reach the cluster" in await doors.says("Revoking", name)
        assert await doors.reaching(name) is None
        assert await doors.downstream(name) is not None
        doors.unlock()
        await doors.no_grant(name)
        assert await doors.downstream(name) is None


async def test_grant_of_deleted_cluster_is_removed_without_cluster_access(doors: Doors) -> None:
    doors.open = False
    async with doors.running():
        await doors.declared()
        name = f"g-{doors.id}"
        await doors.grant(await doors.user(), name=name)
        await doors.says("ClusterUnreachable", name)
        await doors.engine.delete(GRANT.target, doors.id, name)
        await doors.engine.delete(RKE_CONTROL_PLANE.target, doors.namespace, "c")
        await doors.no_grant(name)


async def test_user_deletion_removes_tokens_and_grants(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        rider, name = await doors.user(), f"g-{doors.id}"
        token = await doors.token(rider)
        await doors.grant(rider, name=name)
        await doors.says("Granted", name)
        await doors.engine.until(
            TOKEN.target, "", token.obj["metadata"]["name"], lambda obj: obj["metadata"].get("ownerReferences")
        )
        await doors.engine.delete(USER.target, "", rider)
        await doors.no_grant(name)
        await doors.engine.gone(TOKEN.target, "", token.obj["metadata"]["name"])
        assert await doors.reaching(name) is None
        assert await doors.downstream(name) is None


async def test_idle_grant_writes_nothing_when_reconciled_again(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        rider, name = await doors.user(), f"g-{doors.id}"
        await doors.grant(rider, name=name)
        await doors.says("Granted", name)
        doors.shut()
        await eventually(lambda: _shut(doors))
        await doors.settled()
        versions = await _version(doors, name)
        for grant in doors.manager.caches.of(GRANT).all(doors.id):
            doors.manager.controllers["clusterroletemplatebinding"].enqueue(grant.key)
        await doors.settled()
        assert await _version(doors, name) == versions


async def test_modified_cluster_binding_is_restored(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        name = f"g-{doors.id}"
        await doors.grant(await doors.user(), "cluster-viewer", name=name)
        await doors.says("Granted", name)
        there = await doors.downstream(name)
        assert there is not None
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "rustler"}]
        await doors.engine.patch(CLUSTER_ROLE_BINDINGS, "", there["metadata"]["name"], {"subjects": subjects})
        await doors.settled()
        for grant in doors.manager.caches.of(GRANT).all(doors.id):
            doors.manager.controllers["clusterroletemplatebinding"].enqueue(grant.key)

        async def right() -> bool:
            found = await doors.downstream(name)
            return found is not None and found["subjects"] == there["subjects"]

        await eventually(right)


async def test_creator_owns_cluster_until_grant_is_deleted(doors: Doors) -> None:
    async with doors.running():
        rider = await doors.user()
        await doors.declared(**{names.CREATOR: rider})
        await doors.says("Granted", "creator-cluster-owner")
        await doors.engine.until(
            MANAGEMENT_CLUSTER.target, "", doors.id, lambda obj: "remuda.dev/creator-granted" in str(obj["metadata"])
        )
        await doors.engine.delete(GRANT.target, doors.id, "creator-cluster-owner")
        await doors.no_grant("creator-cluster-owner")
        await doors.engine.patch(MANAGEMENT_CLUSTER.target, "", doors.id, {"metadata": {"labels": {"looked": "at"}}})
        await doors.settled()
        assert await doors.engine.get(GRANT.target, doors.id, "creator-cluster-owner") is None


async def test_creator_without_user_object_gets_no_grant(doors: Doors) -> None:
    async with doors.running():
        await doors.declared(**{names.CREATOR: "system:admin"})
        await doors.settled()
        assert await doors.engine.list(GRANT.target, doors.id) == []


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
    doors: Doors, change: dict[str, str], words: str
) -> None:
    async with doors.running():
        await doors.declared()
        rider = await doors.user()
        with AuditLines() as audit, pytest.raises(StatusError, match=words):
            await doors.grant(rider, **change)
    *again, line = audit.lines
    assert not again or doors.engine.name == "kubernetes"  # which asks twice: before and after its schema
    assert (line["code"], line["verb"]) == (422, "create")
    assert line["path"].startswith(f"/apis/management.cattle.io/v3/namespaces/{doors.id}/clusterroletemplatebindings")
    assert line["why"]


async def test_grant_for_missing_cluster_is_rejected(doors: Doors) -> None:
    async with doors.running():
        rider = await doors.user()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": doors.id}}
        await doors.engine.create(NAMESPACES, "", space)
        with pytest.raises(StatusError, match="no cluster has this id"):
            await doors.grant(rider)


async def test_grant_is_immutable(doors: Doors) -> None:
    async with doors.running():
        await doors.declared()
        name = f"g-{doors.id}"
        await doors.grant(await doors.user(), "cluster-viewer", name=name)
        with pytest.raises(StatusError, match="is immutable"):
            await doors.engine.patch(GRANT.target, doors.id, name, {"roleTemplateName": "cluster-owner"})


async def _shut(doors: Doors) -> bool:
    return doors._remote.look(doors.cluster).client is None


async def _version(doors: Doors, name: str) -> str:
    found = await doors.engine.get(GRANT.target, doors.id, name)
    assert found is not None
    return found["metadata"]["resourceVersion"]  # type: ignore[no-any-return]
