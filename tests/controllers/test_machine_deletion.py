"""How Machines go: hooks, real evictions under real budgets, volumes, providers, the Node; from any state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.machine.workload import DAEMON_SET, NODE, POD, VOLUME_ATTACHMENT
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DRAIN_RULE
from tests.controllers.engine import Engine, condition
from tests.controllers.machine_harness import MachineHarness, evictions_answer_404, says, workload_cluster
from tests.controllers.providers import NEW

FINALIZER = "test/provider"
PRE_DRAIN = f"{names.PRE_DRAIN_HOOK}/test"
PRE_TERMINATE = f"{names.PRE_TERMINATE_HOOK}/test"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine, workload: Engine) -> MachineHarness:
    return await MachineHarness.create(engine, NEW, workload)


async def running(harness: MachineHarness, **kwargs: Any) -> None:
    """A worker in a cluster that keeps a control plane, so that its Node is worth draining."""
    await harness.cluster()
    await harness.control_plane_machine()
    await harness.running_machine(**kwargs)


async def delete(harness: MachineHarness) -> None:
    await harness.engine.delete(MACHINE.target, harness.namespace, "m")


async def gone(harness: MachineHarness) -> None:
    await harness.engine.gone(MACHINE.target, harness.namespace, "m")


async def hold(harness: MachineHarness, kind: Any) -> None:
    """The provider's finalizer: its object stays until `release`."""
    await harness.engine.patch(kind.target, harness.namespace, "m", {"metadata": {"finalizers": [FINALIZER]}})


async def release(harness: MachineHarness, kind: Any) -> None:
    await harness.engine.patch(kind.target, harness.namespace, "m", {"metadata": {"finalizers": None}})


async def annotate(harness: MachineHarness, **annotations: str | None) -> None:
    await harness.engine.patch(MACHINE.target, harness.namespace, "m", {"metadata": {"annotations": annotations}})


def stage(reason: str, text: str = "") -> Any:
    return says("Deleting", reason, text)


async def evicted(harness: MachineHarness, name: str) -> None:
    found = f"{harness.id}-{name}"
    await harness.workload.until(POD.target, "default", found, lambda pod: pod["metadata"].get("deletionTimestamp"))


async def test_machine_deletion_removes_provider_objects_and_node(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await delete(harness)
        await gone(harness)
        assert await harness.engine.get(NEW.machine.target, harness.namespace, "m") is None
        assert await harness.engine.get(NEW.config.target, harness.namespace, "m") is None
        assert await harness.find_node() is None
        assert await harness.events("SuccessfulDrainNode")


async def test_infrastructure_is_deleted_before_bootstrap_config(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await hold(harness, NEW.machine)
        await hold(harness, NEW.config)
        await delete(harness)
        place = f"NewMachine {harness.namespace}/m: being deleted by its provider since"
        machine = await harness.until(stage("WaitingForInfrastructureDeletion", place))
        assert machine["status"]["phase"] == "Deleting"
        assert "stage: WaitingForInfrastructureDeletion" in condition(machine, "Ready")["message"]
        config = await harness.engine.get(NEW.config.target, harness.namespace, "m")
        assert config is not None
        assert "deletionTimestamp" not in config["metadata"]
        said = {"conditions": [{"type": "Ready", "status": "False", "reason": "Busy", "message": "disk in use"}]}
        await harness.engine.status(NEW.machine.target, harness.namespace, "m", said)
        await harness.until(stage("WaitingForInfrastructureDeletion", "reports: disk in use"))
        await release(harness, NEW.machine)
        await harness.until(stage("WaitingForBootstrapDeletion", f"NewConfig {harness.namespace}/m"))
        assert await harness.find_node() is not None
        await release(harness, NEW.config)
        await gone(harness)
        assert await harness.find_node() is None


async def test_pre_drain_and_pre_terminate_hooks_are_awaited(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness, metadata={"annotations": {PRE_DRAIN: "", PRE_TERMINATE: ""}})
        await delete(harness)
        machine = await harness.until(stage("WaitingForPreDrainHook", PRE_DRAIN))
        assert machine["status"]["deletion"]["waitForPreDrainHookStartTime"]
        node = await harness.find_node()
        assert node is not None
        assert not node["spec"].get("unschedulable")
        await annotate(harness, **{PRE_DRAIN: None})
        machine = await harness.until(stage("WaitingForPreTerminateHook", PRE_TERMINATE))
        assert machine["status"]["deletion"]["waitForPreTerminateHookStartTime"]
        server = await harness.engine.get(NEW.machine.target, harness.namespace, "m")
        assert server is not None
        assert "deletionTimestamp" not in server["metadata"]
        await annotate(harness, **{PRE_TERMINATE: None})
        await gone(harness)


async def test_pre_terminate_hook_is_awaited_during_cluster_deletion(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness, metadata={"annotations": {PRE_DRAIN: "", PRE_TERMINATE: ""}})
        finalizer = {"metadata": {"finalizers": [FINALIZER]}}
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", finalizer)
        await harness.engine.delete(CLUSTER.target, harness.namespace, "c")
        await delete(harness)
        await harness.until(stage("WaitingForPreTerminateHook"))
        await annotate(harness, **{PRE_TERMINATE: None})
        await gone(harness)
        assert await harness.find_node() is not None, "the Node of a cluster that goes is nobody's work"
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"metadata": {"finalizers": None}})


async def test_drain_condition_names_blocking_pods_and_disruption_budget(harness: MachineHarness) -> None:
    app = {"app": harness.id}
    async with harness.running():
        await running(harness)
        await harness.pod("web", labels=app)
        await harness.pod("free")
        await harness.budget(harness.id, allowed=0)
        await delete(harness)
        machine = await harness.until(stage("DrainingNode", f"The disruption budget {harness.id} needs"))
        message = condition(machine, "Deleting")["message"]
        assert f"Pod default/{harness.id}-web: Cannot evict pod" in message
        assert "no time limit, nodeDrainTimeoutSeconds is not set" in message
        assert machine["status"]["deletion"]["nodeDrainStartTime"]
        node = await harness.find_node()
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        await evicted(harness, "free")
        assert any("disruption budget" in text for text in await harness.events("FailedDrainNode"))
        await harness.kill("free")
        await harness.until(lambda machine: "free" not in condition(machine, "Deleting")["message"])
        await harness.allow(harness.id, 1)
        await evicted(harness, "web")
        await harness.until(stage("DrainingNode", "deletionTimestamp set, but still not removed from the Node"))
        await harness.kill("web")
        await gone(harness)


async def test_blocked_drain_writes_nothing(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await harness.pod("stuck", labels={"app": harness.id})
        await harness.budget(harness.id, allowed=0)
        await delete(harness)
        machine = await harness.until(stage("DrainingNode", "disruption budget"))
        await harness.until_reconciled(times=3)
        again = await harness.until(stage("DrainingNode"))
        assert again["metadata"]["resourceVersion"] == machine["metadata"]["resourceVersion"]


async def test_drain_ends_at_node_drain_timeout(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness, deletion={"nodeDrainTimeoutSeconds": 1})
        await harness.pod("stuck", labels={"app": harness.id})
        await harness.budget(harness.id, allowed=0)
        await delete(harness)
        await harness.until(stage("DrainingNode", "nodeDrainTimeoutSeconds ends the wait at"))
        await gone(harness)
        assert (await harness.get_pod("stuck"))["metadata"].get("deletionTimestamp") is None


async def test_drain_skips_daemon_set_pods_and_excluded_pods(harness: MachineHarness) -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": harness.id},
        "spec": {
            "selector": {"matchLabels": {"d": harness.id}},
            "template": {
                "metadata": {"labels": {"d": harness.id}},
                "spec": {"containers": [{"name": "c", "image": "test"}]},
            },
        },
    }
    rule = {
        "apiVersion": MACHINE_DRAIN_RULE.api_version,
        "kind": "MachineDrainRule",
        "metadata": {"name": "spare"},
        "spec": {"drain": {"behavior": "Skip"}, "pods": [{"selector": {"matchLabels": {"spare": "me"}}}]},
    }
    async with harness.running():
        await running(harness)
        made = await harness.workload.create(DAEMON_SET.target, "default", daemon_set)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": harness.id,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        await harness.engine.create(MACHINE_DRAIN_RULE.target, harness.namespace, rule)
        await harness.pod("daemon", ownerReferences=[owner])
        await harness.pod("spared", labels={"spare": "me"})
        await harness.pod("labelled", labels={names.POD_DRAIN: "skip"})
        await harness.pod("other")
        await delete(harness)
        await evicted(harness, "other")
        await harness.kill("other")
        await gone(harness)
        for name in ("daemon", "spared", "labelled"):
            assert (await harness.get_pod(name))["metadata"].get("deletionTimestamp") is None


async def test_drain_follows_order_of_drain_rules(harness: MachineHarness) -> None:
    rule = {
        "apiVersion": MACHINE_DRAIN_RULE.api_version,
        "kind": "MachineDrainRule",
        "metadata": {"name": "last"},
        "spec": {
            "drain": {"behavior": "Drain", "order": 10},
            "pods": [{"selector": {"matchLabels": {"when": "last"}}}],
        },
    }
    async with harness.running():
        await running(harness)
        await harness.engine.create(MACHINE_DRAIN_RULE.target, harness.namespace, rule)
        await harness.pod("first")
        await harness.pod("last", labels={"when": "last"})
        await delete(harness)
        await harness.until(stage("DrainingNode", f"After these are deleted, evicts Pod default/{harness.id}-last"))
        await evicted(harness, "first")
        assert (await harness.get_pod("last"))["metadata"].get("deletionTimestamp") is None
        await harness.kill("first")
        await evicted(harness, "last")
        await harness.kill("last")
        await gone(harness)


async def test_eviction_404_counts_as_evicted(harness: MachineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers list Pods, and know no Pod when it is to be evicted: Cluster API's in-memory API server."""
    asked = evictions_answer_404(monkeypatch)
    rule = {
        "apiVersion": MACHINE_DRAIN_RULE.api_version,
        "kind": "MachineDrainRule",
        "metadata": {"name": "last"},
        "spec": {
            "drain": {"behavior": "Drain", "order": 10},
            "pods": [{"selector": {"matchLabels": {"when": "last"}}}],
        },
    }
    async with harness.running():
        await running(harness)
        await harness.engine.create(MACHINE_DRAIN_RULE.target, harness.namespace, rule)
        await harness.pod("first")
        await harness.pod("last", labels={"when": "last"})
        await delete(harness)
        await gone(harness)
    assert asked == [f"{harness.id}-first", f"{harness.id}-last"], "once, in their order"


async def test_drain_is_skipped_when_infrastructure_is_already_deleting(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await harness.pod("stays")
        await hold(harness, NEW.machine)
        await harness.engine.delete(NEW.machine.target, harness.namespace, "m")
        await harness.settled()
        await delete(harness)
        await harness.until(stage("WaitingForInfrastructureDeletion"))
        assert (await harness.get_pod("stays"))["metadata"].get("deletionTimestamp") is None
        await release(harness, NEW.machine)
        await gone(harness)


async def test_exclude_node_draining_annotation_skips_drain(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness, metadata={"annotations": {names.EXCLUDE_NODE_DRAINING: ""}})
        await harness.pod("stays")
        await delete(harness)
        await gone(harness)
        assert (await harness.get_pod("stays"))["metadata"].get("deletionTimestamp") is None


async def test_deletion_waits_for_volume_detach(harness: MachineHarness) -> None:
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": harness.id},
        "spec": {
            "attacher": "test",
            "nodeName": harness.node_name(),
            "source": {"persistentVolumeName": f"pv-{harness.id}"},
        },
    }
    async with harness.running():
        await running(harness)
        await harness.workload.create(VOLUME_ATTACHMENT.target, "", attachment)
        await delete(harness)
        machine = await harness.until(stage("WaitingForVolumeDetach", f"1 volume is still attached: pv-{harness.id}"))
        assert machine["status"]["deletion"]["waitForNodeVolumeDetachStartTime"]
        await harness.workload.delete(VOLUME_ATTACHMENT.target, "", harness.id)
        await gone(harness)
        assert await harness.events("NodeVolumesDetached")


async def test_unreachable_cluster_delays_deletion_only_until_timeouts(harness: MachineHarness) -> None:
    async with harness.running():
        limits = {"nodeDrainTimeoutSeconds": 1, "nodeVolumeDetachTimeoutSeconds": 1, "nodeDeletionTimeoutSeconds": 1}
        await running(harness, deletion=limits)
        harness.disconnect()
        await harness.disconnected()
        await delete(harness)
        await harness.until(stage("DrainingNode", "does not answer (the network is down)"))
        await harness.until(stage("DeletingNode", "nodeDeletionTimeoutSeconds ends the wait at"))
        await gone(harness)
        assert "Gave up deleting Node" in (await harness.events("FailedDeleteNode"))[0]


async def test_machine_is_deleted_after_its_cluster_is_gone(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.machine("cp", metadata={"labels": {names.CONTROL_PLANE: "", names.CONTROL_PLANE_NAME: "kept"}})
        await harness.running_machine(metadata={"labels": {names.CONTROL_PLANE_NAME: "kept"}})
        await harness.engine.delete(CLUSTER.target, harness.namespace, "c")
        await harness.engine.gone(CLUSTER.target, harness.namespace, "c")
        await delete(harness)
        await gone(harness)
        assert await harness.engine.get(NEW.machine.target, harness.namespace, "m") is None
        assert await harness.find_node() is not None, "a cluster of which nobody knows anything is not touched"


@pytest.mark.parametrize("made", ["nothing", "config", "server"])
async def test_unprovisioned_machine_is_deletable_in_any_state(harness: MachineHarness, made: str) -> None:
    async with harness.running():
        await harness.cluster()
        if made == "config":
            await harness.config()
        if made == "server":
            await harness.server()
        await harness.machine()
        await harness.until(lambda machine: names.MACHINE_FINALIZER in machine["metadata"].get("finalizers", []))
        await delete(harness)
        await gone(harness)
        assert await harness.engine.get(NEW.machine.target, harness.namespace, "m") is None
        assert await harness.engine.get(NEW.config.target, harness.namespace, "m") is None


async def test_missing_infrastructure_kind_does_not_block_deletion(harness: MachineHarness) -> None:
    odd = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": f"Gone{harness.id}Machine", "name": "m"}
    async with harness.running():
        await harness.cluster()
        await harness.machine(infrastructureRef=odd)
        await harness.until(lambda machine: names.MACHINE_FINALIZER in machine["metadata"].get("finalizers", []))
        await delete(harness)
        await gone(harness)


async def test_infrastructure_of_other_machine_is_not_deleted(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        other = await harness.machine("other")
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": "Machine",
            "name": "other",
            "uid": other["metadata"]["uid"],
            "controller": True,
        }
        await harness.server(ownerReferences=[owner])
        await harness.machine()
        await harness.until(says("InfrastructureReady", "InternalError"))
        await delete(harness)
        await gone(harness)
        server = await harness.engine.get(NEW.machine.target, harness.namespace, "m")
        assert server is not None
        assert "deletionTimestamp" not in server["metadata"]


async def test_node_of_another_server_with_the_same_name_survives(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await harness.workload.delete(NODE.target, "", harness.node_name())
        await harness.node(provider_id=harness.provider_id("reborn"))
        await harness.until(says("NodeReady", "NodeDeleted"))
        await delete(harness)
        await gone(harness)
        node = await harness.find_node()
        assert node is not None
        assert not node["spec"].get("unschedulable")


async def test_last_control_plane_machine_is_deleted_without_drain(harness: MachineHarness) -> None:
    async with harness.running():
        await harness.cluster()
        await harness.running_machine(metadata={"labels": {names.CONTROL_PLANE: ""}})
        await harness.pod("stays")
        await delete(harness)
        await gone(harness)
        assert await harness.find_node() is not None
        assert (await harness.get_pod("stays"))["metadata"].get("deletionTimestamp") is None


async def test_worker_is_drained_with_externally_managed_control_plane(harness: MachineHarness) -> None:
    kind = NEW.control_plane
    async with harness.running():
        await harness.cluster(controlPlaneRef=kind.reference("cp"))
        await harness.engine.create(kind.target, harness.namespace, kind.object("cp"))
        status = {"externalManagedControlPlane": True}
        await harness.engine.status(kind.target, harness.namespace, "cp", status)
        await harness.running_machine()
        await harness.pod("web")
        await delete(harness)
        await evicted(harness, "web")
        await harness.kill("web")
        await gone(harness)
        assert await harness.find_node() is None


async def test_pods_on_unresponsive_node_are_not_awaited(harness: MachineHarness) -> None:
    async with harness.running():
        await running(harness)
        await harness.pod("lost")
        await harness.node_status(ready="Unknown")
        await harness.until(says("NodeReady", "NodeReadyUnknown"))
        await delete(harness)
        await evicted(harness, "lost")
        await gone(harness)
        assert (await harness.get_pod("lost"))["metadata"]["deletionGracePeriodSeconds"] == 1
