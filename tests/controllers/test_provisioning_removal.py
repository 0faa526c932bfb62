"""How declared clusters go: from either end, from every state, and without a trace."""

from __future__ import annotations

import pytest_asyncio

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.controllers.declared import SIM_MACHINE, Ranch, pool
from tests.controllers.engine import Engine, Json, condition, named


@pytest_asyncio.fixture(loop_scope="session")
async def ranch(engine: Engine) -> Ranch:
    return await Ranch.create(engine)


async def test_a_deleted_cluster_leaves_nothing(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool(quantity=2, unhealthyNodeTimeout="5m"))
        management = (await ranch.made())["status"]["clusterName"]
        await ranch.machines(2)
        await ranch.delete()
        await ranch.nothing_left(management)


async def test_deleting_management_cluster_deletes_its_cluster(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        management = (await ranch.made())["status"]["clusterName"]
        await ranch.machines(1)
        await ranch.engine.delete(MANAGEMENT_CLUSTER.target, "", management)
        await ranch.nothing_left(management)


async def test_cluster_that_was_never_created_is_deletable(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.says("RKECluster", "False")
        management = (await ranch.get(CLUSTER))["status"]["clusterName"]
        await ranch.delete()
        await ranch.nothing_left(management)


async def test_removed_condition_names_blocking_object(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        await ranch.machines(1)
        (machine,) = await ranch.engine.when(SIM_MACHINE.target, ranch.namespace, lambda objects: objects)
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await ranch.engine.patch(SIM_MACHINE.target, ranch.namespace, named(machine), held)
        await ranch.delete()

        def told(obj: Json) -> bool:
            return "kubectl describe simmachine" in condition(obj, "Removed").get("message", "")

        found = await ranch.until(CLUSTER, "prairie", told)
        said = condition(found, "Removed")
        assert said["status"] == "Unknown"
        assert "(since 20" in said["message"]
        assert f"Machine {ranch.namespace}/" in said["message"]
        free = {"metadata": {"finalizers": None}}
        await ranch.engine.patch(SIM_MACHINE.target, ranch.namespace, named(machine), free)
        await ranch.nothing_left()


async def test_deletion_of_paused_cluster_reports_pause(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        await ranch.machines(1)
        await ranch.engine.patch(CAPI_CLUSTER.target, ranch.namespace, "prairie", {"spec": {"paused": True}})
        await ranch.delete()
        found = await ranch.until(
            CLUSTER, "prairie", lambda obj: "paused" in condition(obj, "Removed").get("message", "")
        )
        assert "resume it: kubectl" in condition(found, "Removed")["message"]
        await ranch.engine.patch(CAPI_CLUSTER.target, ranch.namespace, "prairie", {"spec": {"paused": False}})
        await ranch.nothing_left()


async def test_deletion_completes_after_forced_removal_of_capi_cluster(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        await ranch.machines(1)
    # Nobody is at work: the Cluster of Cluster API is torn out.
    await ranch.delete()
    await ranch.engine.delete(CAPI_CLUSTER.target, ranch.namespace, "prairie")
    await ranch.engine.patch(CAPI_CLUSTER.target, ranch.namespace, "prairie", {"metadata": {"finalizers": None}})
    await ranch.engine.gone(CAPI_CLUSTER.target, ranch.namespace, "prairie")
    async with ranch.running():
        await ranch.nothing_left()
    for kind in (MACHINE, MACHINE_DEPLOYMENT, RKE_CONTROL_PLANE):
        assert await ranch.names(kind) == []
