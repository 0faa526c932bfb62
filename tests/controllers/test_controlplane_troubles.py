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
from tests.controllers.certificates import authority
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.machines import evictions_answer_404, workload_cluster
from tests.controllers.ranch import VERSION, WORKER, Ranch
from tests.controllers.yard import YARD_MACHINE

K3S = "etcd.k3s.cattle.io"


@pytest_asyncio.fixture(loop_scope="session")
async def ranch(engine: Engine) -> Ranch:
    return await Ranch.create(engine)


@pytest_asyncio.fixture(loop_scope="session")
async def connected(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ranch]:
    """A ranch whose cluster has an API of its own."""
    async with workload_cluster(tmp_path_factory.mktemp("workload")) as workload:
        yield await Ranch.create(engine, workload)


def waits(text: str, reason: str = "") -> object:
    return lambda obj: (
        text in condition(obj, "Ready").get("message", "")
        and (not reason or condition(obj, "Ready").get("reason") == reason)
    )


# what is missing


async def test_failed_plan_is_reported_and_superseded_by_new_config(connected: Ranch) -> None:
    ranch = connected
    async with ranch.running():
        ranch.hosts.failing["w1"] = "no space left on device"
        await ranch.herd(("s1",), ("w1",))
        for name in ("s1", "w1"):
            await ranch.node(name)
        machine = await ranch.until_machine("w1", lambda obj: condition(obj, "PlanApplied").get("status") == "False")
        assert "no space left on device" in condition(machine, "PlanApplied")["message"]
        await ranch.plane(waits("no space left on device"))
        await ranch.plane(lambda obj: is_true(obj, "Available"))
        ranch.hosts.failing.clear()
        changed = await ranch.change(machineGlobalConfig={"debug": True})
        await ranch.ready(changed["metadata"]["generation"])
        await ranch.until_machine("w1", lambda obj: is_true(obj, "PlanApplied") and is_true(obj, "Reconciled"))


async def test_a_paused_cluster_gets_no_plan(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.herd(("s1",))
        await ranch.ready()
        before = await ranch.plans()
        await ranch.engine.patch(CLUSTER.target, ranch.namespace, "c", {"spec": {"paused": True}})
        await ranch.plane(lambda obj: is_true(obj, "Paused"))
        changed = await ranch.change(machineGlobalConfig={"debug": True})
        generation = changed["metadata"]["generation"]
        await ranch.plane(lambda obj: obj["status"]["observedGeneration"] == generation)
        await ranch.settled()
        assert (await ranch.plans())["s1"]["data"]["plan"] == before["s1"]["data"]["plan"]
        await ranch.engine.patch(CLUSTER.target, ranch.namespace, "c", {"spec": {"paused": False}})
        await ranch.ready(generation)
        assert (await ranch.plans())["s1"]["data"]["plan"] != before["s1"]["data"]["plan"]


async def test_control_plane_waits_for_referenced_secret_and_resumes_when_created(ranch: Ranch) -> None:
    registries = {"configs": {"r.example": {"authConfigSecretName": "login"}}}
    async with ranch.running():
        await ranch.herd(("s1",), registries=registries)
        await ranch.plane(waits(f"Secret {ranch.namespace}/login"))
        assert "plan" not in (await ranch.plans())["s1"].get("data", {})
        await ranch.secret("login", {"username": "u", "password": "p"}, "kubernetes.io/basic-auth")
        await ranch.ready()


async def test_missing_artefacts_message_gives_add_command(ranch: Ranch) -> None:
    ranch.artefacts = {}
    async with ranch.running():
        await ranch.herd(("s1",), kubernetesVersion="v1.36.4+nano1")
        await ranch.plane(waits("remuda artefacts add nano v1.36.4+nano1", "NoArtefacts"))
        assert "plan" not in (await ranch.plans())["s1"].get("data", {})


async def test_first_status_is_written_while_the_version_is_packed(ranch: Ranch) -> None:
    packed, there = asyncio.Event(), ranch.artefacts
    ranch.artefacts = {}

    async def pack(distro: str, version: str) -> None:
        await packed.wait()
        ranch.artefacts = there

    ranch.pack = pack
    async with ranch.running():
        await ranch.herd(("s1",), kubernetesVersion="v1.36.4+nano1")
        await ranch.plane(waits("packing nano v1.36.4+nano1", "Packing"))
        assert not packed.is_set()
        packed.set()
        await ranch.plane(lambda obj: "installer" in obj["status"])


# authorities and tokens


async def test_user_supplied_ca_is_used(ranch: Ranch) -> None:
    given = authority()
    texts = {name: value.decode() for name, value in given.items()}
    await ranch.secret("c-ca", texts, labels={"cluster.x-k8s.io/cluster-name": "c"})
    async with ranch.running():
        await ranch.herd(("s1",))
        await ranch.ready()
        plan = base64.b64decode((await ranch.plans())["s1"]["data"]["plan"])
        kept = await ranch.made("c-ca")
    assert base64.b64encode(given["tls.crt"]) in plan
    assert base64.b64decode(kept["data"]["tls.crt"]) == given["tls.crt"]
    assert "ownerReferences" not in kept["metadata"]


async def test_deleted_authorities_are_put_back_from_the_plans_of_servers(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.herd(("s1",), ("w1",))
        await ranch.ready()
        before = {name: await ranch.made(name) for name in ("c-ca", "c-etcd", "c-proxy", "c-sa")}
        plans = {host: secret["data"]["plan"] for host, secret in (await ranch.plans()).items()}
        for name in before:
            await ranch.engine.delete(SECRETS, ranch.namespace, name)
        for name, kept in before.items():
            after = await ranch.made(name)
            assert after["metadata"]["uid"] != kept["metadata"]["uid"]
            assert after["data"] == kept["data"]
            assert after["metadata"]["ownerReferences"] == kept["metadata"]["ownerReferences"]
        await ranch.ready()
        assert {host: secret["data"]["plan"] for host, secret in (await ranch.plans()).items()} == plans


async def test_invalid_ca_is_reported_and_blocks_plans(ranch: Ranch) -> None:
    await ranch.secret("c-ca", {"tls.crt": "nonsense", "tls.key": "nonsense"})
    async with ranch.running():
        await ranch.herd(("s1",))
        plane = await ranch.plane(lambda obj: condition(obj, "CertificatesAvailable").get("status") == "False")
        assert f"Secret {ranch.namespace}/c-ca" in condition(plane, "CertificatesAvailable")["message"]
        assert "plan" not in (await ranch.plans())["s1"].get("data", {})


async def test_lost_tokens_are_reported_and_never_regenerated(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.herd(("s1",))
        await ranch.ready()
        kept = await ranch.made("c-rke-state")
        await ranch.engine.delete(SECRETS, ranch.namespace, "c-rke-state")
        await ranch.plane(waits("c-rke-state", "TokensLost"))
        assert await ranch.engine.get(SECRETS, ranch.namespace, "c-rke-state") is None
        data = {name: base64.b64decode(value).decode() for name, value in kept["data"].items()}
        await ranch.secret("c-rke-state", data, "rke.cattle.io/cluster-state")
        await ranch.ready()


async def test_state_without_tunnel_key_gets_key_once_and_keeps_tokens(ranch: Ranch) -> None:
    tokens = {"serverToken": "of-servers", "agentToken": "of-agents"}
    await ranch.secret("c-rke-state", tokens, "rke.cattle.io/cluster-state")
    async with ranch.running():
        await ranch.herd(("s1",))
        await ranch.ready()
        first = await ranch.made("c-rke-state")
        changed = await ranch.change(machineGlobalConfig={"debug": True})
        await ranch.ready(changed["metadata"]["generation"])
        assert await ranch.made("c-rke-state") == first
    found = {name: base64.b64decode(value).decode() for name, value in first["data"].items()}
    assert len(bytes.fromhex(found.pop("tunnelKey"))) == 32
    assert found == tokens


async def test_foreign_kubeconfig_secret_is_kept_and_reported(ranch: Ranch) -> None:
    await ranch.secret("c-kubeconfig", {"value": "theirs"}, labels={"cluster.x-k8s.io/cluster-name": "c"})
    async with ranch.running():
        await ranch.herd(("s1",))
        plane = await ranch.ready()
    assert "belongs to another owner" in condition(plane, "CertificatesAvailable")["message"]
    assert base64.b64decode((await ranch.made("c-kubeconfig"))["data"]["value"]) == b"theirs"


# going


async def test_server_is_deleted_only_after_its_etcd_member_left(connected: Ranch) -> None:
    ranch = connected
    assert ranch.workload is not None
    async with ranch.running():
        await ranch.herd(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3"):
            await ranch.node(name)
        plane = await ranch.plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION)
        assert plane["status"]["version"] == VERSION
        await ranch.until_machine("s3", lambda obj: HOOK in obj["metadata"].get("annotations", {}))
        await ranch.engine.delete(MACHINE.target, ranch.namespace, "s3")
        await ranch.workload.until(
            NODE.target, "", "s3", lambda obj: obj["metadata"].get("annotations", {}).get(f"{K3S}/remove") == "true"
        )
        assert await ranch.engine.get(YARD_MACHINE.target, ranch.namespace, "s3") is not None
        ranch.hosts.members.remove("s3")  # as the distribution does, which then says so
        left = {"metadata": {"annotations": {f"{K3S}/removed-node-name": "s3-0a1b"}}}
        await ranch.workload.patch(NODE.target, "", "s3", left)
        await ranch.engine.gone(MACHINE.target, ranch.namespace, "s3")
        await ranch.ready()
    done = [did for node, did in ranch.hosts.ran if node == "s3"]
    assert done == ["install", "retire"]  # its services ended before its server did


async def test_etcd_member_without_machine_is_removed(connected: Ranch) -> None:
    ranch = connected
    assert ranch.workload is not None
    async with ranch.running():
        await ranch.herd(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3", "ghost"):
            await ranch.node(name)
        await ranch.plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION)
        ranch.hosts.members.append("ghost")
        ranch.hosts.sick.add("ghost")
        await ranch.plane(lambda obj: "ghost" in condition(obj, "Held").get("message", ""))
        await ranch.workload.gone(NODE.target, "", "ghost")
        ranch.hosts.members.remove("ghost")
        await ranch.plane(lambda obj: is_true(obj, "Ready") and condition(obj, "Held")["status"] == "False")


async def test_orphaned_node_of_deleted_machine_is_removed(connected: Ranch) -> None:
    ranch = connected
    assert ranch.workload is not None
    async with ranch.running():
        await ranch.herd(("s1", "s2", "s3"))
        for name in ("s1", "s2", "s3", "ghost", "stranger"):
            await ranch.node(name)
        await ranch.plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version") == VERSION)
        unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]
        await ranch.workload.status(NODE.target, "", "stranger", {"conditions": unknown})
        labelled = {"metadata": {"labels": {names.NODE_MACHINE: "0b5a-of-no-machine"}}}
        await ranch.workload.patch(NODE.target, "", "ghost", labelled)
        await ranch.workload.status(NODE.target, "", "ghost", {"conditions": unknown})
        await ranch.workload.gone(NODE.target, "", "ghost")
        assert await ranch.workload.get(NODE.target, "", "stranger") is not None  # it never was a Machine's
        await ranch.ready()


async def test_machine_of_deleted_control_plane_is_released(ranch: Ranch) -> None:
    await ranch.cluster()
    await ranch.engine.delete(RKE_CONTROL_PLANE.target, ranch.namespace, "c")
    await ranch.machine("s1", {**WORKER, names.ETCD_ROLE: "true"})
    await ranch.engine.patch(
        MACHINE.target, ranch.namespace, "s1", {"metadata": {"annotations": {HOOK: "rke-bootstrap-controller"}}}
    )
    async with ranch.running():
        await ranch.engine.until(RKE_BOOTSTRAP.target, ranch.namespace, "s1", lambda obj: condition(obj, "Ready"))
        await ranch.engine.delete(MACHINE.target, ranch.namespace, "s1")
        await ranch.engine.gone(MACHINE.target, ranch.namespace, "s1")


async def test_cluster_deletion_removes_all_objects_without_etcd_member_removal(ranch: Ranch) -> None:
    async with ranch.running():
        await ranch.herd(("s1", "s2", "s3"))
        await ranch.ready()
        await ranch.engine.delete(CLUSTER.target, ranch.namespace, "c")
        for target in (CLUSTER.target, MACHINE.target, RKE_CONTROL_PLANE.target):
            await ranch.engine.when(target, ranch.namespace, lambda objects: not objects)
        await ranch.engine.when(SECRETS, ranch.namespace, lambda found: not [one for one in found if ours(one)])


def ours(secret: Json) -> bool:
    return secret["metadata"]["name"].startswith(("c-", "s1", "s2", "s3"))


# draining


async def test_drain_treats_eviction_404_as_drained(connected: Ranch, monkeypatch: pytest.MonkeyPatch) -> None:
    ranch = connected
    assert ranch.workload is not None
    asked = evictions_answer_404(monkeypatch)
    strategy = {"workerConcurrency": "1", "workerDrainOptions": {"enabled": True, "force": True}}
    async with ranch.running():
        await ranch.herd(("s1",), ("w1",), upgradeStrategy=strategy)
        for name in ("s1", "w1"):
            await ranch.node(name)
        await ranch.plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"nodeName": "w1", "containers": [{"name": "c", "image": "i"}]},
        }
        await ranch.workload.create(POD.target, "default", pod)
        changed = await ranch.change(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
        await ranch.ready(changed["metadata"]["generation"])
    assert asked == ["p"]


async def test_node_is_drained_before_restart_and_uncordoned_after(connected: Ranch) -> None:
    ranch = connected
    assert ranch.workload is not None
    hook = {"annotation": "example.com/ready-to-drain"}
    options = {"enabled": True, "force": True, "preDrainHooks": [hook]}
    strategy = {"workerConcurrency": "1", "workerDrainOptions": options}
    async with ranch.running():
        await ranch.herd(("s1",), ("w1",), upgradeStrategy=strategy)
        for name in ("s1", "w1"):
            await ranch.node(name)
        await ranch.plane(lambda obj: is_true(obj, "Ready") and obj["status"].get("version"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"nodeName": "w1", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        }
        await ranch.workload.create(POD.target, "default", pod)
        changed = await ranch.change(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
        asked = await ranch.engine.until(
            SECRETS,
            ranch.namespace,
            names.plan_secret("w1"),
            lambda obj: obj["metadata"].get("annotations", {}).get("rke.cattle.io/pre-drain"),
        )
        node = await ranch.workload.get(NODE.target, "", "w1")
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        request = asked["metadata"]["annotations"]["rke.cattle.io/pre-drain"]
        await ranch.engine.patch(
            SECRETS,
            ranch.namespace,
            names.plan_secret("w1"),
            {"metadata": {"annotations": {hook["annotation"]: request}}},
        )
        await ranch.workload.gone(POD.target, "default", "p")
        await ranch.ready(changed["metadata"]["generation"])
        node = await ranch.workload.get(NODE.target, "", "w1")
        assert node is not None
        assert "unschedulable" not in node["spec"]
        secret = await ranch.engine.get(SECRETS, ranch.namespace, names.plan_secret("w1"))
        assert secret is not None
        left = [key for key in secret["metadata"].get("annotations", {}) if "drain" in key or "uncordon" in key]
        assert left == []
