"""From a declared cluster to its objects, and what edits of it do, on either engine."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.kube import clock
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import StatusError
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.provisioning_harness import CONFIG, TEMPLATE, ProvisioningHarness, pool


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    return await ProvisioningHarness.create(engine)


def template_of(deployment: Json) -> str:
    return deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"]  # type: ignore[no-any-return]


async def test_declared_cluster_creates_all_its_objects(harness: ProvisioningHarness) -> None:
    await harness.config("servers", zone="a")
    await harness.config("workers")
    workers = pool(
        "workers",
        workerRole=True,
        quantity=2,
        labels={"tier": "web"},
        taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
        drainBeforeDelete=True,
        drainBeforeDeleteTimeout="10m",
        unhealthyNodeTimeout="5m",
        hostnameLengthLimit=20,
    )
    async with harness.running():
        await harness.cluster(pool("servers"), workers, machineGlobalConfig={"cni": "calico"})
        declared = await harness.made()
        await harness.machines(3)
        cluster = await harness.get(CAPI_CLUSTER)
        control_plane = await harness.get(RKE_CONTROL_PLANE)
        servers = await harness.get(MACHINE_DEPLOYMENT, "prairie-servers")
        deployment = await harness.get(MACHINE_DEPLOYMENT, "prairie-workers")
        template = await harness.get(TEMPLATE, template_of(deployment))
        check = await harness.get(MACHINE_HEALTH_CHECK, "prairie-workers")

    assert cluster["spec"]["infrastructureRef"] == {
        "apiGroup": "rke.cattle.io",
        "kind": "RKECluster",
        "name": "prairie",
    }
    assert cluster["spec"]["controlPlaneRef"]["kind"] == "RKEControlPlane"
    assert cluster["metadata"]["ownerReferences"][0]["uid"] == declared["metadata"]["uid"]
    assert control_plane["spec"]["machineGlobalConfig"] == {"cni": "calico"}
    assert control_plane["spec"]["managementClusterName"] == declared["status"]["clusterName"]
    assert "machinePools" not in control_plane["spec"]
    assert (
        servers["spec"]["template"]["metadata"]["labels"].items()
        >= {
            names.ETCD_ROLE: "true",
            names.CONTROL_PLANE_ROLE: "true",
            capi_names.CONTROL_PLANE: "true",
        }.items()
    )
    assert names.WORKER_ROLE not in servers["spec"]["template"]["metadata"]["labels"]
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {
        names.HOSTNAME_LENGTH_LIMIT: "20",
        names.NODE_LABELS: '{"tier":"web"}',
        names.NODE_TAINTS: '[{"key":"k","value":"v","effect":"NoSchedule"}]',
    }
    assert metadata["labels"]["tier"] == "web"
    assert deployment["spec"]["deletion"] == {"order": "Oldest"}
    assert deployment["spec"]["template"]["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 600
    assert deployment["spec"]["replicas"] == 2
    assert template["spec"]["template"]["spec"]["common"]["labels"] == {"tier": "web"}
    assert template["metadata"]["labels"]["objectset.rio.cattle.io/prune"] == "false"
    assert named(template).startswith("prairie-workers-")
    assert {one["status"] for one in check["spec"]["checks"]["unhealthyNodeConditions"]} == {"Unknown", "False"}
    assert await harness.names(RKE_BOOTSTRAP_TEMPLATE) == ["prairie-bootstrap-template"]
    assert await harness.names(RKE_CLUSTER) == ["prairie"]
    assert await harness.names(MACHINE_HEALTH_CHECK) == ["prairie-workers"]


async def test_management_cluster_gets_id_and_namespace(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool(), annotations={"field.cattle.io/description": "grass"})
        status = (await harness.made())["status"]
        found = await harness.engine.until(
            MANAGEMENT_CLUSTER.target,
            "",
            status["clusterName"],
            lambda obj: obj.get("status", {}).get("info", {}).get("nodeCount") == 1,
        )
        namespace = await harness.engine.get(NAMESPACES, "", status["clusterName"])
    assert status["clusterName"].startswith("c-m-")
    assert len(status["clusterName"]) == len("c-m-") + 8
    assert found["spec"]["displayName"] == "prairie"
    assert found["spec"]["description"] == "grass"
    assert found["metadata"]["annotations"]["provisioning.cattle.io/administrated"] == "true"
    assert found["status"]["info"]["machineProvider"] == "sim"
    assert found["status"]["info"]["provisioningClusterRef"] == {"namespace": harness.namespace, "name": "prairie"}
    assert namespace is not None


async def test_chosen_cluster_id_is_used_unless_taken(harness: ProvisioningHarness) -> None:
    chosen = f"c-{harness.namespace}"
    annotations = {"provisioning.cattle.io/management-cluster-name": chosen}
    async with harness.running():
        await harness.cluster(annotations=annotations)
        assert (await harness.made())["status"]["clusterName"] == chosen
        await harness.cluster(name="steppe", annotations=annotations)
        said = await harness.says("Created", "False", "steppe")
        assert said["reason"] == "NameTaken"
        assert chosen in said["message"]
        assert await harness.engine.get(CAPI_CLUSTER.target, harness.namespace, "steppe") is None


async def test_cluster_ready_condition_follows_control_plane(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        await harness.control_plane_says("Unknown", "Waiting", "waiting for something named")
        said = await harness.until(
            CLUSTER, "prairie", lambda obj: condition(obj, "Ready").get("message", "") == "waiting for something named"
        )
        for type in ("Ready", "Updated", "Provisioned"):
            assert condition(said, type)["message"] == "waiting for something named"
        assert condition(said, "Reconciling")["status"] == "True"
        assert condition(said, "Stalled")["status"] == "False"
        assert "ready" not in said["status"]

        await harness.control_plane_says("True", "Ready", initialization={"controlPlaneInitialized": True})
        said = await harness.until(CLUSTER, "prairie", lambda obj: obj["status"].get("ready"))
        assert said["status"]["clientSecretName"] == "prairie-kubeconfig"
        assert condition(said, "Reconciling")["status"] == "False"

        await harness.control_plane_says("False", "Waiting", "a node is gone")
        await harness.says("Ready", "False")
        assert "ready" not in (await harness.get(CLUSTER))["status"]


@pytest.mark.parametrize(
    "edit",
    [
        {"labels": {"a": "b"}},
        {"taints": [{"key": "a", "effect": "NoExecute"}]},
        {"quantity": 2},
        {"cloudCredentialSecretName": "other"},
        {"drainBeforeDelete": True},
        {"workerRole": True, "etcdRole": True, "controlPlaneRole": True},
    ],
    ids=lambda edit: next(iter(edit)),
)
async def test_pool_edit_without_driver_option_keeps_machines(harness: ProvisioningHarness, edit: Json) -> None:
    await harness.config()
    await harness.credential("other")
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        before = await harness.get(MACHINE_DEPLOYMENT, "prairie-servers")
        (machine,) = await harness.machines(1)
        await harness.edit(pool(**edit))
        await harness.made()
        after = await harness.get(MACHINE_DEPLOYMENT, "prairie-servers")
        machines = await harness.machines(edit.get("quantity", 1))
        templates = await harness.names(TEMPLATE)
        sets = await harness.names(MACHINE_SET)
    assert (
        before["spec"]["template"]["spec"]["infrastructureRef"]
        == after["spec"]["template"]["spec"]["infrastructureRef"]
    )
    assert named(machine) in {named(one) for one in machines}
    assert len(templates) == len(sets) == 1


async def test_changed_option_creates_new_template_and_unused_template_is_deleted(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        (machine,) = await harness.machines(1)
        old = template_of(await harness.get(MACHINE_DEPLOYMENT, "prairie-servers"))
        await harness.engine.patch(CONFIG.target, harness.namespace, "servers", {"zone": "b"})
        deployment = await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: template_of(obj) != old)
        assert await harness.names(TEMPLATE) == sorted([old, template_of(deployment)]), "its machines still need it"
        for name in await harness.names(MACHINE_SET):
            if (await harness.get(MACHINE_SET, name))["spec"]["template"]["spec"]["infrastructureRef"]["name"] == old:
                await harness.engine.delete(MACHINE_SET.target, harness.namespace, name)
        await harness.engine.gone(TEMPLATE.target, harness.namespace, old)
        assert await harness.names(TEMPLATE) == [template_of(deployment)]
        assert named(machine)


async def test_in_place_only_pool_holds_replacement_and_gives_advice(harness: ProvisioningHarness) -> None:
    """Admission refuses such an edit. Who forbids replacement when the edit is there already is not too late."""
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        (machine,) = await harness.machines(1)
        old = template_of(await harness.get(MACHINE_DEPLOYMENT, "prairie-servers"))
    await harness.engine.patch(CONFIG.target, harness.namespace, "servers", {"zone": "b"})
    await harness.edit(pool(replacement="inPlaceOnly"))
    async with harness.running():
        said = await harness.says("Held", "True")
        assert "machine pool servers" in said["message"]
        assert named(machine) in said["message"]
        assert "because of zone" in said["message"]
        assert "set replacement to replace" in said["message"]
        await harness.edit(pool(replacement="inPlaceOnly", labels={"still": "managed"}))
        await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "still" in obj["metadata"]["labels"])
        assert template_of(await harness.get(MACHINE_DEPLOYMENT, "prairie-servers")) == old
        assert await harness.names(TEMPLATE) == [old]

        await harness.edit(pool(replacement="replace"))
        await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: template_of(obj) != old)
        await harness.until(CLUSTER, "prairie", lambda obj: not condition(obj, "Held"))


async def test_removed_pool_is_deleted_with_its_health_check(harness: ProvisioningHarness) -> None:
    await harness.config("servers")
    await harness.config("workers")
    async with harness.running():
        await harness.cluster(pool("servers"), pool("workers", workerRole=True, unhealthyNodeTimeout="1m"))
        await harness.made()
        await harness.machines(2)
        await harness.edit(pool("servers"))
        await harness.engine.gone(MACHINE_DEPLOYMENT.target, harness.namespace, "prairie-workers")
        await harness.engine.gone(MACHINE_HEALTH_CHECK.target, harness.namespace, "prairie-workers")
        await harness.machines(1)
        await harness.engine.when(TEMPLATE.target, harness.namespace, lambda objects: len(objects) == 1)


async def test_missing_references_are_all_named_and_block_creation(harness: ProvisioningHarness) -> None:
    async with harness.running():
        await harness.cluster(pool("servers", cloudCredentialSecretName="gold"), pool("workers", workerRole=True))
        said = await harness.says("RKECluster", "False")
        assert f"Secret {harness.namespace}/gold does not exist" in said["message"]
        assert f"machine pool workers: SimConfig {harness.namespace}/workers does not exist" in said["message"]
        assert await harness.engine.get(CAPI_CLUSTER.target, harness.namespace, "prairie") is None
        assert (await harness.says("Stalled", "True"))["message"] == said["message"]
        await harness.credential("gold")
        await harness.config("workers")
        await harness.config("servers")
        await harness.made()
        await harness.machines(2)


async def test_config_owned_by_other_cluster_is_not_adopted(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        first = await harness.cluster(pool())
        await harness.made()
        await harness.cluster(pool(), name="steppe")
        said = await harness.says("RKECluster", "False", "steppe")
        assert f"SimConfig {harness.namespace}/servers belongs to Cluster prairie" in said["message"]
        owners = (await harness.get(CONFIG, "servers"))["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [first["metadata"]["uid"]]


async def test_changed_owned_fields_are_restored_and_foreign_fields_kept(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool(labels={"a": "b"}))
        await harness.made()
        await harness.engine.patch(
            MACHINE_DEPLOYMENT.target,
            harness.namespace,
            "prairie-servers",
            {"metadata": {"labels": {"mine": "yes"}}, "spec": {"replicas": 5, "paused": True}},
        )
        found = await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: not obj["spec"].get("paused"))
        assert found["spec"]["replicas"] == 1
        assert found["metadata"]["labels"]["mine"] == "yes"
        await harness.edit(pool())
        found = await harness.until(
            MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "a" not in obj["metadata"]["labels"]
        )
        assert "a" not in found["spec"]["template"]["metadata"]["labels"]
        assert found["metadata"]["labels"]["mine"] == "yes"


async def test_autoscaler_replicas_are_kept_within_bounds(harness: ProvisioningHarness) -> None:
    await harness.config()
    sizes: Json = {"autoscalingMinSize": 1, "autoscalingMaxSize": 3}
    async with harness.running():
        await harness.cluster(pool(**sizes))
        await harness.made()
        assert (await harness.get(CAPI_CLUSTER))["metadata"]["annotations"][
            "provisioning.cattle.io/cluster-autoscaler-enabled"
        ] == "true"
        scale = {"spec": {"replicas": 3}}
        await harness.engine.patch(MACHINE_DEPLOYMENT.target, harness.namespace, "prairie-servers", scale)
        await harness.machines(3)
        await harness.edit(pool(labels={"a": "b"}, **sizes))
        found = await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "a" in obj["metadata"]["labels"])
        assert found["spec"]["replicas"] == 3
        assert found["metadata"]["annotations"][capi_names.AUTOSCALER_MAX_SIZE] == "3"
        await harness.edit(pool(autoscalingMinSize=1, autoscalingMaxSize=2))
        await harness.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: obj["spec"]["replicas"] == 2)


async def test_cluster_without_pools_creates_no_deployments(harness: ProvisioningHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.made()
        await harness.until(RKE_CLUSTER, "prairie", lambda obj: obj.get("status", {}).get("initialization"))
    assert await harness.names(MACHINE_DEPLOYMENT) == []
    assert await harness.names(RKE_BOOTSTRAP_TEMPLATE) == []


async def test_machine_of_missing_custom_host_is_deleted_after_timeout(harness: ProvisioningHarness) -> None:
    after = {"rke.cattle.io/delete-missing-custom-machines-after": "1s"}
    core = ("cluster", "machineset", "machinedeployment")  # the test plays the Machine's controller
    async with harness.running(core=core):
        await harness.cluster(annotations=after)
        await harness.made()
        for name, kind in (("custom-1", "CustomMachine"), ("other", "SimMachine")):
            group = "rke.cattle.io" if kind == "CustomMachine" else "rke-machine.cattle.io"
            spec = {
                "clusterName": "prairie",
                "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": group, "kind": kind, "name": name},
            }
            metadata = {"name": name}
            obj = {"apiVersion": MACHINE.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
            await harness.engine.create(MACHINE.target, harness.namespace, obj)
            gone = {
                "type": "NodeHealthy",
                "status": "False",
                "reason": "NodeDeleted",
                "message": "",
                "lastTransitionTime": clock.now(),
            }
            await harness.engine.status(MACHINE.target, harness.namespace, name, {"conditions": [gone]})
        await harness.engine.gone(MACHINE.target, harness.namespace, "custom-1")
        assert await harness.names(MACHINE) == ["other"]


async def test_user_set_pause_is_kept(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool())
        await harness.made()
        await harness.engine.patch(CAPI_CLUSTER.target, harness.namespace, "prairie", {"spec": {"paused": True}})
        await harness.edit(pool(), machineGlobalConfig={"cni": "none"})
        await harness.made()
        assert (await harness.get(CAPI_CLUSTER))["spec"]["paused"] is True


async def test_idle_cluster_writes_nothing(harness: ProvisioningHarness) -> None:
    await harness.config()
    async with harness.running():
        await harness.cluster(pool(unhealthyNodeTimeout="5m", autoscalingMinSize=1, autoscalingMaxSize=2))
        await harness.made()
        await harness.machines(1)
        await harness.settled()
        await asyncio.sleep(1.0)
        await harness.settled()
        before = await harness.versions()
    async with harness.running():
        await harness.settled()
        await asyncio.sleep(0.5)
        await harness.settled()
        assert await harness.versions() == before, "a manager that starts anew finds all as it shall be"
    assert await harness.engine.list(MACHINE.target, harness.namespace)


async def test_change_that_replaces_in_place_only_machines_is_rejected_with_names(harness: ProvisioningHarness) -> None:
    await harness.config("servers")
    await harness.config("others", zone="b")
    async with harness.running():
        await harness.cluster(pool(replacement="inPlaceOnly"))
        await harness.made()
        (machine,) = await harness.machines(1)
        for refused in (
            harness.engine.patch(CONFIG.target, harness.namespace, "servers", {"zone": "b"}),
            harness.edit(pool(replacement="inPlaceOnly", machineConfigRef={"kind": "SimConfig", "name": "others"})),
        ):
            with pytest.raises(StatusError, match=f"would replace Machine {named(machine)}, because of zone"):
                await refused
        await harness.edit(pool(replacement="inPlaceOnly", labels={"a": "b"}, quantity=2))
        await harness.machines(2)
