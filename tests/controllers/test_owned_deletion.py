"""Deletion of the objects that a declared Cluster owns: refused to users, and no machine is lost by it. Those who must
delete them (controllers, garbage collection, `clusterctl move`) do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.client import Client
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import Forbidden
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning.admission.deletion import DELETE_FOR_MOVE
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, named
from tests.controllers.provisioning_harness import TEMPLATE, ProvisioningHarness, pool
from tests.controllers.tenants import EVERYTHING, acting_as, grant, new_name

GUARDED = (CAPI_CLUSTER, MACHINE_DEPLOYMENT, RKE_CONTROL_PLANE, RKE_CLUSTER, RKE_BOOTSTRAP_TEMPLATE, TEMPLATE)
WORKERS = pool("workers", workerRole=True)


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> AsyncIterator[ProvisioningHarness]:
    """With a cluster of one server and one worker, whose controllers are at work."""
    found = await ProvisioningHarness.create(engine)
    await found.config("servers")
    await found.config("workers")
    async with found.running():
        await found.cluster(pool("servers"), WORKERS)
        await found.made()
        await found.machines(2)
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def user(harness: ProvisioningHarness) -> AsyncIterator[Client]:
    """A user with every right in the namespace, who is not the manager."""
    name = new_name()
    await grant(harness.engine, harness.namespace, name, "everything", [EVERYTHING])
    async with acting_as(harness.engine, name) as client:
        yield client


async def test_users_cannot_delete_owned_objects(harness: ProvisioningHarness, user: Client) -> None:
    machines = await harness.names(MACHINE)
    where = f"{harness.namespace}/prairie"
    for kind in GUARDED:
        names = await harness.names(kind)
        assert names, kind.name
        for name in names:
            with pytest.raises(Forbidden, match=f"belongs to the declared Cluster {where}"):
                await user.delete(kind.target, harness.namespace, name)
        with pytest.raises(Forbidden, match=f"belongs to the declared Cluster {where}"):
            await user.delete_collection(kind.target, harness.namespace)
        for obj in await harness.engine.list(kind.target, harness.namespace):
            assert "deletionTimestamp" not in obj["metadata"], f"{kind.name} {named(obj)}"
    with pytest.raises(Forbidden, match=f"remuda delete cluster prairie -n {harness.namespace}"):
        await user.delete(CAPI_CLUSTER.target, harness.namespace, "prairie")
    assert await harness.names(MACHINE) == machines


async def test_controllers_delete_what_is_no_longer_declared(harness: ProvisioningHarness) -> None:
    engine, templates = harness.engine, await harness.names(TEMPLATE)
    await harness.edit(pool("servers"))
    await engine.gone(MACHINE_DEPLOYMENT.target, harness.namespace, "prairie-workers")
    (unused,) = [name for name in templates if "workers" in name]
    await engine.gone(TEMPLATE.target, harness.namespace, unused)


async def test_a_deleted_declaration_takes_everything_along(harness: ProvisioningHarness, user: Client) -> None:
    management = (await harness.get(CLUSTER))["status"]["clusterName"]
    await user.delete(CLUSTER.target, harness.namespace, "prairie")
    await harness.nothing_left(management)


async def test_deleting_the_namespace_completes(harness: ProvisioningHarness) -> None:
    await harness.engine.delete(NAMESPACES, "", harness.namespace)
    await harness.engine.gone(NAMESPACES, "", harness.namespace)


async def test_moved_objects_are_deletable(harness: ProvisioningHarness, user: Client) -> None:
    """Annotate each object and then delete it, as `clusterctl move` does; here as a dry run."""
    for kind in GUARDED:
        for name in await harness.names(kind):
            note = {"metadata": {"annotations": {DELETE_FOR_MOVE: ""}}}
            await user.patch(kind.target, harness.namespace, name, note)
            await user.delete(kind.target, harness.namespace, name, dry_run=True)
