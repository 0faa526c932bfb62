"""The link between a Machine and its Node: found, synced, lost, out of reach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.machine.workload import NODE
from remuda.capi.types import MACHINE
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.machine_harness import MachineHarness, phase, says, workload_cluster
from tests.controllers.providers import NEW


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine, workload: Engine) -> MachineHarness:
    return await MachineHarness.create(engine, NEW, workload)


async def node_until(harness: MachineHarness, holds: Any) -> Json:
    return await harness.workload.until(NODE.target, "", harness.node_name(), holds)


async def test_machine_labels_annotations_and_taints_are_synced_to_node(harness: MachineHarness) -> None:
    label, annotation = "node-role.kubernetes.io/gpu", "node.cluster.x-k8s.io/rack"
    taint = {"key": "gpu", "effect": "NoSchedule", "propagation": "Always"}
    uninitialized = {"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}
    async with harness.running():
        await harness.cluster()
        await harness.config()
        await harness.server()
        metadata = {"labels": {label: "yes", "app": "x"}, "annotations": {annotation: "r1"}}
        await harness.machine(metadata=metadata, taints=[taint])
        await harness.bootstrapped()
        await harness.provisioned(interruptible=True)
        await harness.node(labels={"theirs": "kept"})
        spec = {"spec": {"taints": [uninitialized]}}
        await harness.workload.patch(NODE.target, "", harness.node_name(), spec)
        node = await node_until(harness, lambda node: [one["key"] for one in node["spec"].get("taints", [])] == ["gpu"])
        assert {key: node["metadata"]["labels"].get(key) for key in (label, "theirs", names.INTERRUPTIBLE, "app")} == {
            label: "yes",
            "theirs": "kept",
            names.INTERRUPTIBLE: "",
            "app": None,
        }
        assert node["metadata"]["annotations"][annotation] == "r1"
        assert node["metadata"]["annotations"][names.NODE_MACHINE] == "m"
        changed = {"metadata": {"labels": {label: None}, "annotations": {annotation: "r2"}}, "spec": {"taints": None}}
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", changed)
        node = await node_until(harness, lambda node: label not in node["metadata"]["labels"])
        assert node["metadata"]["annotations"][annotation] == "r2"
        assert not node["spec"].get("taints")
        assert node["metadata"]["labels"]["theirs"] == "kept"


async def test_label_changed_on_node_is_restored(harness: MachineHarness) -> None:
    label = "node.cluster.x-k8s.io/pool"
    async with harness.running():
        await harness.cluster()
        await harness.running_machine(metadata={"labels": {label: "a"}})
        await node_until(harness, lambda node: node["metadata"]["labels"].get(label) == "a")
        changed = {"metadata": {"labels": {label: "b"}}}
        version = (await harness.workload.patch(NODE.target, "", harness.node_name(), changed))["metadata"][
            "resourceVersion"
        ]
        await node_until(
            harness,
            lambda node: (
                node["metadata"]["resourceVersion"] != version and node["metadata"]["labels"].get(label) == "a"
            ),
        )


async def test_machine_follows_the_health_of_its_node(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine()
        await harness.until(lambda machine: is_true(machine, "Ready"))
        await harness.node_status(ready="False")
        machine = await harness.until(says("NodeHealthy", "NodeNotHealthy", "Node.Ready"))
        assert condition(machine, "NodeReady")["reason"] == "NodeNotReady"
        assert not is_true(machine, "Available")
        await harness.settled()
        await harness.node_status(ready="True")
        await harness.until(lambda machine: is_true(machine, "Available"))


async def test_deleted_node_is_reported_and_recreated_node_is_found(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine()
        await harness.workload.delete(NODE.target, "", harness.node_name())
        await harness.until(says("NodeReady", "NodeDeleted", "while the Machine still exists"))
        await harness.settled()
        await harness.node()
        await harness.until(lambda machine: is_true(machine, "Available"))


async def test_node_wait_message_names_closest_candidate(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.config()
        await harness.server()
        await harness.machine()
        await harness.bootstrapped()
        await harness.provisioned()
        await harness.until(says("NodeHealthy", "InspectionFailed", f"providerID {harness.provider_id('m')} to exist"))
        await harness.settled()
        await harness.node(provider_id="")
        await harness.until(says("NodeHealthy", "InspectionFailed", f"{harness.node_name()} (spec.providerID not set)"))
        await harness.settled()
        identity = {"spec": {"providerID": harness.provider_id("m")}}
        await harness.workload.patch(NODE.target, "", harness.node_name(), identity)
        await harness.until(phase("Running"))


async def test_duplicate_provider_id_on_two_nodes_is_an_error(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.node("twin", provider_id=harness.provider_id("m"))
        await harness.node("m")
        await harness.server()
        await harness.machine(bootstrap={"dataSecretName": "given"})
        await harness.provisioned()
        machine = await harness.until(says("NodeHealthy", "InternalError", "several Nodes"))
        assert "nodeRef" not in machine["status"]


async def test_short_cluster_outage_leaves_machine_status_unchanged(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine()
        before = await harness.until(lambda machine: is_true(machine, "Available"))
        harness.disconnect()
        await harness.disconnected()
        label = {"metadata": {"labels": {"touched": "yes"}}}
        await harness.engine.patch(MACHINE.target, harness.namespace, "m", label)
        await harness.settled()
        after = await harness.until(lambda machine: machine["metadata"]["labels"].get("touched"))
        assert after["status"] == before["status"]


async def test_missing_connection_is_reported_as_connection_down(harness: MachineHarness) -> None:
    harness.disconnect()
    async with harness.running():
        await harness.cluster()
        await harness.server()
        await harness.machine(bootstrap={"dataSecretName": "given"})
        await harness.provisioned()
        await harness.until(says("NodeHealthy", "ConnectionDown"))
        await harness.settled()
        await harness.node()
        harness.reconnect()
        await harness.until(phase("Running"))
