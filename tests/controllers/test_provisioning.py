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
from tests.controllers.declared import CONFIG, TEMPLATE, Ranch, pool
from tests.controllers.engine import Engine, Json, condition, named


@pytest_asyncio.fixture(loop_scope="session")
async def ranch(engine: Engine) -> Ranch:
    return await Ranch.create(engine)


def template_of(deployment: Json) -> str:
    return deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"]  # type: ignore[no-any-return]


async def test_declared_cluster_creates_all_its_objects(ranch: Ranch) -> None:
    await ranch.config("servers", zone="a")
    await ranch.config("workers")
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
    async with ranch.running():
        await ranch.cluster(pool("servers"), workers, machineGlobalConfig={"cni": "calico"})
        declared = await ranch.made()
        await ranch.machines(3)
        cluster = await ranch.get(CAPI_CLUSTER)
        control_plane = await ranch.get(RKE_CONTROL_PLANE)
        servers = await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers")
        deployment = await ranch.get(MACHINE_DEPLOYMENT, "prairie-workers")
        template = await ranch.get(TEMPLATE, template_of(deployment))
        check = await ranch.get(MACHINE_HEALTH_CHECK, "prairie-workers")

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
    assert await ranch.names(RKE_BOOTSTRAP_TEMPLATE) == ["prairie-bootstrap-template"]
    assert await ranch.names(RKE_CLUSTER) == ["prairie"]
    assert await ranch.names(MACHINE_HEALTH_CHECK) == ["prairie-workers"]


async def test_management_cluster_gets_id_and_namespace(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool(), annotations={"field.cattle.io/description": "grass"})
        status = (await ranch.made())["status"]
        found = await ranch.engine.until(
            MANAGEMENT_CLUSTER.target,
            "",
            status["clusterName"],
            lambda obj: obj.get("status", {}).get("info", {}).get("nodeCount") == 1,
        )
        namespace = await ranch.engine.get(NAMESPACES, "", status["clusterName"])
    assert status["clusterName"].startswith("c-m-")
    assert len(status["clusterName"]) == len("c-m-") + 8
    assert found["spec"]["displayName"] == "prairie"
    assert found["spec"]["description"] == "grass"
    assert found["metadata"]["annotations"]["provisioning.cattle.io/administrated"] == "true"
    assert found["status"]["info"]["machineProvider"] == "sim"
    assert found["status"]["info"]["provisioningClusterRef"] == {"namespace": ranch.namespace, "name": "prairie"}
    assert namespace is not None


async def test_chosen_cluster_id_is_used_unless_taken(ranch: Ranch) -> None:
    chosen = f"c-{ranch.namespace}"
    annotations = {"provisioning.cattle.io/management-cluster-name": chosen}
    async with ranch.running():
        await ranch.cluster(annotations=annotations)
        assert (await ranch.made())["status"]["clusterName"] == chosen
        await ranch.cluster(name="steppe", annotations=annotations)
        said = await ranch.says("Created", "False", "steppe")
        assert said["reason"] == "NameTaken"
        assert chosen in said["message"]
        assert await ranch.engine.get(CAPI_CLUSTER.target, ranch.namespace, "steppe") is None


async def test_cluster_ready_condition_follows_control_plane(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        await ranch.control_plane_says("Unknown", "Waiting", "waiting for something named")
        said = await ranch.until(
            CLUSTER, "prairie", lambda obj: condition(obj, "Ready").get("message", "") == "waiting for something named"
        )
        for type in ("Ready", "Updated", "Provisioned"):
            assert condition(said, type)["message"] == "waiting for something named"
        assert condition(said, "Reconciling")["status"] == "True"
        assert condition(said, "Stalled")["status"] == "False"
        assert "ready" not in said["status"]

        await ranch.control_plane_says("True", "Ready", initialization={"controlPlaneInitialized": True})
        said = await ranch.until(CLUSTER, "prairie", lambda obj: obj["status"].get("ready"))
        assert said["status"]["clientSecretName"] == "prairie-kubeconfig"
        assert condition(said, "Reconciling")["status"] == "False"

        await ranch.control_plane_says("False", "Waiting", "a node is gone")
        await ranch.says("Ready", "False")
        assert "ready" not in (await ranch.get(CLUSTER))["status"]


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
async def test_pool_edit_without_driver_option_keeps_machines(ranch: Ranch, edit: Json) -> None:
    await ranch.config()
    await ranch.credential("other")
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        before = await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers")
        (machine,) = await ranch.machines(1)
        await ranch.edit(pool(**edit))
        await ranch.made()
        after = await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers")
        machines = await ranch.machines(edit.get("quantity", 1))
        templates = await ranch.names(TEMPLATE)
        sets = await ranch.names(MACHINE_SET)
    assert (
        before["spec"]["template"]["spec"]["infrastructureRef"]
        == after["spec"]["template"]["spec"]["infrastructureRef"]
    )
    assert named(machine) in {named(one) for one in machines}
    assert len(templates) == len(sets) == 1


async def test_changed_option_creates_new_template_and_unused_template_is_deleted(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        (machine,) = await ranch.machines(1)
        old = template_of(await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers"))
        await ranch.engine.patch(CONFIG.target, ranch.namespace, "servers", {"zone": "b"})
        deployment = await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: template_of(obj) != old)
        assert await ranch.names(TEMPLATE) == sorted([old, template_of(deployment)]), "its machines still need it"
        for name in await ranch.names(MACHINE_SET):
            if (await ranch.get(MACHINE_SET, name))["spec"]["template"]["spec"]["infrastructureRef"]["name"] == old:
                await ranch.engine.delete(MACHINE_SET.target, ranch.namespace, name)
        await ranch.engine.gone(TEMPLATE.target, ranch.namespace, old)
        assert await ranch.names(TEMPLATE) == [template_of(deployment)]
        assert named(machine)


async def test_in_place_only_pool_holds_replacement_and_gives_advice(ranch: Ranch) -> None:
    """Admission refuses such an edit. Who forbids replacement when the edit is there already is not too late."""
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        (machine,) = await ranch.machines(1)
        old = template_of(await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers"))
    await ranch.engine.patch(CONFIG.target, ranch.namespace, "servers", {"zone": "b"})
    await ranch.edit(pool(replacement="inPlaceOnly"))
    async with ranch.running():
        said = await ranch.says("Held", "True")
        assert "machine pool servers" in said["message"]
        assert named(machine) in said["message"]
        assert "because of zone" in said["message"]
        assert "set replacement to replace" in said["message"]
        await ranch.edit(pool(replacement="inPlaceOnly", labels={"still": "managed"}))
        await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "still" in obj["metadata"]["labels"])
        assert template_of(await ranch.get(MACHINE_DEPLOYMENT, "prairie-servers")) == old
        assert await ranch.names(TEMPLATE) == [old]

        await ranch.edit(pool(replacement="replace"))
        await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: template_of(obj) != old)
        await ranch.until(CLUSTER, "prairie", lambda obj: not condition(obj, "Held"))


async def test_removed_pool_is_deleted_with_its_health_check(ranch: Ranch) -> None:
    await ranch.config("servers")
    await ranch.config("workers")
    async with ranch.running():
        await ranch.cluster(pool("servers"), pool("workers", workerRole=True, unhealthyNodeTimeout="1m"))
        await ranch.made()
        await ranch.machines(2)
        await ranch.edit(pool("servers"))
        await ranch.engine.gone(MACHINE_DEPLOYMENT.target, ranch.namespace, "prairie-workers")
        await ranch.engine.gone(MACHINE_HEALTH_CHECK.target, ranch.namespace, "prairie-workers")
        await ranch.machines(1)
        await ranch.engine.when(TEMPLATE.target, ranch.namespace, lambda objects: len(objects) == 1)


async def test_missing_references_are_all_named_and_block_creation(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.cluster(pool("servers", cloudCredentialSecretName="gold"), pool("workers", workerRole=True))
        said = await ranch.says("RKECluster", "False")
        assert f"Secret {ranch.namespace}/gold does not exist" in said["message"]
        assert f"machine pool workers: SimConfig {ranch.namespace}/workers does not exist" in said["message"]
        assert await ranch.engine.get(CAPI_CLUSTER.target, ranch.namespace, "prairie") is None
        assert (await ranch.says("Stalled", "True"))["message"] == said["message"]
        await ranch.credential("gold")
        await ranch.config("workers")
        await ranch.config("servers")
        await ranch.made()
        await ranch.machines(2)


async def test_config_owned_by_other_cluster_is_not_adopted(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        first = await ranch.cluster(pool())
        await ranch.made()
        await ranch.cluster(pool(), name="steppe")
        said = await ranch.says("RKECluster", "False", "steppe")
        assert f"SimConfig {ranch.namespace}/servers belongs to Cluster prairie" in said["message"]
        owners = (await ranch.get(CONFIG, "servers"))["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [first["metadata"]["uid"]]


async def test_changed_owned_fields_are_restored_and_foreign_fields_kept(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool(labels={"a": "b"}))
        await ranch.made()
        await ranch.engine.patch(
            MACHINE_DEPLOYMENT.target,
            ranch.namespace,
            "prairie-servers",
            {"metadata": {"labels": {"mine": "yes"}}, "spec": {"replicas": 5, "paused": True}},
        )
        found = await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: not obj["spec"].get("paused"))
        assert found["spec"]["replicas"] == 1
        assert found["metadata"]["labels"]["mine"] == "yes"
        await ranch.edit(pool())
        found = await ranch.until(
            MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "a" not in obj["metadata"]["labels"]
        )
        assert "a" not in found["spec"]["template"]["metadata"]["labels"]
        assert found["metadata"]["labels"]["mine"] == "yes"


async def test_autoscaler_replicas_are_kept_within_bounds(ranch: Ranch) -> None:
    await ranch.config()
    sizes: Json = {"autoscalingMinSize": 1, "autoscalingMaxSize": 3}
    async with ranch.running():
        await ranch.cluster(pool(**sizes))
        await ranch.made()
        assert (await ranch.get(CAPI_CLUSTER))["metadata"]["annotations"][
            "provisioning.cattle.io/cluster-autoscaler-enabled"
        ] == "true"
        scale = {"spec": {"replicas": 3}}
        await ranch.engine.patch(MACHINE_DEPLOYMENT.target, ranch.namespace, "prairie-servers", scale)
        await ranch.machines(3)
        await ranch.edit(pool(labels={"a": "b"}, **sizes))
        found = await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: "a" in obj["metadata"]["labels"])
        assert found["spec"]["replicas"] == 3
        assert found["metadata"]["annotations"][capi_names.AUTOSCALER_MAX_SIZE] == "3"
        await ranch.edit(pool(autoscalingMinSize=1, autoscalingMaxSize=2))
        await ranch.until(MACHINE_DEPLOYMENT, "prairie-servers", lambda obj: obj["spec"]["replicas"] == 2)


async def test_cluster_without_pools_creates_no_deployments(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.cluster()
        await ranch.made()
        await ranch.until(RKE_CLUSTER, "prairie", lambda obj: obj.get("status", {}).get("initialization"))
    assert await ranch.names(MACHINE_DEPLOYMENT) == []
    assert await ranch.names(RKE_BOOTSTRAP_TEMPLATE) == []


async def test_machine_of_missing_custom_host_is_deleted_after_timeout(ranch: Ranch) -> None:
    after = {"rke.cattle.io/delete-missing-custom-machines-after": "1s"}
    core = ("cluster", "machineset", "machinedeployment")  # the test plays the Machine's controller
    async with ranch.running(core=core):
        await ranch.cluster(annotations=after)
        await ranch.made()
        for name, kind in (("custom-1", "CustomMachine"), ("other", "SimMachine")):
            group = "rke.cattle.io" if kind == "CustomMachine" else "rke-machine.cattle.io"
            spec = {
                "clusterName": "prairie",
                "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": group, "kind": kind, "name": name},
            }
            metadata = {"name": name}
            obj = {"apiVersion": MACHINE.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
            await ranch.engine.create(MACHINE.target, ranch.namespace, obj)
            gone = {
                "type": "NodeHealthy",
                "status": "False",
                "reason": "NodeDeleted",
                "message": "",
                "lastTransitionTime": clock.now(),
            }
            await ranch.engine.status(MACHINE.target, ranch.namespace, name, {"conditions": [gone]})
        await ranch.engine.gone(MACHINE.target, ranch.namespace, "custom-1")
        assert await ranch.names(MACHINE) == ["other"]


async def test_user_set_pause_is_kept(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool())
        await ranch.made()
        await ranch.engine.patch(CAPI_CLUSTER.target, ranch.namespace, "prairie", {"spec": {"paused": True}})
        await ranch.edit(pool(), machineGlobalConfig={"cni": "none"})
        await ranch.made()
        assert (await ranch.get(CAPI_CLUSTER))["spec"]["paused"] is True


async def test_idle_cluster_writes_nothing(ranch: Ranch) -> None:
    await ranch.config()
    async with ranch.running():
        await ranch.cluster(pool(unhealthyNodeTimeout="5m", autoscalingMinSize=1, autoscalingMaxSize=2))
        await ranch.made()
        await ranch.machines(1)
        await ranch.settled()
        await asyncio.sleep(1.0)
        await ranch.settled()
        before = await ranch.versions()
    async with ranch.running():
        await ranch.settled()
        await asyncio.sleep(0.5)
        await ranch.settled()
        assert await ranch.versions() == before, "a manager that starts anew finds all as it shall be"
    assert await ranch.engine.list(MACHINE.target, ranch.namespace)


async def test_change_that_replaces_in_place_only_machines_is_rejected_with_names(ranch: Ranch) -> None:
    await ranch.config("servers")
    await ranch.config("others", zone="b")
    async with ranch.running():
        await ranch.cluster(pool(replacement="inPlaceOnly"))
        await ranch.made()
        (machine,) = await ranch.machines(1)
        for refused in (
            ranch.engine.patch(CONFIG.target, ranch.namespace, "servers", {"zone": "b"}),
            ranch.edit(pool(replacement="inPlaceOnly", machineConfigRef={"kind": "SimConfig", "name": "others"})),
        ):
            with pytest.raises(StatusError, match=f"would replace Machine {named(machine)}, because of zone"):
                await refused
        await ranch.edit(pool(replacement="inPlaceOnly", labels={"a": "b"}, quantity=2))
        await ranch.machines(2)
