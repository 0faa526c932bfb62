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
from tests.controllers.machines import Bench, evictions_answer_404, says, workload_cluster
from tests.controllers.providers import NEW

FINALIZER = "test/provider"
PRE_DRAIN = f"{names.PRE_DRAIN_HOOK}/test"
PRE_TERMINATE = f"{names.PRE_TERMINATE_HOOK}/test"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workload(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def bench(engine: Engine, workload: Engine) -> Bench:
    return await Bench.create(engine, NEW, workload)


async def running(bench: Bench, **kwargs: Any) -> None:
    """A worker in a cluster that keeps a control plane, so that its Node is worth draining."""
    await bench.cluster()
    await bench.control_plane_machine()
    await bench.running_machine(**kwargs)


async def delete(bench: Bench) -> None:
    await bench.engine.delete(MACHINE.target, bench.namespace, "m")


async def gone(bench: Bench) -> None:
    await bench.engine.gone(MACHINE.target, bench.namespace, "m")


async def hold(bench: Bench, kind: Any) -> None:
    """The provider's finalizer: its object stays until `release`."""
    await bench.engine.patch(kind.target, bench.namespace, "m", {"metadata": {"finalizers": [FINALIZER]}})


async def release(bench: Bench, kind: Any) -> None:
    await bench.engine.patch(kind.target, bench.namespace, "m", {"metadata": {"finalizers": None}})


async def annotate(bench: Bench, **annotations: str | None) -> None:
    await bench.engine.patch(MACHINE.target, bench.namespace, "m", {"metadata": {"annotations": annotations}})


def stage(reason: str, text: str = "") -> Any:
    return says("Deleting", reason, text)


async def evicted(bench: Bench, name: str) -> None:
    found = f"{bench.id}-{name}"
    await bench.workload.until(POD.target, "default", found, lambda pod: pod["metadata"].get("deletionTimestamp"))


async def test_machine_deletion_removes_provider_objects_and_node(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await delete(bench)
        await gone(bench)
        assert await bench.engine.get(NEW.machine.target, bench.namespace, "m") is None
        assert await bench.engine.get(NEW.config.target, bench.namespace, "m") is None
        assert await bench.find_node() is None
        assert await bench.events("SuccessfulDrainNode")


async def test_infrastructure_is_deleted_before_bootstrap_config(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await hold(bench, NEW.machine)
        await hold(bench, NEW.config)
        await delete(bench)
        place = f"NewMachine {bench.namespace}/m: being deleted by its provider since"
        machine = await bench.until(stage("WaitingForInfrastructureDeletion", place))
        assert machine["status"]["phase"] == "Deleting"
        assert "stage: WaitingForInfrastructureDeletion" in condition(machine, "Ready")["message"]
        config = await bench.engine.get(NEW.config.target, bench.namespace, "m")
        assert config is not None
        assert "deletionTimestamp" not in config["metadata"]
        said = {"conditions": [{"type": "Ready", "status": "False", "reason": "Busy", "message": "disk in use"}]}
        await bench.engine.status(NEW.machine.target, bench.namespace, "m", said)
        await bench.until(stage("WaitingForInfrastructureDeletion", "reports: disk in use"))
        await release(bench, NEW.machine)
        await bench.until(stage("WaitingForBootstrapDeletion", f"NewConfig {bench.namespace}/m"))
        assert await bench.find_node() is not None
        await release(bench, NEW.config)
        await gone(bench)
        assert await bench.find_node() is None


async def test_pre_drain_and_pre_terminate_hooks_are_awaited(bench: Bench) -> None:
    async with bench.running():
        await running(bench, metadata={"annotations": {PRE_DRAIN: "", PRE_TERMINATE: ""}})
        await delete(bench)
        machine = await bench.until(stage("WaitingForPreDrainHook", PRE_DRAIN))
        assert machine["status"]["deletion"]["waitForPreDrainHookStartTime"]
        node = await bench.find_node()
        assert node is not None
        assert not node["spec"].get("unschedulable")
        await annotate(bench, **{PRE_DRAIN: None})
        machine = await bench.until(stage("WaitingForPreTerminateHook", PRE_TERMINATE))
        assert machine["status"]["deletion"]["waitForPreTerminateHookStartTime"]
        server = await bench.engine.get(NEW.machine.target, bench.namespace, "m")
        assert server is not None
        assert "deletionTimestamp" not in server["metadata"]
        await annotate(bench, **{PRE_TERMINATE: None})
        await gone(bench)


async def test_pre_terminate_hook_is_awaited_during_cluster_deletion(bench: Bench) -> None:
    async with bench.running():
        await running(bench, metadata={"annotations": {PRE_DRAIN: "", PRE_TERMINATE: ""}})
        finalizer = {"metadata": {"finalizers": [FINALIZER]}}
        await bench.engine.patch(CLUSTER.target, bench.namespace, "c", finalizer)
        await bench.engine.delete(CLUSTER.target, bench.namespace, "c")
        await delete(bench)
        await bench.until(stage("WaitingForPreTerminateHook"))
        await annotate(bench, **{PRE_TERMINATE: None})
        await gone(bench)
        assert await bench.find_node() is not None, "the Node of a cluster that goes is nobody's work"
        await bench.engine.patch(CLUSTER.target, bench.namespace, "c", {"metadata": {"finalizers": None}})


async def test_drain_condition_names_blocking_pods_and_disruption_budget(bench: Bench) -> None:
    app = {"app": bench.id}
    async with bench.running():
        await running(bench)
        await bench.pod("web", labels=app)
        await bench.pod("free")
        await bench.budget(bench.id, allowed=0)
        await delete(bench)
        machine = await bench.until(stage("DrainingNode", f"The disruption budget {bench.id} needs"))
        message = condition(machine, "Deleting")["message"]
        assert f"Pod default/{bench.id}-web: Cannot evict pod" in message
        assert "no time limit, nodeDrainTimeoutSeconds is not set" in message
        assert machine["status"]["deletion"]["nodeDrainStartTime"]
        node = await bench.find_node()
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        await evicted(bench, "free")
        assert any("disruption budget" in text for text in await bench.events("FailedDrainNode"))
        await bench.kill("free")
        await bench.until(lambda machine: "free" not in condition(machine, "Deleting")["message"])
        await bench.allow(bench.id, 1)
        await evicted(bench, "web")
        await bench.until(stage("DrainingNode", "deletionTimestamp set, but still not removed from the Node"))
        await bench.kill("web")
        await gone(bench)


async def test_blocked_drain_writes_nothing(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await bench.pod("stuck", labels={"app": bench.id})
        await bench.budget(bench.id, allowed=0)
        await delete(bench)
        machine = await bench.until(stage("DrainingNode", "disruption budget"))
        await bench.looked(times=3)
        again = await bench.until(stage("DrainingNode"))
        assert again["metadata"]["resourceVersion"] == machine["metadata"]["resourceVersion"]


async def test_drain_ends_at_node_drain_timeout(bench: Bench) -> None:
    async with bench.running():
        await running(bench, deletion={"nodeDrainTimeoutSeconds": 1})
        await bench.pod("stuck", labels={"app": bench.id})
        await bench.budget(bench.id, allowed=0)
        await delete(bench)
        await bench.until(stage("DrainingNode", "nodeDrainTimeoutSeconds ends the wait at"))
        await gone(bench)
        assert (await bench.get_pod("stuck"))["metadata"].get("deletionTimestamp") is None


async def test_drain_skips_daemon_set_pods_and_excluded_pods(bench: Bench) -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": bench.id},
        "spec": {
            "selector": {"matchLabels": {"d": bench.id}},
            "template": {
                "metadata": {"labels": {"d": bench.id}},
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
    async with bench.running():
        await running(bench)
        made = await bench.workload.create(DAEMON_SET.target, "default", daemon_set)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": bench.id,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        await bench.engine.create(MACHINE_DRAIN_RULE.target, bench.namespace, rule)
        await bench.pod("daemon", ownerReferences=[owner])
        await bench.pod("spared", labels={"spare": "me"})
        await bench.pod("labelled", labels={names.POD_DRAIN: "skip"})
        await bench.pod("other")
        await delete(bench)
        await evicted(bench, "other")
        await bench.kill("other")
        await gone(bench)
        for name in ("daemon", "spared", "labelled"):
            assert (await bench.get_pod(name))["metadata"].get("deletionTimestamp") is None


async def test_drain_follows_order_of_drain_rules(bench: Bench) -> None:
    rule = {
        "apiVersion": MACHINE_DRAIN_RULE.api_version,
        "kind": "MachineDrainRule",
        "metadata": {"name": "last"},
        "spec": {
            "drain": {"behavior": "Drain", "order": 10},
            "pods": [{"selector": {"matchLabels": {"when": "last"}}}],
        },
    }
    async with bench.running():
        await running(bench)
        await bench.engine.create(MACHINE_DRAIN_RULE.target, bench.namespace, rule)
        await bench.pod("first")
        await bench.pod("last", labels={"when": "last"})
        await delete(bench)
        await bench.until(stage("DrainingNode", f"After these are deleted, evicts Pod default/{bench.id}-last"))
        await evicted(bench, "first")
        assert (await bench.get_pod("last"))["metadata"].get("deletionTimestamp") is None
        await bench.kill("first")
        await evicted(bench, "last")
        await bench.kill("last")
        await gone(bench)


async def test_eviction_404_counts_as_evicted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
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
    async with bench.running():
        await running(bench)
        await bench.engine.create(MACHINE_DRAIN_RULE.target, bench.namespace, rule)
        await bench.pod("first")
        await bench.pod("last", labels={"when": "last"})
        await delete(bench)
        await gone(bench)
    assert asked == [f"{bench.id}-first", f"{bench.id}-last"], "once, in their order"


async def test_drain_is_skipped_when_infrastructure_is_already_deleting(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await bench.pod("stays")
        await hold(bench, NEW.machine)
        await bench.engine.delete(NEW.machine.target, bench.namespace, "m")
        await bench.settled()
        await delete(bench)
        await bench.until(stage("WaitingForInfrastructureDeletion"))
        assert (await bench.get_pod("stays"))["metadata"].get("deletionTimestamp") is None
        await release(bench, NEW.machine)
        await gone(bench)


async def test_exclude_node_draining_annotation_skips_drain(bench: Bench) -> None:
    async with bench.running():
        await running(bench, metadata={"annotations": {names.EXCLUDE_NODE_DRAINING: ""}})
        await bench.pod("stays")
        await delete(bench)
        await gone(bench)
        assert (await bench.get_pod("stays"))["metadata"].get("deletionTimestamp") is None


async def test_deletion_waits_for_volume_detach(bench: Bench) -> None:
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": bench.id},
        "spec": {
            "attacher": "test",
            "nodeName": bench.node_name(),
            "source": {"persistentVolumeName": f"pv-{bench.id}"},
        },
    }
    async with bench.running():
        await running(bench)
        await bench.workload.create(VOLUME_ATTACHMENT.target, "", attachment)
        await delete(bench)
        machine = await bench.until(stage("WaitingForVolumeDetach", f"1 volume is still attached: pv-{bench.id}"))
        assert machine["status"]["deletion"]["waitForNodeVolumeDetachStartTime"]
        await bench.workload.delete(VOLUME_ATTACHMENT.target, "", bench.id)
        await gone(bench)
        assert await bench.events("NodeVolumesDetached")


async def test_unreachable_cluster_delays_deletion_only_until_timeouts(bench: Bench) -> None:
    async with bench.running():
        limits = {"nodeDrainTimeoutSeconds": 1, "nodeVolumeDetachTimeoutSeconds": 1, "nodeDeletionTimeoutSeconds": 1}
        await running(bench, deletion=limits)
        bench.cut()
        await bench.disconnected()
        await delete(bench)
        await bench.until(stage("DrainingNode", "does not answer (the network is down)"))
        await bench.until(stage("DeletingNode", "nodeDeletionTimeoutSeconds ends the wait at"))
        await gone(bench)
        assert "Gave up deleting Node" in (await bench.events("FailedDeleteNode"))[0]


async def test_machine_is_deleted_after_its_cluster_is_gone(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.machine("cp", metadata={"labels": {names.CONTROL_PLANE: "", names.CONTROL_PLANE_NAME: "kept"}})
        await bench.running_machine(metadata={"labels": {names.CONTROL_PLANE_NAME: "kept"}})
        await bench.engine.delete(CLUSTER.target, bench.namespace, "c")
        await bench.engine.gone(CLUSTER.target, bench.namespace, "c")
        await delete(bench)
        await gone(bench)
        assert await bench.engine.get(NEW.machine.target, bench.namespace, "m") is None
        assert await bench.find_node() is not None, "a cluster of which nobody knows anything is not touched"


@pytest.mark.parametrize("made", ["nothing", "config", "server"])
async def test_unprovisioned_machine_is_deletable_in_any_state(bench: Bench, made: str) -> None:
    async with bench.running():
        await bench.cluster()
        if made == "config":
            await bench.config()
        if made == "server":
            await bench.server()
        await bench.machine()
        await bench.until(lambda machine: names.MACHINE_FINALIZER in machine["metadata"].get("finalizers", []))
        await delete(bench)
        await gone(bench)
        assert await bench.engine.get(NEW.machine.target, bench.namespace, "m") is None
        assert await bench.engine.get(NEW.config.target, bench.namespace, "m") is None


async def test_missing_infrastructure_kind_does_not_block_deletion(bench: Bench) -> None:
    odd = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": f"Gone{bench.id}Machine", "name": "m"}
    async with bench.running():
        await bench.cluster()
        await bench.machine(infrastructureRef=odd)
        await bench.until(lambda machine: names.MACHINE_FINALIZER in machine["metadata"].get("finalizers", []))
        await delete(bench)
        await gone(bench)


async def test_infrastructure_of_other_machine_is_not_deleted(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        other = await bench.machine("other")
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": "Machine",
            "name": "other",
            "uid": other["metadata"]["uid"],
            "controller": True,
        }
        await bench.server(ownerReferences=[owner])
        await bench.machine()
        await bench.until(says("InfrastructureReady", "InternalError"))
        await delete(bench)
        await gone(bench)
        server = await bench.engine.get(NEW.machine.target, bench.namespace, "m")
        assert server is not None
        assert "deletionTimestamp" not in server["metadata"]


async def test_a_node_of_another_server_with_the_same_name_survives(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await bench.workload.delete(NODE.target, "", bench.node_name())
        await bench.node(provider_id=bench.provider_id("reborn"))
        await bench.until(says("NodeReady", "NodeDeleted"))
        await delete(bench)
        await gone(bench)
        node = await bench.find_node()
        assert node is not None
        assert not node["spec"].get("unschedulable")


async def test_last_control_plane_machine_is_deleted_without_drain(bench: Bench) -> None:
    async with bench.running():
        await bench.cluster()
        await bench.running_machine(metadata={"labels": {names.CONTROL_PLANE: ""}})
        await bench.pod("stays")
        await delete(bench)
        await gone(bench)
        assert await bench.find_node() is not None
        assert (await bench.get_pod("stays"))["metadata"].get("deletionTimestamp") is None


async def test_worker_is_drained_with_externally_managed_control_plane(bench: Bench) -> None:
    kind = NEW.control_plane
    async with bench.running():
        await bench.cluster(controlPlaneRef=kind.reference("cp"))
        await bench.engine.create(kind.target, bench.namespace, kind.object("cp"))
        status = {"externalManagedControlPlane": True}
        await bench.engine.status(kind.target, bench.namespace, "cp", status)
        await bench.running_machine()
        await bench.pod("web")
        await delete(bench)
        await evicted(bench, "web")
        await bench.kill("web")
        await gone(bench)
        assert await bench.find_node() is None


async def test_pods_on_unresponsive_node_are_not_awaited(bench: Bench) -> None:
    async with bench.running():
        await running(bench)
        await bench.pod("lost")
        await bench.node_status(ready="Unknown")
        await bench.until(says("NodeReady", "NodeReadyUnknown"))
        await delete(bench)
        await evicted(bench, "lost")
        await gone(bench)
        assert (await bench.get_pod("lost"))["metadata"]["deletionGracePeriodSeconds"] == 1
