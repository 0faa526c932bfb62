"""`remuda why` on real objects: the blocker of a deletion, a pool or a machine, and advice that works."""

from __future__ import annotations

import json

import pytest_asyncio

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning import blocker, tree_loader
from remuda.provisioning.tree import Branch
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.program import remuda
from tests.controllers.provisioning_harness import SIM_MACHINE, ProvisioningHarness

FINALIZER = "backup.example.com/hold"


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.with_one_server(engine)


async def blocking(harness: ProvisioningHarness) -> list[Branch]:
    return blocker.blocking(await tree_loader.look(harness.engine.client, harness.namespace, "prairie"))


async def holds_up(harness: ProvisioningHarness) -> tuple[str, str, str]:
    """The object, its reason, and what comes next."""
    chain = await blocking(harness)
    return str(chain[-1]), chain[-1].judgement.reason, blocker.then(chain)


async def server_of(harness: ProvisioningHarness) -> str:
    (machine,) = await harness.machines(1)
    return named(machine)


def deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


async def test_why_names_failed_removal_instead_of_deleted_infrastructure(harness: ProvisioningHarness) -> None:
    engine, name = harness.engine, await server_of(harness)
    await engine.patch(
        SIM_MACHINE.target, harness.namespace, name, {"metadata": {"finalizers": ["remuda.dev/machine"]}}
    )
    failed = {"type": "DeleteJob", "status": "False", "reason": "DeleteError", "message": "attempt 1 failed: no route"}
    news = {"conditions": [{**failed, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await engine.status(SIM_MACHINE.target, harness.namespace, name, news)
    async with harness.running():
        await harness.delete()
        await harness.until(SIM_MACHINE, name, deleting)
        await harness.settled()
    await engine.patch(RKE_CLUSTER.target, harness.namespace, "prairie", {"metadata": {"finalizers": None}})
    await engine.delete(RKE_CLUSTER.target, harness.namespace, "prairie")
    await engine.gone(RKE_CLUSTER.target, harness.namespace, "prairie")
    leaf, reason, then = await holds_up(harness)
    assert (leaf, reason) == (f"SimMachine {name}", "DeleteError")
    assert "force-machine-remove=true" in then
    assert f"see remuda machine logs {name}" in then
    told = await remuda(engine, "why", "prairie", "-n", harness.namespace)
    assert told.code == 1
    assert "RKECluster" not in told.out
    assert "no route" in told.out


async def test_why_names_foreign_finalizer_of_machine_with_owner(harness: ProvisioningHarness) -> None:
    name = await server_of(harness)
    (machine,) = await harness.machines(1)
    finalizers = [*machine["metadata"]["finalizers"], FINALIZER]
    await harness.engine.patch(MACHINE.target, harness.namespace, name, {"metadata": {"finalizers": finalizers}})
    async with harness.running():
        await harness.delete()
        await harness.until(MACHINE, name, lambda obj: obj["metadata"]["finalizers"] == [FINALIZER])
    leaf, reason, then = await holds_up(harness)
    assert (leaf, reason) == (f"Machine {name}", "ForeignFinalizer")
    assert f"the program that set {FINALIZER} must remove it" in then
    assert f"kubectl patch machines.cluster.x-k8s.io {name} -n {harness.namespace}" in then


async def test_why_names_secret_that_blocks_namespace_deletion(harness: ProvisioningHarness) -> None:
    engine = harness.engine
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cloud", "finalizers": [FINALIZER]}}
    await engine.create(SECRETS, harness.namespace, secret)
    await engine.delete(NAMESPACES, "", harness.namespace)
    await engine.until(
        NAMESPACES,
        "",
        harness.namespace,
        lambda obj: FINALIZER in condition(obj, "NamespaceFinalizersRemaining").get("message", ""),
    )
    leaf, reason, then = await holds_up(harness)
    assert (leaf, reason) == ("Secret cloud", "ForeignFinalizer")
    assert f"kubectl patch secrets cloud -n {harness.namespace}" in then


async def test_why_names_pool_with_missing_template_kind(harness: ProvisioningHarness) -> None:
    group, kind = "elemental.cattle.io", "MachineInventorySelectorTemplate"
    labels = {"cluster.x-k8s.io/cluster-name": "prairie", "pool": "wild"}
    reference = {"apiGroup": group, "kind": kind, "name": "wild"}
    spec = {"clusterName": "prairie", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference}
    deployment = {
        "apiVersion": MACHINE_DEPLOYMENT.api_version,
        "kind": "MachineDeployment",
        "metadata": {"name": "wild", "labels": labels},
        "spec": {
            "clusterName": "prairie",
            "replicas": 1,
            "selector": {"matchLabels": {"pool": "wild"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    async with harness.running():
        await harness.engine.create(MACHINE_DEPLOYMENT.target, harness.namespace, deployment)
        await harness.until(
            MACHINE_DEPLOYMENT, "wild", lambda obj: group in condition(obj, "ScalingUp").get("message", "")
        )
    leaf, reason, then = await holds_up(harness)
    assert (leaf, reason) == ("MachineDeployment wild", "ScalingUpBlocked")
    assert f"install the provider that has {kind.lower()}s.{group}" in then


async def test_why_advises_deleting_machine_of_deleted_server_object(harness: ProvisioningHarness) -> None:
    engine, name = harness.engine, await server_of(harness)
    await engine.status(
        MACHINE.target, harness.namespace, name, {"initialization": {"infrastructureProvisioned": True}}
    )
    await engine.delete(SIM_MACHINE.target, harness.namespace, name)
    await engine.gone(SIM_MACHINE.target, harness.namespace, name)
    leaf, _, then = await holds_up(harness)
    assert leaf == f"SimMachine {name}"
    assert f"delete Machine {name} (remuda delete machine {name} -n {harness.namespace})" in then


async def test_why_shows_lost_quorum_first(harness: ProvisioningHarness) -> None:
    message = "etcd has lost quorum: server-2 and server-3 are dead; start one of them again, or restore a snapshot"
    await harness.control_plane_says("False", "QuorumLost", message)
    done = await remuda(harness.engine, "why", "prairie", "-n", harness.namespace, "-o", "json")
    told = json.loads(done.out)
    assert (done.code, told["chain"][-1]["kind"], told["chain"][-1]["judgement"]["reason"]) == (
        1,
        "RKEControlPlane",
        "QuorumLost",
    )
    assert told["next"].startswith("start one of them again, or restore a snapshot")
    assert "by itself" not in told["next"]


async def test_why_names_paused_cluster_with_unpause_command(harness: ProvisioningHarness) -> None:
    async with harness.running():
        await harness.engine.patch(CAPI_CLUSTER.target, harness.namespace, "prairie", {"spec": {"paused": True}})
        await harness.until(CAPI_CLUSTER, "prairie", lambda obj: condition(obj, "Paused").get("status") == "True")
    leaf, _, then = await holds_up(harness)
    assert leaf == "Cluster prairie"
    assert "kubectl patch clusters.cluster.x-k8s.io prairie" in then
