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
from tests.controllers.machines import Bench, phase, says, workload_cluster
from tests.controllers.providers import NEW


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine, workload: Engine) -> Bench:
    return await Bench.create(engine, NEW, workload)


async def node_until(bench: Bench, holds: Any) -> Json:
    return await bench.workload.until(NODE.target, "", bench.node_name(), holds)


async def test_machine_labels_annotations_and_taints_are_synced_to_node(bench: Bench) -> None:
    label, annotation = "node-role.kubernetes.io/gpu", "node.cluster.x-k8s.io/rack"
    taint = {"key": "gpu", "effect": "NoSchedule", "propagation": "Always"}
    uninitialized = {"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}
    async with bench.running():
        await bench.cluster()
        await bench.config()
        await bench.server()
        metadata = {"labels": {label: "yes", "app": "x"}, "annotations": {annotation: "r1"}}
        await bench.machine(metadata=metadata, taints=[taint])
        await bench.bootstrapped()
        await bench.provisioned(interruptible=True)
        await bench.node(labels={"theirs": "kept"})
        spec = {"spec": {"taints": [uninitialized]}}
        await bench.workload.patch(NODE.target, "", bench.node_name(), spec)
        node = await node_until(bench, lambda node: [one["key"] for one in node["spec"].get("taints", [])] == ["gpu"])
        assert {key: node["metadata"]["labels"].get(key) for key in (label, "theirs", names.INTERRUPTIBLE, "app")} == {
            label: "yes",
            "theirs": "kept",
            names.INTERRUPTIBLE: "",
            "app": None,
        }
        assert node["metadata"]["annotations"][annotation] == "r1"
        assert node["metadata"]["annotations"][names.NODE_MACHINE] == "m"
        changed = {"metadata": {"labels": {label: None}, "annotations": {annotation: "r2"}}, "spec": {"taints": None}}
        await bench.engine.patch(MACHINE.target, bench.namespace, "m", changed)
        node = await node_until(bench, lambda node: label not in node["metadata"]["labels"])
        assert node["metadata"]["annotations"][annotation] == "r2"
        assert not node["spec"].get("taints")
        assert node["metadata"]["labels"]["theirs"] == "kept"


async def test_label_changed_on_node_is_restored(bench: Bench) -> None:
    label = "node.cluster.x-k8s.io/pool"
    async with bench.running():
        await bench.cluster()
        await bench.running_machine(metadata={"labels": {label: "a"}})
        await node_until(bench, lambda node: node["metadata"]["labels"].get(label) == "a")
        changed = {"metadata": {"labels": {label: "b"}}}
        version = (await bench.workload.patch(NODE.target, "", bench.node_name(), changed))["metadata"][
            "resourceVersion"
        ]
        await node_until(
            bench,
            lambda node: (
                node["metadata"]["resourceVersion"] != version and node["metadata"]["labels"].get(label) == "a"
            ),
        )


async def test_the_machine_follows_the_health_of_its_node(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine()
        await bench.until(lambda machine: is_true(machine, "Ready"))
        await bench.node_status(ready="False")
        machine = await bench.until(says("NodeHealthy", "NodeNotHealthy", "Node.Ready"))
        assert condition(machine, "NodeReady")["reason"] == "NodeNotReady"
        assert not is_true(machine, "Available")
        await bench.settled()
        await bench.node_status(ready="True")
        await bench.until(lambda machine: is_true(machine, "Available"))


async def test_deleted_node_is_reported_and_recreated_node_is_found(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine()
        await bench.workload.delete(NODE.target, "", bench.node_name())
        await bench.until(says("NodeReady", "NodeDeleted", "while the Machine still exists"))
        await bench.settled()
        await bench.node()
        await bench.until(lambda machine: is_true(machine, "Available"))


async def test_node_wait_message_names_closest_candidate(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.config()
        await bench.server()
        await bench.machine()
        await bench.bootstrapped()
        await bench.provisioned()
        await bench.until(says("NodeHealthy", "InspectionFailed", f"providerID {bench.provider_id('m')} to exist"))
        await bench.settled()
        await bench.node(provider_id="")
        await bench.until(says("NodeHealthy", "InspectionFailed", f"{bench.node_name()} (spec.providerID not set)"))
        await bench.settled()
        identity = {"spec": {"providerID": bench.provider_id("m")}}
        await bench.workload.patch(NODE.target, "", bench.node_name(), identity)
        await bench.until(phase("Running"))


async def test_duplicate_provider_id_on_two_nodes_is_an_error(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.node("twin", provider_id=bench.provider_id("m"))
        await bench.node("m")
        await bench.server()
        await bench.machine(bootstrap={"dataSecretName": "given"})
        await bench.provisioned()
        machine = await bench.until(says("NodeHealthy", "InternalError", "several Nodes"))
        assert "nodeRef" not in machine["status"]


async def test_short_cluster_outage_leaves_machine_status_unchanged(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine()
        before = await bench.until(lambda machine: is_true(machine, "Available"))
        bench.cut()
        await bench.disconnected()
        label = {"metadata": {"labels": {"touched": "yes"}}}
        await bench.engine.patch(MACHINE.target, bench.namespace, "m", label)
        await bench.settled()
        after = await bench.until(lambda machine: machine["metadata"]["labels"].get("touched"))
        assert after["status"] == before["status"]


async def test_missing_connection_is_reported_as_connection_down(bench: Bench) -> None:
    bench.cut()
    async with bench.running():
        await bench.cluster()
        await bench.server()
        await bench.machine(bootstrap={"dataSecretName": "given"})
        await bench.provisioned()
        await bench.until(says("NodeHealthy", "ConnectionDown"))
        await bench.settled()
        await bench.node()
        bench.mend()
        await bench.until(phase("Running"))
