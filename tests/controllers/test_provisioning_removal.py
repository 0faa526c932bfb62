"""How declared clusters go: from either end, from every state, and without a trace."""

from __future__ import annotations

import pytest_asyncio

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.provisioning_harness import SIM_MACHINE, ProvisioningHarness, pool


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.create(engine)


async def test_deleted_cluster_leaves_nothing(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool(quantity=2, unhealthyNodeTimeout="5m"))
        management = (await harness.made())["status"]["clusterName"]
        await harness.machines(2)
        await harness.delete()
        await harness.nothing_left(management)


async def test_deleting_management_cluster_deletes_its_cluster(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        management = (await harness.made())["status"]["clusterName"]
        await harness.machines(1)
        await harness.engine.delete(MANAGEMENT_CLUSTER.target, "", management)
        await harness.nothing_left(management)


async def test_cluster_that_was_never_created_is_deletable(harness: ProvisioningHarness) -> None:
    async with harness.running():
        await harness.cluster(pool())
        await harness.says("RKECluster", "False")
        management = (await harness.get(CLUSTER))["status"]["clusterName"]
        await harness.delete()
        await harness.nothing_left(management)


async def test_removed_condition_names_blocking_object(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        await harness.machines(1)
        (machine,) = await harness.engine.when(SIM_MACHINE.target, harness.namespace, lambda objects: objects)
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await harness.engine.patch(SIM_MACHINE.target, harness.namespace, named(machine), held)
        await harness.delete()

        def reports_deletion(obj: Json) -> bool:
            return "kubectl describe simmachine" in condition(obj, "Removed").get("message", "")

        found = await harness.until(CLUSTER, "prairie", reports_deletion)
        said = condition(found, "Removed")
        assert said["status"] == "Unknown"
        assert "(since 20" in said["message"]
        assert f"Machine {harness.namespace}/" in said["message"]
        free = {"metadata": {"finalizers": None}}
        await harness.engine.patch(SIM_MACHINE.target, harness.namespace, named(machine), free)
        await harness.nothing_left()


async def test_deletion_of_paused_cluster_reports_pause(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        await harness.machines(1)
        await harness.engine.patch(CAPI_CLUSTER.target, harness.namespace, "prairie", {"spec": {"paused": True}})
        await harness.delete()
        found = await harness.until(
            CLUSTER, "prairie", lambda obj: "paused" in condition(obj, "Removed").get("message", "")
        )
        assert "resume it: kubectl" in condition(found, "Removed")["message"]
        await harness.engine.patch(CAPI_CLUSTER.target, harness.namespace, "prairie", {"spec": {"paused": False}})
        await harness.nothing_left()


async def test_deletion_completes_after_forced_removal_of_capi_cluster(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        await harness.machines(1)
    # Nobody is at work: the Cluster of Cluster API is torn out.
    await harness.delete()
    await harness.engine.delete(CAPI_CLUSTER.target, harness.namespace, "prairie")
    await harness.engine.patch(CAPI_CLUSTER.target, harness.namespace, "prairie", {"metadata": {"finalizers": None}})
    await harness.engine.gone(CAPI_CLUSTER.target, harness.namespace, "prairie")
    async with harness.running():
        await harness.nothing_left()
    for kind in (MACHINE, MACHINE_DEPLOYMENT, RKE_CONTROL_PLANE):
        assert await harness.names(kind) == []
