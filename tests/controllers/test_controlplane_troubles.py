"""The control plane controller where something is missing, fails or goes: it is told, and nothing is broken by it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from remuda.capi.machine.workload import NODE, POD
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import SECRETS
from remuda.providers.controlplane.hosts import HOOK
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from tests.controllers.bootstrap_harness import TEST_MACHINE
from tests.controllers.certificates import authority
from tests.controllers.control_plane_harness import VERSION, WORKER, ControlPlaneHarness
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.machine_harness import evictions_answer_404, workload_cluster

K3S = "etcd.k3s.cattle.io"


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ControlPlaneHarness:
    return await ControlPlaneHarness.create(engine)


@pytest_asyncio.fixture(loop_scope="session")
async def connected_harness(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlaneHarness]:
    """Return a harness with a workload cluster: an API server of its own."""
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as workload:
        yield await ControlPlaneHarness.create(engine, workload)


def waits(text: str, reason: str = "") -> object:
    return lambda obj: (
        text in condition(obj, "Ready").get("message", "")
        and (not reason or condition(obj, "Ready").get("reason") == reason)
    )


# what is missing


async def test_failed_plan_is_reported_and_superseded_by_new_config(connected_harness: ControlPlaneHarness) -> None:
    harness = connected_harness
    async with harness.running():
        harness.hosts.failing["w1"] = "no space left on device"
        await harness.cluster_with_hosts(("s1",), ("w1",))
        for name in ("s1", "w1"):
            await harness.node(name)
        machine = await harness.until_machine("w1", lambda obj: condition(obj, "PlanApplied").get("status") == "False")
        assert "no space left on device" in condition(machine, "PlanApplied")["message"]
        await harness.until_control_plane(waits("no space left on device"))
        await harness.until_control_plane(lambda obj: is_true(obj, "Available"))
        harness.hosts.failing.clear()
        changed = await harness.change(machineGlobalConfig={"debug": True})
        await harness.ready(changed["metadata"]["generation"])
        await harness.until_machine("w1", lambda obj: is_true(obj, "PlanApplied") and is_true(obj, "Reconciled"))


async def test_paused_cluster_gets_no_plan(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        before = await harness.plans()
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"spec": {"paused": True}})
        await harness.until_control_plane(lambda obj: is_true(obj, "Paused"))
        changed = await harness.change(machineGlobalConfig={"debug": True})
        generation = changed["metadata"]["generation"]
        await harness.until_control_plane(lambda obj: obj["status"]["observedGeneration"] == generation)
        await harness.settled()
        assert (await harness.plans())["s1"]["data"]["plan"] == before["s1"]["data"]["plan"]
        await harness.engine.patch(CLUSTER.target, harness.namespace, "c", {"spec": {"paused": False}})
        await harness.ready(generation)
        assert (await harness.plans())["s1"]["data"]["plan"] != before["s1"]["data"]["plan"]


async def test_control_plane_waits_for_referenced_secret_and_resumes_when_created(harness: ControlPlaneHarness) -> None:
    registries = {"configs": {"r.example": {"authConfigSecretName": "login"}}}
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), registries=registries)
        await harness.until_control_plane(waits(f"Secret {harness.namespace}/login"))
        assert "plan" not in (await harness.plans())["s1"].get("data", {})
        await harness.secret("login", {"username": "u", "password": "p"}, "kubernetes.io/basic-auth")
        await harness.ready()


async def test_missing_artefacts_message_gives_add_command(harness: ControlPlaneHarness) -> None:
    harness.artefacts = {}
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), kubernetesVersion="v1.36.4+nano1")
        await harness.until_control_plane(waits("remuda artefacts add nano v1.36.4+nano1", "NoArtefacts"))
        assert "plan" not in (await harness.plans())["s1"].get("data", {})


async def test_first_status_is_written_while_the_version_is_packed(harness: ControlPlaneHarness) -> None:
    packed, there = asyncio.Event(), harness.artefacts
    harness.artefacts = {}

    async def pack(distro: str, version: str) -> None:
        await packed.wait()
        harness.artefacts = there

    harness.pack = pack
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), kubernetesVersion="v1.36.4+nano1")
        await harness.until_control_plane(waits("packing nano v1.36.4+nano1", "Packing"))
        assert not packed.is_set()
        packed.set()
        await harness.until_control_plane(lambda obj: "installer" in obj["status"])


# authorities and tokens


async def test_user_supplied_ca_is_used(harness: ControlPlaneHarness) -> None:
    given = authority()
    texts = {name: value.decode() for name, value in given.items()}
    await harness.secret("c-ca", texts, labels={"cluster.x-k8s.io/cluster-name": "c"})
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        plan = base64.b64decode((await harness.plans())["s1"]["data"]["plan"])
        kept = await harness.made("c-ca")
    assert base64.b64encode(given["tls.crt"]) in plan
    assert base64.b64decode(kept["data"]["tls.crt"]) == given["tls.crt"]
    assert "ownerReferences" not in kept["metadata"]


async def test_deleted_authorities_are_put_back_from_the_plans_of_servers(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",))
        await harness.ready()
        before = {name: await harness.made(name) for name in ("c-ca", "c-etcd", "c-proxy", "c-sa")}
        plans = {host: secret["data"]["plan"] for host, secret in (await harness.plans()).items()}
        for name in before:
            await harness.engine.delete(SECRETS, harness.namespace, name)
        for name, kept in before.items():
            after = await harness.made(name)
            assert after["metadata"]["uid"] != kept["metadata"]["uid"]
            assert after["data"] == kept["data"]
            assert after["metadata"]["ownerReferences"] == kept["metadata"]["ownerReferences"]
        await harness.ready()
        assert {host: secret["data"]["plan"] for host, secret in (await harness.plans()).items()} == plans


async def test_invalid_ca_is_reported_and_blocks_plans(harness: ControlPlaneHarness) -> None:
    await harness.secret("c-ca", {"tls.crt": "nonsense", "tls.key": "nonsense"})
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        plane = await harness.until_control_plane(
            lambda obj: condition(obj, "CertificatesAvailable").get("status") == "False"
        )
        assert f"Secret {harness.namespace}/c-ca" in condition(plane, "CertificatesAvailable")["message"]
        assert "plan" not in (await harness.plans())["s1"].get("data", {})


async def test_lost_tokens_are_reported_and_never_regenerated(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        kept = await harness.made("c-rke-state")
        await harness.engine.delete(SECRETS, harness.namespace, "c-rke-state")
        await harness.until_control_plane(waits("c-rke-state", "TokensLost"))
        assert await harness.engine.get(SECRETS, harness.namespace, "c-rke-state") is None
        data = {name: base64.b64decode(value).decode() for name, value in kept["data"].items()}
        await harness.secret("c-rke-state", data, "rke.cattle.io/cluster-state")
        await harness.ready()


async def test_state_without_tunnel_key_gets_key_once_and_keeps_tokens(harness: ControlPlaneHarness) -> None:
    tokens = {"serverToken": "of-servers", "agentToken": "of-agents"}
    await harness.secret("c-rke-state", tokens, "rke.cattle.io/cluster-state")
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        first = await harness.made("c-rke-state")
        changed = await harness.change(machineGlobalConfig={"debug": True})
        await harness.ready(changed["metadata"]["generation"])
        assert await harness.made("c-rke-state") == first
    found = {name: base64.b64decode(value).decode() for name, value in first["data"].items()}
    assert len(bytes.fromhex(found.pop("tunnelKey"))) == 32
    assert found == tokens


async def test_foreign_kubeconfig_secret_is_kept_and_reported(harness: ControlPlaneHarness) -> None:
    await harness.secret("c-kubeconfig", {"value": "theirs"}, labels={"cluster.x-k8s.io/cluster-name": "c"})
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        plane = await harness.ready()
    assert "belongs to another owner" in condition(plane, "CertificatesAvailable")["message"]
    assert base64.b64decode((await harness.made("c-kubeconfig"))["data"]["value"]) == b"theirs"


# going


async def test_server_is_deleted_only_after_its_etcd_member_left(connected_harness: ControlPlaneHarness) -> None:
    harness = connected_harness
    assert harness.workload is not None
    async with harness.running():
        await harness.cluster_with_hosts(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3"):
            await harness.node(name)
        plane = await harness.until_control_plane(
            lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION
        )
        assert plane["status"]["version"] == VERSION
        await harness.until_machine("s3", lambda obj: HOOK in obj["metadata"].get("annotations", {}))
        await harness.engine.delete(MACHINE.target, harness.namespace, "s3")
        await harness.workload.until(
            NODE.target, "", "s3", lambda obj: obj["metadata"].get("annotations", {}).get(f"{K3S}/remove") == "true"
        )
        assert await harness.engine.get(TEST_MACHINE.target, harness.namespace, "s3") is not None
        harness.hosts.members.remove("s3")  # as the distribution does, which then says so
        left = {"metadata": {"annotations": {f"{K3S}/removed-node-name": "s3-0a1b"}}}
        await harness.workload.patch(NODE.target, "", "s3", left)
        await harness.engine.gone(MACHINE.target, harness.namespace, "s3")
        await harness.ready()
    done = [did for node, did in harness.hosts.ran if node == "s3"]
    assert done == ["install", "retire"]  # its services ended before its server did


async def test_etcd_member_without_machine_is_removed(connected_harness: ControlPlaneHarness) -> None:
    harness = connected_harness
    assert harness.workload is not None
    async with harness.running():
        await harness.cluster_with_hosts(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3", "ghost"):
            await harness.node(name)
        await harness.until_control_plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION)
        harness.hosts.members.append("ghost")
        harness.hosts.sick.add("ghost")
        await harness.until_control_plane(lambda obj: "ghost" in condition(obj, "Held").get("message", ""))
        await harness.workload.gone(NODE.target, "", "ghost")
        harness.hosts.members.remove("ghost")
        await harness.until_control_plane(
            lambda obj: is_true(obj, "Ready") and condition(obj, "Held")["status"] == "False"
        )


async def test_orphaned_node_of_deleted_machine_is_removed(connected_harness: ControlPlaneHarness) -> None:
    harness = connected_harness
    assert harness.workload is not None
    async with harness.running():
        await harness.cluster_with_hosts(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3", "ghost", "stranger"):
            await harness.node(name)
        await harness.until_control_plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION)
        unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]
        await harness.workload.status(NODE.target, "", "stranger", {"conditions": unknown})
        labelled = {"metadata": {"labels": {names.NODE_MACHINE: "0b5a-of-no-machine"}}}
        await harness.workload.patch(NODE.target, "", "ghost", labelled)
        await harness.workload.status(NODE.target, "", "ghost", {"conditions": unknown})
        await harness.workload.gone(NODE.target, "", "ghost")
        assert await harness.workload.get(NODE.target, "", "stranger") is not None  # it never was a Machine's
        await harness.ready()


async def test_machine_of_deleted_control_plane_is_released(harness: ControlPlaneHarness) -> None:
    await harness.cluster()
    await harness.engine.delete(RKE_CONTROL_PLANE.target, harness.namespace, "c")
    await harness.machine("s1", {**WORKER, names.ETCD_ROLE: "true"})
    await harness.engine.patch(
        MACHINE.target, harness.namespace, "s1", {"metadata": {"annotations": {HOOK: "rke-bootstrap-controller"}}}
    )
    async with harness.running():
        await harness.engine.until(RKE_BOOTSTRAP.target, harness.namespace, "s1", lambda obj: condition(obj, "Ready"))
        await harness.engine.delete(MACHINE.target, harness.namespace, "s1")
        await harness.engine.gone(MACHINE.target, harness.namespace, "s1")


async def test_cluster_deletion_removes_all_objects_without_etcd_member_removal(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1", "s2", "s3"))
        await harness.ready()
        await harness.engine.delete(CLUSTER.target, harness.namespace, "c")
        for target in (CLUSTER.target, MACHINE.target, RKE_CONTROL_PLANE.target):
            await harness.engine.when(target, harness.namespace, lambda objects: not objects)
        await harness.engine.when(SECRETS, harness.namespace, lambda found: not [one for one in found if ours(one)])


def ours(secret: Json) -> bool:
    return secret["metadata"]["name"].startswith(("c-", "s1", "s2", "s3"))


# draining


async def test_drain_treats_eviction_404_as_drained(
    connected_harness: ControlPlaneHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = connected_harness
    assert harness.workload is not None
    asked = evictions_answer_404(monkeypatch)
    strategy = {"workerConcurrency": "1", "workerDrainOptions": {"enabled": True, "force": True}}
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",), upgradeStrategy=strategy)
        for name in ("s1", "w1"):
            await harness.node(name)
        await harness.until_control_plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"nodeName": "w1", "containers": [{"name": "c", "image": "i"}]},
        }
        await harness.workload.create(POD.target, "default", pod)
        changed = await harness.change(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
        await harness.ready(changed["metadata"]["generation"])
    assert asked == ["p"]


async def test_node_is_drained_before_restart_and_uncordoned_after(connected_harness: ControlPlaneHarness) -> None:
    harness = connected_harness
    assert harness.workload is not None
    hook = {"annotation": "example.com/ready-to-drain"}
    options = {"enabled": True, "force": True, "preDrainHooks": [hook]}
    strategy = {"workerConcurrency": "1", "workerDrainOptions": options}
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",), upgradeStrategy=strategy)
        for name in ("s1", "w1"):
            await harness.node(name)
        await harness.until_control_plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"nodeName": "w1", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        }
        await harness.workload.create(POD.target, "default", pod)
        changed = await harness.change(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
        asked = await harness.engine.until(
            SECRETS,
            harness.namespace,
            names.plan_secret("w1"),
            lambda obj: obj["metadata"].get("annotations", {}).get("rke.cattle.io/pre-drain"),
        )
        node = await harness.workload.get(NODE.target, "", "w1")
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        request = asked["metadata"]["annotations"]["rke.cattle.io/pre-drain"]
        await harness.engine.patch(
            SECRETS,
            harness.namespace,
            names.plan_secret("w1"),
            {"metadata": {"annotations": {hook["annotation"]: request}}},
        )
        await harness.workload.gone(POD.target, "default", "p")
        await harness.ready(changed["metadata"]["generation"])
        node = await harness.workload.get(NODE.target, "", "w1")
        assert node is not None
        assert "unschedulable" not in node["spec"]
        secret = await harness.engine.get(SECRETS, harness.namespace, names.plan_secret("w1"))
        assert secret is not None
        left = [key for key in secret["metadata"].get("annotations", {}) if "drain" in key or "uncordon" in key]
        assert left == []
