"""The simulated provider under both contracts: what it waits for, leaves alone, spreads, reports and survives."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
import yaml

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_HEALTH_CHECK
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.errors import StatusError, Unreachable
from remuda.kube.objects import Kind
from remuda.lab.simulator import nodes
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import FAMILIES, NEW, OLD, Family
from remuda.lab.simulator.types import MachineScript, Script, SimulatedClusterSpec
from remuda.lab.simulator.world import World, simulate

EITHER = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)
SECRETS = Target("v1", "secrets")
DOMAINS = [{"name": name, "controlPlane": name != "d"} for name in "abcd"]


async def read(world: World, family: Family, kind: Kind[Any], name: str) -> ProviderObject:
    return ProviderObject(await world.client.get(kind.target, "default", name), kind.target, family.contract)


async def patch(world: World, kind: Kind[Any], name: str, change: dict[str, Any]) -> None:
    await world.client.patch(kind.target, "default", name, change)


async def secret(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await world.client.get(SECRETS, "default", name))
    return found


@EITHER
def test_every_provider_object_reports_contract_status(family: Family) -> None:
    async def scenario(world: World) -> None:
        infrastructure = msgspec.convert({"failureDomains": DOMAINS}, SimulatedClusterSpec)
        await world.create_cluster(Blueprint(name="c", infrastructure=infrastructure, family=family))
        await world.available("c")
        await world.quiet()
        cluster = await read(world, family, family.cluster, "c")
        assert contract.provisioned(cluster)
        assert contract.endpoint(cluster) == await world.workloads.endpoint(world.cluster_key("c"))
        assert [domain["name"] for domain in contract.failure_domains(cluster)] == list("abcd")
        [machine] = world.machines("c")
        server = await read(world, family, family.machine, machine.metadata.name)
        [host] = await world.cloud.hosts()
        assert contract.provisioned(server)
        assert contract.provider_id(server) == host.provider_id == machine.spec.provider_id
        assert {"type": "InternalIP", "address": host.address} in contract.addresses(server)
        placed = contract.chosen_failure_domain(server) if family.old else contract.failure_domain(server)
        assert placed == host.failure_domain == "a"
        bootstrap = await read(world, family, family.bootstrap, machine.metadata.name)
        assert contract.data_secret_created(bootstrap)
        assert contract.data_secret_name(bootstrap) == machine.spec.bootstrap.data_secret_name
        control_plane = await read(world, family, family.control_plane, "c")
        assert contract.initialized(control_plane)
        assert contract.counts(control_plane) == (1, 1, 1, 1, 1)
        assert [running.version for running in contract.running_versions(control_plane)] == ["v1.36.0"]
        for obj, type in ((cluster, "Ready"), (server, "Ready"), (bootstrap, "Ready"), (control_plane, "Available")):
            found = contract.condition(obj, type)
            assert found is not None
            assert found.status == "True"

    simulate(scenario)


def test_bootstrap_and_kubeconfig_secrets_follow_cluster_api_conventions() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c"))
        await world.available("c")
        [machine] = world.machines("c")
        data = await secret(world, machine.metadata.name)
        assert data["metadata"]["ownerReferences"][0]["kind"] == "SimulatedBootstrap"
        access = await secret(world, "c-kubeconfig")
        assert access["metadata"]["ownerReferences"][0]["kind"] == "SimulatedControlPlane"
        for one in (data, access):
            assert one["type"] == names.SECRET_TYPE
            assert one["metadata"]["labels"] == {names.CLUSTER_NAME: "c"}
        config = yaml.safe_load(base64.b64decode(access["data"]["value"]))
        assert config["clusters"][0]["name"] == "c"

    simulate(scenario)


@EITHER
def test_control_plane_can_supply_the_endpoint(family: Family) -> None:
    async def scenario(world: World) -> None:
        spec = SimulatedClusterSpec(without_endpoint=True)
        await world.create_cluster(Blueprint(name="c", infrastructure=spec, family=family))
        await world.available("c")
        cluster = world.cluster("c")
        assert cluster is not None
        assert cluster.spec.control_plane_endpoint == await world.workloads.endpoint(world.cluster_key("c"))
        assert not contract.endpoint(await read(world, family, family.cluster, "c")).valid

    simulate(scenario)


def test_control_planes_are_spread_over_failure_domains() -> None:
    async def scenario(world: World) -> None:
        infrastructure = msgspec.convert({"failureDomains": DOMAINS}, SimulatedClusterSpec)
        await world.create_cluster(Blueprint(name="c", control_planes=3, infrastructure=infrastructure))
        await world.available("c")
        assert sorted(host.failure_domain for host in await world.cloud.hosts()) == ["a", "b", "c"]

    simulate(scenario)


@EITHER
def test_paused_cluster_is_not_scaled_until_resumed(family: Family) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=1, family=family))
        await world.available("c")
        await patch(world, CLUSTER, "c", {"spec": {"paused": True}})
        await patch(world, family.control_plane, "c", {"spec": {"replicas": 3}})
        await world.quiet()
        assert len(await world.cloud.hosts()) == 2
        paused = contract.condition(await read(world, family, family.control_plane, "c"), "Paused")
        assert paused is not None
        assert paused.status == "True"
        await patch(world, CLUSTER, "c", {"spec": {"paused": False}})
        await world.until(lambda: len(world.machines("c")) == 4, "three control planes")
        await world.available("c")
        assert await world.broken() == []

    simulate(scenario)


def test_paused_server_is_not_removed_until_resumed() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=1))
        await world.available("c")
        [worker] = [machine for machine in world.machines("c") if not machine.is_control_plane]
        name = worker.metadata.name
        await patch(world, NEW.machine, name, {"metadata": {"annotations": {names.PAUSED: ""}}})
        await world.client.delete(MACHINE.target, "default", name)
        await world.quiet()
        assert name in [host.name for host in await world.cloud.hosts()]
        await patch(world, NEW.machine, name, {"metadata": {"annotations": {names.PAUSED: None}}})
        await world.until(lambda: world.machine(name) is None, "the Machine is gone")
        assert name not in [host.name for host in await world.cloud.hosts()]

    simulate(scenario)


def test_externally_managed_infrastructure_is_not_reconciled() -> None:
    async def scenario(world: World) -> None:
        items = Blueprint(name="c").objects()
        items[0].obj["metadata"]["annotations"] = {names.EXTERNALLY_MANAGED: "somebody"}
        for target, obj in items:
            await world.client.create(target, "default", obj)
        await world.quiet()
        found = await read(world, NEW, NEW.cluster, "c")
        assert not contract.provisioned(found)
        assert not found.metadata.finalizers
        done = {"spec": {"controlPlaneEndpoint": {"host": "elsewhere", "port": 6443}}}
        await patch(world, NEW.cluster, "c", done)
        status = {"status": {"initialization": {"provisioned": True}}}
        await world.client.patch(NEW.cluster.target, "default", "c", status, subresource="status")
        await world.available("c")

    simulate(scenario)


@pytest.mark.parametrize(
    ("blueprint", "waits"),
    [
        (Blueprint(name="c", infrastructure=SimulatedClusterSpec(script=Script(never=True))), "never provisioned"),
        (Blueprint(name="c", bootstrap=Script(never=True)), "data is never made"),
        (Blueprint(name="c", machines=MachineScript(bootstrap_fails=True)), "never becomes a Node"),
    ],
    ids=["infrastructure", "bootstrap", "node"],
)
def test_scripted_never_is_reported_as_wait_reason(blueprint: Blueprint, waits: str) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(blueprint)
        await world.quiet()
        assert waits in world.waits()
        await world.delete_cluster("c")
        assert await world.cloud.hosts() == []

    simulate(scenario)


def test_scripted_delays_and_failures_postpone_availability() -> None:
    async def scenario(world: World) -> None:
        slow = Script(seconds=100, failures=2)
        blueprint = Blueprint(name="c", infrastructure=SimulatedClusterSpec(script=slow), bootstrap=slow)
        await world.create_cluster(blueprint)
        await world.available("c")
        assert 200 < asyncio.get_running_loop().time() < 230

    simulate(scenario)


def test_refused_server_is_reported_in_machine_condition() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", machines=MachineScript(refusals=1000)))

        def said() -> bool:
            return any(
                "no capacity" in condition.message
                for machine in world.machines("c")
                for condition in machine.status.conditions
                if condition.type == "InfrastructureReady"
            )

        await world.until(said, "the Machine says why its server is not there")

    simulate(scenario)


def test_cluster_deletion_removes_servers_that_are_still_booting() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=1, machines=MachineScript(boot_seconds=300)))
        await world.until(lambda: len(world.cloud.journal) == 1, "the first server is made")
        await world.delete_cluster("c")
        assert await world.cloud.hosts() == []
        assert await world.broken() == []

    simulate(scenario)


def test_deleted_control_plane_machine_leaves_etcd_and_is_replaced() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3))
        await world.available("c")
        gone = world.machines("c")[0].metadata.name
        await world.client.delete(MACHINE.target, "default", gone)
        await world.until(lambda: world.machine(gone) is None, "it is gone")
        await world.available("c")
        etcd = world.workloads.etcd(world.cluster_key("c"))
        assert gone not in etcd.members
        assert len(etcd.voters) == 3
        assert await world.broken() == []

    simulate(scenario)


def test_control_plane_scale_up_waits_for_etcd_catch_up() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3))
        await world.available("c")
        await world.quiet()
        assert asyncio.get_running_loop().time() > 20
        assert await world.broken() == []

    simulate(scenario, catch_up_seconds=10)


def health_check(family: Family, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": MACHINE_HEALTH_CHECK.api_version,
        "kind": "MachineHealthCheck",
        "metadata": {"name": "check", "namespace": "default"},
        "spec": {
            "clusterName": "c",
            "selector": {"matchExpressions": [{"key": names.CONTROL_PLANE, "operator": "DoesNotExist"}]},
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 60}]},
            **more,
        },
    }


@pytest.mark.parametrize(
    "script",
    [MachineScript(node_fails_after_seconds=600), MachineScript(node_vanishes_after_seconds=600)],
    ids=["fails", "vanishes"],
)
def test_machine_with_failing_node_is_replaced(script: MachineScript) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=1, worker_machines=script))
        await world.available("c")
        [worker] = [machine for machine in world.machines("c") if not machine.is_control_plane]
        await world.client.create(MACHINE_HEALTH_CHECK.target, "default", health_check(NEW))
        await world.until(lambda: world.machine(worker.metadata.name) is None, "the sick Machine is gone")
        await world.available("c")
        assert await world.broken() == []

    simulate(scenario)


def test_external_remediation_revives_unhealthy_node() -> None:
    async def scenario(world: World) -> None:
        script = MachineScript(node_fails_after_seconds=600)
        await world.create_cluster(Blueprint(name="c", workers=1, worker_machines=script))
        await world.available("c")
        template = NEW.remediation_template
        obj = {"apiVersion": template.api_version, "kind": template.name, "metadata": {"name": "restart"}}
        await world.client.create(template.target, "default", obj | {"spec": {"template": {"spec": {}}}})
        reference = {"apiVersion": template.api_version, "kind": template.name, "name": "restart"}
        check = health_check(NEW, remediation={"templateRef": reference})
        await world.client.create(MACHINE_HEALTH_CHECK.target, "default", check)
        [worker] = [machine for machine in world.machines("c") if not machine.is_control_plane]
        await world.until(lambda: any("simulatedremediations" in line for line in world.history), "a remediation")
        await world.quiet()
        await world.available("c")
        assert world.machine(worker.metadata.name) is not None
        with pytest.raises(StatusError, match="not found"):
            await world.client.get(NEW.remediation.target, "default", worker.metadata.name)

    simulate(scenario)


def test_cluster_can_mix_providers_of_both_contracts() -> None:
    async def scenario(world: World) -> None:
        new, old = Blueprint(name="c", workers=1).objects(), Blueprint(name="c", workers=1, family=OLD).objects()
        mixed = [old[0], old[1], new[2], new[3], old[4], new[5], new[6]]
        reference = mixed[2].obj["spec"]["machineTemplate"]["spec"]["infrastructureRef"]
        reference["apiGroup"] = OLD.group
        mixed[3].obj["spec"]["infrastructureRef"]["apiGroup"] = OLD.group
        mixed[6].obj["spec"]["template"]["spec"]["infrastructureRef"]["apiGroup"] = OLD.group
        for target, obj in mixed:
            await world.client.create(target, "default", obj)
        await world.available("c")
        assert len((await world.client.list(OLD.machine.target)).items) == 2
        assert len((await world.client.list(NEW.bootstrap.target)).items) == 2
        await world.delete_cluster("c")
        assert await world.cloud.hosts() == []
        assert await world.broken() == []

    simulate(scenario)


def test_unhealthy_control_plane_machine_is_replaced_without_quorum_loss() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", control_planes=3))
        await world.available("c")
        check = health_check(NEW, selector={"matchLabels": {names.CONTROL_PLANE: ""}})
        await world.client.create(MACHINE_HEALTH_CHECK.target, "default", check)
        sick = world.machines("c")[0].metadata.name
        workload = world.workloads.find(world.cluster_key("c"))
        assert workload is not None
        await nodes.fail(workload, sick)
        world.workloads.etcd(world.cluster_key("c")).fail(sick)
        await world.until(lambda: world.machine(sick) is None, "the sick Machine is gone")
        await world.available("c")
        assert len(world.workloads.etcd(world.cluster_key("c")).voters) == 3
        assert await world.broken() == []

    simulate(scenario)


def test_only_control_plane_machine_is_never_remediated() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c"))
        await world.available("c")
        check = health_check(NEW, selector={"matchLabels": {names.CONTROL_PLANE: ""}})
        await world.client.create(MACHINE_HEALTH_CHECK.target, "default", check)
        [sick] = world.machines("c")
        workload = world.workloads.find(world.cluster_key("c"))
        assert workload is not None
        await nodes.fail(workload, sick.metadata.name)
        await asyncio.sleep(3600)
        assert world.machine(sick.metadata.name) is not None

    simulate(scenario)


def test_missing_machine_template_delays_server_creation() -> None:
    async def scenario(world: World) -> None:
        blueprint = Blueprint(name="c")
        items = blueprint.objects()
        template = items.pop(1)
        for target, obj in items:
            await world.client.create(target, "default", obj)
        await world.quiet()
        assert len(world.machines("c")) == 1
        assert await world.cloud.hosts() == []
        await world.client.create(template.target, "default", template.obj)
        await world.available("c")
        assert len(world.machines("c")) == 1

    simulate(scenario)


@EITHER
def test_failed_status_write_is_retried(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        client, lost = world.manager.client, []
        write = client.patch

        async def fail_first(target: Target, namespace: str, name: str, *rest: Any, **more: Any) -> bytes:
            if target == family.machine.target and more.get("subresource") == "status" and not lost:
                lost.append(name)
                raise Unreachable("the server has gone", sent=False)
            return await write(target, namespace, name, *rest, **more)

        monkeypatch.setattr(client, "patch", fail_first)
        await world.create_cluster(Blueprint(name="c", family=family))
        await world.available("c")
        assert lost == [world.machines("c")[0].metadata.name]

    simulate(scenario)


def test_deleted_server_object_is_not_recreated() -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", workers=1))
        await world.available("c")
        [worker] = [machine for machine in world.machines("c") if not machine.is_control_plane]
        await world.client.delete(NEW.machine.target, "default", worker.metadata.name)
        await world.quiet()
        assert [host.name for host in await world.cloud.hosts()] != [worker.metadata.name]
        assert [entry.event for entry in world.cloud.journal].count("create") == 2

    simulate(scenario)


@EITHER
def test_template_metadata_propagates_to_machine_and_referenced_objects(family: Family) -> None:
    async def scenario(world: World) -> None:
        items = Blueprint(name="c", family=family).objects()
        metadata = {"labels": {"team": "blue"}, "annotations": {"note": "hello"}}
        items[2].obj["spec"]["machineTemplate"]["metadata"] = metadata
        for target, obj in items:
            await world.client.create(target, "default", obj)
        await world.available("c")
        [machine] = world.machines("c")
        kinds = (MACHINE, family.machine, family.bootstrap)
        found = [await read(world, family, kind, machine.metadata.name) for kind in kinds]
        assert {obj.metadata.labels["team"] for obj in found} == {"blue"}
        assert {obj.metadata.annotations["note"] for obj in found} == {"hello"}

    simulate(scenario)


@EITHER
def test_rollout_after_starts_rollout_at_its_time(family: Family) -> None:
    async def scenario(world: World) -> None:
        await world.create_cluster(Blueprint(name="c", family=family))
        await world.available("c")
        [first] = world.machines("c")
        hour = clock.rfc3339(clock.time() + 7200)
        await patch(world, family.control_plane, "c", {"spec": {"rolloutAfter": hour, "rollout": {"after": hour}}})
        await asyncio.sleep(7100)
        assert [machine.metadata.name for machine in world.machines("c")] == [first.metadata.name]
        await asyncio.sleep(200)
        assert first.metadata.name not in [machine.metadata.name for machine in world.machines("c")]
        await world.available("c")
        await world.quiet()
        assert len(await world.cloud.hosts()) == 1

    simulate(scenario)
