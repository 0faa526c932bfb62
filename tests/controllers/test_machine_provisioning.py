"""A Machine from nothing to Available, its hand-offs under both contracts, and who owns what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.machine.scope import MachineOptions
from remuda.capi.machine.workload import NODE
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.client import Target
from remuda.kube.objects import Key, Kind
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.machine_harness import MachineHarness, phase, says, workload_cluster
from tests.controllers.providers import NEW, OLD, PROVIDERS, Provider


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine, workload: Engine) -> MachineHarness:
    return await MachineHarness.create(engine, NEW, workload)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.contract)
async def test_machine_becomes_available_through_all_phases(
    engine: Engine, workload: Engine, provider: Provider
) -> None:
    harness = await MachineHarness.create(engine, provider, workload)
    async with harness.running() as manager:
        await harness.cluster()
        await harness.config()
        await harness.server()
        await harness.machine()
        machine = await harness.until(phase("Pending"))
        assert names.MACHINE_FINALIZER in machine["metadata"]["finalizers"]
        assert condition(machine, "InfrastructureReady")["reason"] == "NotReady"

        await harness.bootstrapped()
        machine = await harness.until(phase("Provisioning"))
        assert machine["spec"]["bootstrap"]["dataSecretName"] == "m-data"

        address = {"type": "InternalIP", "address": "10.0.0.1"}
        await harness.provisioned(addresses=[address], failureDomain="zone-b")
        machine = await harness.until(phase("Provisioned"))
        assert machine["spec"]["providerID"] == harness.provider_id("m")
        assert machine["status"]["addresses"] == [address]
        assert machine["status"]["failureDomain"] == "zone-b"
        assert "failureDomain" not in machine["spec"]

        await harness.node()
        machine = await harness.until(lambda machine: is_true(machine, "Available"))
        assert machine["status"]["phase"] == "Running"
        assert machine["status"]["nodeRef"] == {"name": harness.node_name()}
        assert machine["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0"
        assert machine["status"]["observedGeneration"] == machine["metadata"]["generation"]
        assert all(one["status"] == "True" for one in machine["status"]["conditions"][:2])
        assert manager.ledger.writes_of(_key(harness)) <= 8


def _key(harness: MachineHarness, name: str = "m") -> Key:
    return Key(harness.namespace, name)


async def test_available_machine_causes_no_writes(harness: MachineHarness) -> None:
    async with harness.running() as manager:
        await harness.cluster()
        await harness.running_machine()
        before = await harness.until(lambda machine: is_true(machine, "Available"))
        await harness.settled()
        writes, reconciles = manager.ledger.writes, manager.ledger.reconciles
        manager.controllers["machine"].enqueue(_key(harness))
        await harness.settled()
        assert manager.ledger.reconciles > reconciles
        assert manager.ledger.writes == writes
        after = await harness.until(phase("Running"))
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_standalone_machine_is_owned_by_its_cluster(harness: MachineHarness) -> None:
    async with harness.running():
        cluster = await harness.cluster()
        await harness.machine()
        machine = await harness.until(phase("Pending"))
        assert machine["metadata"]["labels"][names.CLUSTER_NAME] == "c"
        (owner,) = machine["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Cluster", cluster["metadata"]["uid"])
        assert not owner.get("controller")


async def test_provider_objects_created_by_machine_set_are_adopted(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        machine_set = await make_set(harness)
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
        theirs = await harness.engine.create(Target("v1", "configmaps"), harness.namespace, config_map)
        await harness.server(ownerReferences=[owner(machine_set), owner({**config_map, **theirs})])
        machine = await harness.machine()
        taken = await harness.engine.until(
            NEW.machine.target,
            harness.namespace,
            "m",
            lambda found: names.CLUSTER_NAME in found["metadata"].get("labels", {}),
        )
        owners = {owner["uid"]: owner.get("controller", False) for owner in taken["metadata"]["ownerReferences"]}
        assert owners == {theirs["metadata"]["uid"]: False, machine["metadata"]["uid"]: True}


async def test_infrastructure_of_other_machine_is_not_adopted(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        other = await harness.machine("other")
        await harness.server(ownerReferences=[{**owner(other), "controller": True}])
        await harness.provisioned()
        await harness.machine()
        machine = await harness.until(says("InfrastructureReady", "InternalError", "is controlled by Machine other"))
        assert "providerID" not in machine["spec"]
        assert "observedGeneration" not in machine["status"]


async def test_supplied_bootstrap_data_secret_is_accepted(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine(bootstrap={"dataSecretName": "by-hand"})
        machine = await harness.until(phase("Provisioning"))
        assert condition(machine, "BootstrapConfigReady")["reason"] == "DataSecretProvided"


async def test_moved_machine_without_status_becomes_available(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.config()
        await harness.server()
        await harness.bootstrapped()
        await harness.provisioned()
        await harness.node()
        reference = {"configRef": NEW.config.reference("m"), "dataSecretName": "m-data"}
        await harness.machine(bootstrap=reference, providerID=harness.provider_id("m"))
        await harness.until(lambda machine: is_true(machine, "Available"))


async def test_provisioned_flag_without_required_fields_is_contract_error(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.config()
        await harness.server()
        await harness.machine()
        await harness.engine.status(
            NEW.config.target, harness.namespace, "m", {"initialization": {"dataSecretCreated": True}}
        )
        await harness.engine.status(NEW.machine.target, harness.namespace, "m", NEW.provisioned)
        machine = await harness.until(says("BootstrapConfigReady", "InternalError", "status.dataSecretName"))
        assert "providerID" not in machine["spec"]
        await harness.bootstrapped()
        await harness.provisioned()
        await harness.until(phase("Provisioned"))


async def test_vanished_infrastructure_is_reported_and_not_recreated(harness: MachineHarness) -> None:
    async with harness.running() as manager:
        await harness.cluster()
        await harness.running_machine()
        await harness.engine.delete(NEW.machine.target, harness.namespace, "m")
        machine = await harness.until(says("InfrastructureReady", "ObjectDeleted", "while the Machine still exists"))
        assert machine["spec"]["providerID"] == harness.provider_id("m")
        assert await harness.engine.get(NEW.machine.target, harness.namespace, "m") is None
        await harness.settled()
        wait = manager.controllers["machine"].waits[_key(harness)].blocked
        assert (wait.reason, wait.on) == ("InfrastructureDeleted", f"NewMachine {harness.namespace}/m")


async def test_provisioned_machine_stays_provisioned(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine()
        flag = {
            "initialization": {"provisioned": False},
            "conditions": [{"type": "Ready", "status": "False", "reason": "Odd"}],
        }
        await harness.engine.status(NEW.machine.target, harness.namespace, "m", flag)
        machine = await harness.until(says("InfrastructureReady", "Odd"))
        assert machine["status"]["initialization"]["infrastructureProvisioned"] is True
        assert machine["status"]["phase"] == "Running"


async def test_provider_failure_domain_is_copied_to_machine_spec(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.server(spec={"failureDomain": "zone-c"})
        await harness.machine()
        await harness.provisioned()
        machine = await harness.until(lambda machine: machine["spec"].get("providerID"))
        assert machine["spec"]["failureDomain"] == "zone-c"


async def test_missing_infrastructure_kind_is_reported_until_installed(harness: MachineHarness) -> None:
    missing = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": f"Odd{harness.id}Machine", "name": "m"}
    async with harness.running():
        await harness.cluster()
        await harness.machine(infrastructureRef=missing)
        await harness.until(says("InfrastructureReady", "InternalError", "there is no CustomResourceDefinition"))
        kind = NEW.machine._replace(name=missing["kind"])
        await harness.engine.install([kind.definition()])
        await harness.engine.create(kind.target, harness.namespace, kind.object("m"))
        await harness.until(says("InfrastructureReady", "NotReady"))


async def test_machine_waits_for_its_cluster(harness: MachineHarness) -> None:
    async with harness.running() as manager:
        await harness.machine()
        await harness.until(says("NodeHealthy", "InspectionFailed", "Waiting for Cluster c to exist"))
        await harness.settled()
        assert manager.controllers["machine"].waits[_key(harness)].blocked.on == f"Cluster {harness.namespace}/c"
        await harness.cluster(ready=False)
        await harness.until(says("NodeHealthy", "InspectionFailed", "infrastructureProvisioned"))
        await harness.settled()
        await harness.initialize()
        await harness.until(says("NodeHealthy", "InspectionFailed", "to report spec.providerID"))


async def test_paused_machine_is_not_reconciled(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster(paused=True)
        await harness.server()
        await harness.machine()
        machine = await harness.until(lambda machine: is_true(machine, "Paused"))
        assert [one["type"] for one in machine["status"]["conditions"]] == ["Paused"]
        assert "finalizers" not in machine["metadata"]
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"spec": {"paused": False}})
        machine = await harness.until(phase("Pending"))
        assert condition(machine, "Paused")["status"] == "False"


async def test_v1beta1_provider_status_and_failure_are_reported(engine: Engine, workload: Engine) -> None:
    harness = await MachineHarness.create(engine, OLD, workload)
    async with harness.running():
        await harness.cluster()
        await harness.config()
        await harness.server()
        await harness.machine()
        await harness.until(says("InfrastructureReady", "NotReady", "OldMachine status.ready is false"))
        failure = {"failureReason": "CreateError", "failureMessage": "no quota"}
        await harness.engine.status(OLD.machine.target, harness.namespace, "m", failure)
        machine = await harness.until(lambda machine: machine["status"].get("deprecated"))
        assert machine["status"]["deprecated"]["v1beta1"] == {
            "failureReason": "CreateError",
            "failureMessage": f"OldMachine {harness.namespace}/m: no quota",
        }
        assert machine["status"]["phase"] == "Pending"


async def test_deleting_infrastructure_is_not_adopted_again(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine()
        hold = {"metadata": {"finalizers": ["test/provider"]}}
        await harness.engine.patch(NEW.machine.target, harness.namespace, "m", hold)
        await harness.engine.delete(NEW.machine.target, harness.namespace, "m")
        strip = {"metadata": {"labels": None, "ownerReferences": None}}
        going = await harness.engine.patch(NEW.machine.target, harness.namespace, "m", strip)
        ready = {"conditions": [{"type": "Ready", "status": "False", "reason": "Deleting", "message": "going"}]}
        await harness.engine.status(NEW.machine.target, harness.namespace, "m", ready)
        await harness.until(says("InfrastructureReady", "Deleting", "going"))
        server = await harness.engine.get(NEW.machine.target, harness.namespace, "m")
        assert server is not None
        assert server["metadata"].get("ownerReferences") == going["metadata"].get("ownerReferences")
        await harness.engine.patch(NEW.machine.target, harness.namespace, "m", {"metadata": {"finalizers": None}})
        await harness.until(says("InfrastructureReady", "ObjectDeleted"))


async def test_short_lived_states_are_not_written_but_lasting_ones_are(harness: MachineHarness) -> None:
    async with harness.running(MachineOptions()) as manager:
        await harness.cluster()
        owners = [{**owner(await make_set(harness)), "controller": True}]
        labels = {names.CLUSTER_NAME: "c"}
        metadata = {"ownerReferences": owners, "labels": labels, "finalizers": [names.MACHINE_FINALIZER]}
        for name in ("m", "slow"):
            made = await harness.machine(name, metadata=metadata)
            mine = {
                "labels": labels,
                "ownerReferences": [{**owner(made), "controller": True, "blockOwnerDeletion": True}],
            }
            await harness.config(name, **mine)
            await harness.server(name, **mine)
            await harness.bootstrapped(name)
        await harness.node()
        await harness.provisioned()
        await harness.until(lambda machine: is_true(machine, "Available"))
        assert manager.ledger.writes_of(_key(harness)) <= 3
        await harness.until(phase("Provisioning"), "slow")


async def test_certificate_expiry_annotation_is_copied_to_status(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.config(annotations={names.CERTIFICATES_EXPIRY: "2027-01-01T00:00:00Z"})
        await harness.machine()
        await harness.until(
            lambda machine: machine.get("status", {}).get("certificatesExpiryDate") == "2027-01-01T00:00:00Z"
        )
        annotated = {"metadata": {"annotations": {names.CERTIFICATES_EXPIRY: "2026-06-01T02:00:00+02:00"}}}
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", annotated)
        await harness.until(lambda machine: machine["status"].get("certificatesExpiryDate") == "2026-06-01T00:00:00Z")
        annotated["metadata"]["annotations"][names.CERTIFICATES_EXPIRY] = "soon"
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", annotated)
        await harness.until(lambda machine: "certificatesExpiryDate" not in machine["status"])
        assert "soon" in (await harness.events("InvalidCertificatesExpiry"))[0]


async def test_min_ready_seconds_delay_available(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine(minReadySeconds=1)
        machine = await harness.until(lambda machine: is_true(machine, "Available"))
        ready = condition(machine, "Ready")["lastTransitionTime"]
        assert condition(machine, "Available")["lastTransitionTime"] > ready


async def test_up_to_date_condition_compares_machine_with_deployment(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        deployment = await make_deployment(harness)
        machine_set = await make_set(harness, owner(deployment))
        owners = [{**owner(machine_set), "controller": True}]
        await harness.running_machine(metadata={"ownerReferences": owners, "labels": {"pool": "a"}}, version="v1.35.0")
        await harness.until(lambda machine: is_true(machine, "UpToDate"))
        await harness.settled()
        changed = {
            "metadata": {"annotations": {names.REVISION: "2"}},
            "spec": {"template": {"spec": {"version": "v1.36.0"}}},
        }
        await harness.engine.patch(MACHINE_DEPLOYMENT.target, harness.namespace, "md", changed)
        await harness.until(says("UpToDate", "NotUpToDate", "v1.36.0 required"))
        await harness.workload.until(
            NODE.target, "", harness.node_name(), lambda node: names.OUTDATED_REVISION_TAINT in str(node["spec"])
        )
        await harness.settled()
        back = {
            "spec": {"template": {"spec": {"version": "v1.36.0"}}},
            "metadata": {"annotations": {names.REVISION: "2"}},
        }
        await harness.engine.patch(MACHINE_SET.target, harness.namespace, "ms", back)
        await harness.until(lambda machine: is_true(machine, "UpToDate"))


async def make_deployment(harness: MachineHarness) -> Json:
    return await _make(harness, MACHINE_DEPLOYMENT, "md")


async def make_set(harness: MachineHarness, owner: Json | None = None) -> Json:
    return await _make(harness, MACHINE_SET, "ms", ownerReferences=[{**owner, "controller": True}] if owner else [])


async def _make(harness: MachineHarness, kind: Kind[Any], name: str, **metadata: Any) -> Json:
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
    return await harness.engine.create(kind.target, harness.namespace, obj)


def owner(obj: Json) -> Json:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }
