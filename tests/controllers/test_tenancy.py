"""A tenant on either engine: what the ClusterRoles let a user do in its namespace, what they do not, and quotas."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from remuda.access import roles
from remuda.access import setup as access
from remuda.access.types import TOKEN, USER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import Forbidden, StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import Impersonation
from remuda.providers.shared import names
from remuda.provisioning.types import CLUSTER
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, Json, condition, eventually
from tests.controllers.provisioning_harness import CONFIG, TEMPLATE, ProvisioningHarness, pool
from tests.lab.proxied import AuditLines

QUOTAS = Target("v1", "resourcequotas")
JOBS = Target("batch/v1", "jobs")
BINDINGS = Target("rbac.authorization.k8s.io/v1", "rolebindings")
MACHINE_COUNT = "count/machines.cluster.x-k8s.io"


class Tenant(NamedTuple):
    harness: ProvisioningHarness
    name: str
    namespace: str
    client: Client

    async def config(self, name: str = "servers") -> None:
        await self.client.create(CONFIG.target, self.namespace, named(CONFIG.api_version, CONFIG.name, name))

    async def cluster(self, *pools: Json, name: str = "prairie", namespace: str = "", dry_run: bool = False) -> Json:
        spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"machinePools": list(pools)}}
        obj = named(CLUSTER.api_version, CLUSTER.name, name, spec=spec)
        made = await self.client.create(CLUSTER.target, namespace or self.namespace, obj, dry_run=dry_run)
        return dict(msgspec.json.decode(made))

    async def scale(self, quantity: int, name: str = "prairie") -> None:
        pools = [pool("servers", quantity=quantity)]
        await self.client.patch(CLUSTER.target, self.namespace, name, {"spec": {"rkeConfig": {"machinePools": pools}}})


def named(api_version: str, kind: str, name: str, **content: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


def see_users(manager: Manager) -> None:
    """Admission on Kubernetes looks users up in the caches of a manager."""
    for kind in (USER, TOKEN, CLUSTER):
        manager.caches.of(kind)


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    found = await ProvisioningHarness.create(engine)
    await engine.install(access.definitions())
    await roles.install(engine.client)
    return found


@asynccontextmanager
async def tenant_of(harness: ProvisioningHarness, **fields: Any) -> AsyncIterator[Tenant]:
    """A new User, bound as `remuda user create --namespace` does it."""
    engine, name = harness.engine, f"rider-{secrets.token_hex(3)}"
    user = USER.decode(await engine.client.create(USER.target, "", named(USER.api_version, USER.name, name, **fields)))
    for target, place, obj in roles.tenancy(user.metadata, harness.namespace):
        if target != NAMESPACES or obj["metadata"]["name"] != harness.namespace:
            await engine.create(target, place, obj)
    who = Impersonation(user=name, groups=("system:authenticated",))
    client = HttpClient(msgspec.structs.replace(kubeconfig.load(engine.kubeconfig), impersonate=who))
    found = Tenant(harness, name, harness.namespace, client)

    async def is_bound() -> bool:
        return not await is_forbidden(client.list(CLUSTER.target, harness.namespace))

    try:
        await eventually(is_bound)
        yield found
    finally:
        await client.close()


async def is_forbidden(request: Any) -> bool:
    try:
        await request
    except Forbidden:
        return True
    return False


async def refusal(request: Any) -> str:
    with pytest.raises(StatusError) as caught:
        await request
    assert caught.value.code == 403
    return caught.value.message


async def test_tenant_creates_scales_and_deletes_a_cluster(harness: ProvisioningHarness) -> None:
    async with harness.running(), tenant_of(harness) as tenant:
        await tenant.config()
        await tenant.client.create(SECRETS, f"{tenant.namespace}-credentials", {"metadata": {"name": "cloud"}})
        made = await tenant.cluster(pool("servers", cloudCredentialSecretName=f"{tenant.namespace}-credentials:cloud"))
        assert made["metadata"]["annotations"][names.CREATOR] == tenant.name
        await harness.machines(1)
        await tenant.scale(3)
        await harness.machines(3)
        assert len((await tenant.client.list(MACHINE.target, tenant.namespace)).items) == 3
        await tenant.client.delete(CLUSTER.target, tenant.namespace, "prairie")
        await harness.engine.gone(CLUSTER.target, tenant.namespace, "prairie")


async def test_tenant_cannot_write_objects_made_by_controllers(harness: ProvisioningHarness) -> None:
    async with tenant_of(harness) as tenant:
        client, place = tenant.client, tenant.namespace
        change: Json = {"metadata": {"labels": {"a": "b"}}}
        for target in (MACHINE.target, MACHINE_DEPLOYMENT.target, TEMPLATE.target, JOBS, BINDINGS, QUOTAS):
            assert await is_forbidden(client.create(target, place, {"metadata": {"name": "x"}})), target
            assert await is_forbidden(client.patch(target, place, "x", change)), target
            assert await is_forbidden(client.delete(target, place, "x")), target
        assert await is_forbidden(client.patch(CLUSTER.target, place, "x", {"status": {}}, subresource="status"))


async def test_tenant_cannot_read_cluster_secrets_but_manages_own_credentials(harness: ProvisioningHarness) -> None:
    async with tenant_of(harness) as tenant:
        client, place, own = tenant.client, tenant.namespace, f"{tenant.namespace}-credentials"
        await harness.engine.create(SECRETS, place, {"metadata": {"name": "prairie-kubeconfig"}})
        assert await is_forbidden(client.get(SECRETS, place, "prairie-kubeconfig"))
        assert await is_forbidden(client.list(SECRETS, place))
        assert await is_forbidden(client.create(SECRETS, place, {"metadata": {"name": "x"}}))
        # A patch answers with the whole object.
        assert await is_forbidden(client.patch(SECRETS, place, "prairie-kubeconfig", {}))
        await client.create(SECRETS, own, {"metadata": {"name": "cloud"}})
        await client.patch(SECRETS, own, "cloud", {"metadata": {"labels": {"a": "b"}}})
        await client.delete(SECRETS, own, "cloud")


async def test_tenant_is_forbidden_in_other_namespaces(harness: ProvisioningHarness) -> None:
    elsewhere = await harness.engine.namespace()
    async with tenant_of(harness) as tenant:
        client = tenant.client
        for target in (CLUSTER.target, CONFIG.target, MACHINE.target, SECRETS, QUOTAS):
            assert await is_forbidden(client.list(target, elsewhere)), target
            assert await is_forbidden(client.list(target)), target
        assert await is_forbidden(tenant.cluster(pool("servers"), namespace=elsewhere))


async def test_recreated_user_inherits_no_rights(harness: ProvisioningHarness) -> None:
    engine = harness.engine
    async with tenant_of(harness) as tenant:
        await engine.delete(USER.target, "", tenant.name)
        await engine.create(USER.target, "", named(USER.api_version, USER.name, tenant.name))
        for place, role in ((tenant.namespace, roles.TENANT), (f"{tenant.namespace}-credentials", roles.CREDENTIALS)):
            await engine.gone(BINDINGS, place, f"{role}:{tenant.name}")

        async def is_refused() -> bool:
            return await is_forbidden(tenant.client.list(CLUSTER.target, tenant.namespace))

        await eventually(is_refused)


@pytest.mark.parametrize(("role", "may"), [("view", False), ("edit", True), ("admin", True)])
async def test_roles_of_kubernetes_include_clusters(harness: ProvisioningHarness, role: str, may: bool) -> None:
    """The new rules are aggregated after a moment."""
    engine, place, user = harness.engine, await harness.engine.namespace(), f"rider-{secrets.token_hex(3)}"
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    await engine.create(BINDINGS, place, {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects})
    access_as = msgspec.structs.replace(kubeconfig.load(engine.kubeconfig), impersonate=Impersonation(user=user))
    client = HttpClient(access_as)

    async def reads_clusters() -> bool:
        return not await is_forbidden(client.list(CLUSTER.target, place))

    try:
        await eventually(reads_clusters)
        config = named(CONFIG.api_version, CONFIG.name, "servers")
        assert await is_forbidden(client.create(CONFIG.target, place, config)) != may
        assert await is_forbidden(client.list(CONFIG.target, place)) != may
        assert await is_forbidden(client.create(MACHINE.target, place, {"metadata": {"name": "x"}}))
    finally:
        await client.close()


async def test_machine_quota_exceeded_sets_stalled_condition(harness: ProvisioningHarness) -> None:
    engine, place = harness.engine, harness.namespace
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {MACHINE_COUNT: "2"}}}
    await engine.create(QUOTAS, place, quota)
    await engine.until(QUOTAS, place, "small", lambda obj: MACHINE_COUNT in (obj.get("status") or {}).get("used", {}))
    async with harness.running(), tenant_of(harness) as tenant:
        await tenant.config()
        await tenant.cluster(pool("servers", quantity=5))
        found = await harness.until(CLUSTER, "prairie", lambda obj: condition(obj, "Stalled").get("status") == "True")
        stalled = condition(found, "Stalled")
        assert stalled["reason"] == "QuotaExceeded"
        assert stalled["message"] == (
            f"pool servers: cannot create machines: ResourceQuota small of namespace {place} is exhausted "
            f"(used {MACHINE_COUNT}=2, limited {MACHINE_COUNT}=2); delete machines, or ask an administrator to raise it"
        )
        await harness.machines(2)
        await harness.settled()  # nothing is retried at once
        await tenant.scale(2)
        await harness.says("Stalled", "False")


async def test_user_quota_limits_owned_clusters_and_machines(harness: ProvisioningHarness) -> None:
    async with (
        harness.engine.running("", see_users),
        tenant_of(harness, quota={"clusters": 2, "machines": 4}) as tenant,
    ):
        await seen_user(harness.engine, tenant.name)
        await tenant.cluster(pool("servers", quantity=2), name="one")
        await seen_clusters(harness, 1)
        with AuditLines() as audit:
            machines = await refusal(tenant.cluster(pool("servers", quantity=3), name="large"))
        assert (
            f"the clusters of user {tenant.name} ask for 2 machines, this change adds 3, and the user may own 4; "
            "ask an administrator for more: kubectl patch users.management.cattle.io"
        ) in machines
        assert [(line["user"], line["code"]) for line in audit.lines if "may own 4" in line["why"]][:1] == [
            (tenant.name, 403)
        ]
        await tenant.cluster(pool("servers", quantity=1), name="two")
        await seen_clusters(harness, 2)
        clusters = await refusal(tenant.cluster(pool("servers", quantity=1), name="three"))
        assert f"user {tenant.name} owns 2 clusters and may own 2" in clusters
        assert "this change adds 2" in await refusal(tenant.scale(3, "two"))
        autoscaled = [pool("servers", quantity=1, autoscalingMinSize=1, autoscalingMaxSize=100)]
        change = {"spec": {"rkeConfig": {"machinePools": autoscaled}}}
        assert "this change adds 99" in await refusal(
            tenant.client.patch(CLUSTER.target, tenant.namespace, "two", change)
        )
        # Whoever removed the creator would own a cluster that is not counted.
        removed = {"metadata": {"annotations": {names.CREATOR: None}}}
        kept = msgspec.json.decode(await tenant.client.patch(CLUSTER.target, tenant.namespace, "two", removed))
        assert kept["metadata"]["annotations"][names.CREATOR] == tenant.name
        # An administrator is not limited, and a change that adds nothing needs no quota.
        await harness.engine.patch(
            CLUSTER.target,
            tenant.namespace,
            "two",
            {"spec": {"rkeConfig": {"machinePools": [pool("servers", quantity=9)]}}},
        )
        await tenant.scale(8, "two")


async def seen_user(engine: Engine, name: str) -> None:
    async def is_seen() -> bool:
        return engine.seen is None or engine.seen.of(USER).get("", name) is not None

    await eventually(is_seen)


async def seen_clusters(harness: ProvisioningHarness, count: int) -> None:
    async def are_seen() -> bool:
        seen = harness.engine.seen
        return seen is None or len(list(seen.of(CLUSTER).all(harness.namespace))) == count

    await eventually(are_seen)
