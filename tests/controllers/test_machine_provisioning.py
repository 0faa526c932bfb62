"""A Machine from nothing to Available, its hand-offs under both contracts, and who owns what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.machine.scope import Options
from remuda.capi.machine.workload import NODE
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.client import Target
from remuda.kube.objects import Key, Kind
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.machines import Bench, phase, says, workload_cluster
from tests.controllers.providers import NEW, OLD, PROVIDERS, Provider


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine, workload: Engine) -> Bench:
    return await Bench.create(engine, NEW, workload)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.contract)
async def test_machine_becomes_available_through_all_phases(
    engine: Engine, workload: Engine, provider: Provider
) -> None:
    bench = await Bench.create(engine, provider, workload)
    async with bench.running() as manager:
        await bench.cluster()
        await bench.config()
        await bench.server()
        await bench.machine()
        machine = await bench.until(phase("Pending"))
        assert names.MACHINE_FINALIZER in machine["metadata"]["finalizers"]
        assert condition(machine, "InfrastructureReady")["reason"] == "NotReady"

        await bench.bootstrapped()
        machine = await bench.until(phase("Provisioning"))
        assert machine["spec"]["bootstrap"]["dataSecretName"] == "m-data"

        address = {"type": "InternalIP", "address": "10.0.0.1"}
        await bench.provisioned(addresses=[address], failureDomain="zone-b")
        machine = await bench.until(phase("Provisioned"))
        assert machine["spec"]["providerID"] == bench.provider_id("m")
        assert machine["status"]["addresses"] == [address]
        assert machine["status"]["failureDomain"] == "zone-b"
        assert "failureDomain" not in machine["spec"]

        await bench.node()
        machine = await bench.until(lambda machine: is_true(machine, "Available"))
        assert machine["status"]["phase"] == "Running"
        assert machine["status"]["nodeRef"] == {"name": bench.node_name()}
        assert machine["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0"
        assert machine["status"]["observedGeneration"] == machine["metadata"]["generation"]
        assert all(one["status"] == "True" for one in machine["status"]["conditions"][:2])
        assert manager.ledger.writes_of(_key(bench)) <= 8


def _key(bench: Bench, name: str = "m") -> Key:
    return Key(bench.namespace, name)


async def test_available_machine_causes_no_writes(bench: Bench) -> None:
    async with bench.running() as manager:
        await bench.cluster()
        await bench.running_machine()
        before = await bench.until(lambda machine: is_true(machine, "Available"))
        await bench.settled()
        writes, reconciles = manager.ledger.writes, manager.ledger.reconciles
        manager.controllers["machine"].enqueue(_key(bench))
        await bench.settled()
        assert manager.ledger.reconciles > reconciles
        assert manager.ledger.writes == writes
        after = await bench.until(phase("Running"))
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_standalone_machine_is_owned_by_its_cluster(bench: Bench) -> None:
    async with bench.running():
        cluster = await bench.cluster()
        await bench.machine()
        machine = await bench.until(phase("Pending"))
        assert machine["metadata"]["labels"][names.CLUSTER_NAME] == "c"
        (owner,) = machine["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Cluster", cluster["metadata"]["uid"])
        assert not owner.get("controller")


async def test_provider_objects_created_by_machine_set_are_adopted(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        machine_set = await make_set(bench)
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
        theirs = await bench.engine.create(Target("v1", "configmaps"), bench.namespace, config_map)
        await bench.server(ownerReferences=[owner(machine_set), owner({**config_map, **theirs})])
        machine = await bench.machine()
        taken = await bench.engine.until(
            NEW.machine.target,
            bench.namespace,
            "m",
            lambda found: names.CLUSTER_NAME in found["metadata"].get("labels", {}),
        )
        owners = {owner["uid"]: owner.get("controller", False) for owner in taken["metadata"]["ownerReferences"]}
        assert owners == {theirs["metadata"]["uid"]: False, machine["metadata"]["uid"]: True}


async def test_infrastructure_of_other_machine_is_not_adopted(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        other = await bench.machine("other")
        await bench.server(ownerReferences=[{**owner(other), "controller": True}])
        await bench.provisioned()
        await bench.machine()
        machine = await bench.until(says("InfrastructureReady", "InternalError", "is controlled by Machine other"))
        assert "providerID" not in machine["spec"]
        assert "observedGeneration" not in machine["status"]


async def test_supplied_bootstrap_data_secret_is_accepted(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine(bootstrap={"dataSecretName": "by-hand"})
        machine = await bench.until(phase("Provisioning"))
        assert condition(machine, "BootstrapConfigReady")["reason"] == "DataSecretProvided"


async def test_moved_machine_without_status_becomes_available(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.config()
        await bench.server()
        await bench.bootstrapped()
        await bench.provisioned()
        await bench.node()
        reference = {"configRef": NEW.config.reference("m"), "dataSecretName": "m-data"}
        await bench.machine(bootstrap=reference, providerID=bench.provider_id("m"))
        await bench.until(lambda machine: is_true(machine, "Available"))


async def test_provisioned_flag_without_required_fields_is_contract_error(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.config()
        await bench.server()
        await bench.machine()
        await bench.engine.status(
            NEW.config.target, bench.namespace, "m", {"initialization": {"dataSecretCreated": True}}
        )
        await bench.engine.status(NEW.machine.target, bench.namespace, "m", NEW.provisioned)
        machine = await bench.until(says("BootstrapConfigReady", "InternalError", "status.dataSecretName"))
        assert "providerID" not in machine["spec"]
        await bench.bootstrapped()
        await bench.provisioned()
        await bench.until(phase("Provisioned"))


async def test_vanished_infrastructure_is_reported_and_not_recreated(bench: Bench) -> None:
    async with bench.running() as manager:
        await bench.cluster()
        await bench.running_machine()
        await bench.engine.delete(NEW.machine.target, bench.namespace, "m")
        machine = await bench.until(says("InfrastructureReady", "ObjectDeleted", "while the Machine still exists"))
        assert machine["spec"]["providerID"] == bench.provider_id("m")
        assert await bench.engine.get(NEW.machine.target, bench.namespace, "m") is None
        await bench.settled()
        wait = manager.controllers["machine"].waits[_key(bench)].blocked
        assert (wait.reason, wait.on) == ("InfrastructureDeleted", f"NewMachine {bench.namespace}/m")


async def test_provisioned_machine_stays_provisioned(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine()
        flag = {
            "initialization": {"provisioned": False},
            "conditions": [{"type": "Ready", "status": "False", "reason": "Odd"}],
        }
        await bench.engine.status(NEW.machine.target, bench.namespace, "m", flag)
        machine = await bench.until(says("InfrastructureReady", "Odd"))
        assert machine["status"]["initialization"]["infrastructureProvisioned"] is True
        assert machine["status"]["phase"] == "Running"


async def test_provider_failure_domain_is_copied_to_machine_spec(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.server(spec={"failureDomain": "zone-c"})
        await bench.machine()
        await bench.provisioned()
        machine = await bench.until(lambda machine: machine["spec"].get("providerID"))
        assert machine["spec"]["failureDomain"] == "zone-c"


async def test_missing_infrastructure_kind_is_reported_until_installed(bench: Bench) -> None:
    missing = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": f"Odd{bench.id}Machine", "name": "m"}
    async with bench.running():
        await bench.cluster()
        await bench.machine(infrastructureRef=missing)
        await bench.until(says("InfrastructureReady", "InternalError", "there is no CustomResourceDefinition"))
        kind = NEW.machine._replace(name=missing["kind"])
        await bench.engine.install([kind.definition()])
        await bench.engine.create(kind.target, bench.namespace, kind.object("m"))
        await bench.until(says("InfrastructureReady", "NotReady"))


async def test_a_machine_waits_for_its_cluster(bench: Bench) -> None:
    async with bench.running() as manager:
        await bench.machine()
        await bench.until(says("NodeHealthy", "InspectionFailed", "Waiting for Cluster c to exist"))
        await bench.settled()
        assert manager.controllers["machine"].waits[_key(bench)].blocked.on == f"Cluster {bench.namespace}/c"
        await bench.cluster(ready=False)
        await bench.until(says("NodeHealthy", "InspectionFailed", "infrastructureProvisioned"))
        await bench.settled()
        await bench.initialize()
        await bench.until(says("NodeHealthy", "InspectionFailed", "to report spec.providerID"))


async def test_paused_machine_is_not_reconciled(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster(paused=True)
        await bench.server()
        await bench.machine()
        machine = await bench.until(lambda machine: is_true(machine, "Paused"))
        assert [one["type"] for one in machine["status"]["conditions"]] == ["Paused"]
        assert "finalizers" not in machine["metadata"]
        await bench.engine.patch(CLUSTER.target, bench.namespace, "c", {"spec": {"paused": False}})
        machine = await bench.until(phase("Pending"))
        assert condition(machine, "Paused")["status"] == "False"


async def test_v1beta1_provider_status_and_failure_are_reported(engine: Engine, workload: Engine) -> None:
    bench = await Bench.create(engine, OLD, workload)
    async with bench.running():
        await bench.cluster()
        await bench.config()
        await bench.server()
        await bench.machine()
        await bench.until(says("InfrastructureReady", "NotReady", "OldMachine status.ready is false"))
        failure = {"failureReason": "CreateError", "failureMessage": "no quota"}
        await bench.engine.status(OLD.machine.target, bench.namespace, "m", failure)
        machine = await bench.until(lambda machine: machine["status"].get("deprecated"))
        assert machine["status"]["deprecated"]["v1beta1"] == {
            "failureReason": "CreateError",
            "failureMessage": f"OldMachine {bench.namespace}/m: no quota",
        }
        assert machine["status"]["phase"] == "Pending"


async def test_deleting_infrastructure_is_not_adopted_again(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine()
        hold = {"metadata": {"finalizers": ["test/provider"]}}
        await bench.engine.patch(NEW.machine.target, bench.namespace, "m", hold)
        await bench.engine.delete(NEW.machine.target, bench.namespace, "m")
        strip = {"metadata": {"labels": None, "ownerReferences": None}}
        going = await bench.engine.patch(NEW.machine.target, bench.namespace, "m", strip)
        ready = {"conditions": [{"type": "Ready", "status": "False", "reason": "Deleting", "message": "going"}]}
        await bench.engine.status(NEW.machine.target, bench.namespace, "m", ready)
        await bench.until(says("InfrastructureReady", "Deleting", "going"))
        server = await bench.engine.get(NEW.machine.target, bench.namespace, "m")
        assert server is not None
        assert server["metadata"].get("ownerReferences") == going["metadata"].get("ownerReferences")
        await bench.engine.patch(NEW.machine.target, bench.namespace, "m", {"metadata": {"finalizers": None}})
        await bench.until(says("InfrastructureReady", "ObjectDeleted"))


async def test_short_lived_states_are_not_written_but_lasting_ones_are(bench: Bench) -> None:
    async with bench.running(Options()) as manager:
        await bench.cluster()
        owners = [{**owner(await make_set(bench)), "controller": True}]
        labels = {names.CLUSTER_NAME: "c"}
        metadata = {"ownerReferences": owners, "labels": labels, "finalizers": [names.MACHINE_FINALIZER]}
        for name in ("m", "slow"):
            made = await bench.machine(name, metadata=metadata)
            mine = {
                "labels": labels,
                "ownerReferences": [{**owner(made), "controller": True, "blockOwnerDeletion": True}],
            }
            await bench.config(name, **mine)
            await bench.server(name, **mine)
            await bench.bootstrapped(name)
        await bench.node()
        await bench.provisioned()
        await bench.until(lambda machine: is_true(machine, "Available"))
        assert manager.ledger.writes_of(_key(bench)) <= 3
        await bench.until(phase("Provisioning"), "slow")


async def test_certificate_expiry_annotation_is_copied_to_status(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.config(annotations={names.CERTIFICATES_EXPIRY: "2027-01-01T00:00:00Z"})
        await bench.machine()
        await bench.until(
            lambda machine: machine.get("status", {}).get("certificatesExpiryDate") == "2027-01-01T00:00:00Z"
        )
        annotated = {"metadata": {"annotations": {names.CERTIFICATES_EXPIRY: "2026-06-01T02:00:00+02:00"}}}
        await bench.engine.patch(MACHINE.target, bench.namespace, "m", annotated)
        await bench.until(lambda machine: machine["status"].get("certificatesExpiryDate") == "2026-06-01T00:00:00Z")
        annotated["metadata"]["annotations"][names.CERTIFICATES_EXPIRY] = "soon"
        await bench.engine.patch(MACHINE.target, bench.namespace, "m", annotated)
        await bench.until(lambda machine: "certificatesExpiryDate" not in machine["status"])
        assert "soon" in (await bench.events("InvalidCertificatesExpiry"))[0]


async def test_min_ready_seconds_delay_available(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine(minReadySeconds=1)
        machine = await bench.until(lambda machine: is_true(machine, "Available"))
        ready = condition(machine, "Ready")["lastTransitionTime"]
        assert condition(machine, "Available")["lastTransitionTime"] > ready


async def test_up_to_date_condition_compares_machine_with_deployment(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        deployment = await make_deployment(bench)
        machine_set = await make_set(bench, owner(deployment))
        owners = [{**owner(machine_set), "controller": True}]
        await bench.running_machine(metadata={"ownerReferences": owners, "labels": {"pool": "a"}}, version="v1.35.0")
        await bench.until(lambda machine: is_true(machine, "UpToDate"))
        await bench.settled()
        changed = {
            "metadata": {"annotations": {names.REVISION: "2"}},
            "spec": {"template": {"spec": {"version": "v1.36.0"}}},
        }
        await bench.engine.patch(MACHINE_DEPLOYMENT.target, bench.namespace, "md", changed)
        await bench.until(says("UpToDate", "NotUpToDate", "v1.36.0 required"))
        await bench.workload.until(
            NODE.target, "", bench.node_name(), lambda node: names.OUTDATED_REVISION_TAINT in str(node["spec"])
        )
        await bench.settled()
        back = {
            "spec": {"template": {"spec": {"version": "v1.36.0"}}},
            "metadata": {"annotations": {names.REVISION: "2"}},
        }
        await bench.engine.patch(MACHINE_SET.target, bench.namespace, "ms", back)
        await bench.until(lambda machine: is_true(machine, "UpToDate"))


async def make_deployment(bench: Bench) -> Json:
    return await _make(bench, MACHINE_DEPLOYMENT, "md")


async def make_set(bench: Bench, owner: Json | None = None) -> Json:
    return await _make(bench, MACHINE_SET, "ms", ownerReferences=[{**owner, "controller": True}] if owner else [])


async def _make(bench: Bench, kind: Kind[Any], name: str, **metadata: Any) -> Json:
    template = {
        "spec": {
            "clusterName": "c",
            "version": "v1.35.0",
            "bootstrap": {"dataSecretName": "given"},
            "infrastructureRef": NEW.machine.template.reference("t"),
        },
        "metadata": {"labels": {"pool": "a"}},
    }
    spec = {"clusterName": "c", "replicas": 1, "selector": {"matchLabels": {"pool": "a"}}, "template": template}
    meta = {"name": name, "annotations": {names.REVISION: "1"}, **metadata}
    obj = {"apiVersion": names.API_VERSION, "kind": kind.name, "metadata": meta, "spec": spec}
    return await bench.engine.create(kind.target, bench.namespace, obj)


def owner(obj: Json) -> Json:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }
