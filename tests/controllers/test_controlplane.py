"""The control plane controller on an engine, with the real planner and model hosts: from Machines to a cluster."""

from __future__ import annotations

import base64

import pytest_asyncio
import yaml

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.client import Target
from remuda.kube.core import CONFIG_MAPS, SECRETS
from remuda.kube.objects import Key
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from tests.controllers.control_plane_harness import VERSION, ControlPlaneHarness
from tests.controllers.engine import Engine, condition, is_true

_SHORTEST_SECRET = 30  # characters: states, numbers, dates and addresses are shorter
_PUBLIC_KEYS = ("ca.crt", "tls.crt")  # certificates of authorities are in ConfigMaps as well


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ControlPlaneHarness:
    return await ControlPlaneHarness.create(engine)


async def test_three_servers_and_two_workers_become_a_cluster(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1", "s2", "s3"), ("w1", "w2"))
        plane = await harness.ready()
        await harness.engine.until(
            CLUSTER.target,
            harness.namespace,
            "c",
            lambda obj: obj["status"].get("initialization", {}).get("controlPlaneInitialized"),
        )
        for name in ("s1", "s2", "s3", "w1", "w2"):
            machine = await harness.until_machine(name, lambda obj: is_true(obj, "Reconciled"))
            assert is_true(machine, "PlanApplied")
            assert is_true(machine, "InfrastructureReady")  # the core's own are still there
    assert plane["status"]["initialization"] == {"controlPlaneInitialized": True}
    assert plane["status"]["replicas"] == 3, "workers are not counted"
    assert not is_true(plane, "Available"), "nobody has reached its API"
    for type in ("Reconciled", "Stable", "Provisioned", "Bootstrapped", "CertificatesAvailable"):
        assert is_true(plane, type), (type, condition(plane, type))
    for type in ("Held", "Paused", "RollingOut", "ScalingUp", "ScalingDown"):
        assert condition(plane, type)["status"] == "False", (type, condition(plane, type))
    assert plane["status"]["appliedSpec"] == plane["spec"]
    assert plane["status"]["installer"]["version"] == VERSION
    assert sorted(harness.hosts.members) == ["s1", "s2", "s3"]
    bootstraps = await harness.engine.list(RKE_BOOTSTRAP.target, harness.namespace)
    assert [one["metadata"]["labels"].get(names.INIT_NODE) for one in bootstraps].count("true") == 1


async def test_secret_values_appear_in_no_other_object(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",))
        await harness.ready()
        await harness.until_machine("w1", lambda obj: is_true(obj, "Reconciled"))
    lines = {
        line.strip()
        for secret in await harness.engine.list(SECRETS, harness.namespace)
        for key, value in (secret.get("data") or {}).items()
        if key not in _PUBLIC_KEYS
        for line in (value, *base64.b64decode(value).decode("utf-8", "replace").splitlines())
        if len(line.strip()) >= _SHORTEST_SECRET
    }
    kinds = (CLUSTER, MACHINE, RKE_BOOTSTRAP, RKE_CLUSTER, RKE_CONTROL_PLANE)
    targets = [*(kind.target for kind in kinds), CONFIG_MAPS, Target("v1", "events")]
    others = {target.plural: str(await harness.engine.list(target, harness.namespace)) for target in targets}
    assert len(lines) > 50
    assert [(plural, line) for plural, text in others.items() for line in lines if line in text] == []


async def test_servers_get_control_plane_label_and_workers_do_not(harness: ControlPlaneHarness) -> None:
    """Roles are all that a user has to say of a machine."""
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",))
        server = await harness.until_machine("s1", lambda obj: capi_names.CONTROL_PLANE in obj["metadata"]["labels"])
        await harness.ready()
        worker = await harness.until_machine("w1", lambda obj: is_true(obj, "Reconciled"))
        endpoint = await harness.engine.until(
            RKE_CLUSTER.target, harness.namespace, "c", lambda obj: obj["spec"].get("controlPlaneEndpoint")
        )
    assert server["metadata"]["labels"][names.CONTROL_PLANE_ROLE] == "true"
    assert capi_names.CONTROL_PLANE not in worker["metadata"]["labels"]
    assert endpoint["spec"]["controlPlaneEndpoint"]["host"] == "10.0.0.1"


async def test_machine_without_role_condition_names_role_labels(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.machine("idle", {})
        await harness.host("idle", "10.0.0.9")
        machine = await harness.until_machine("idle", lambda obj: "no role" in str(condition(obj, "Reconciled")))
    said = condition(machine, "Reconciled")["message"]
    for label in (names.ETCD_ROLE, names.CONTROL_PLANE_ROLE, names.WORKER_ROLE):
        assert label in said


async def test_kubeconfig_is_signed_by_the_cluster_and_points_at_a_server(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        secret = await harness.made("c-kubeconfig")
        authority = await harness.made("c-ca")
    assert secret["type"] == "cluster.x-k8s.io/secret"
    assert secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "c"
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "RKEControlPlane"
    config = yaml.safe_load(base64.b64decode(secret["data"]["value"]))
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://10.0.0.1:6443"
    assert cluster["certificate-authority-data"] == authority["data"]["tls.crt"]


async def test_proxied_cluster_stores_admin_kubeconfig_in_separate_secret(harness: ControlPlaneHarness) -> None:
    harness.proxied = True
    async with harness.running():
        await harness.cluster_with_hosts(("s1",))
        await harness.ready()
        secret = await harness.made("c-kubeconfig-admin")
    config = yaml.safe_load(base64.b64decode(secret["data"]["value"]))
    assert config["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert "client-key-data" in config["users"][0]["user"]
    assert await harness.engine.get(SECRETS, harness.namespace, "c-kubeconfig") is None


async def test_change_of_the_configuration_reaches_every_host_in_place(harness: ControlPlaneHarness) -> None:
    async with harness.running():
        await harness.cluster_with_hosts(("s1",), ("w1",))
        await harness.ready()
        before = await harness.engine.list(MACHINE.target, harness.namespace)
        plans = await harness.plans()
        changed = await harness.change(machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
        plane = await harness.ready(changed["metadata"]["generation"])
        after = await harness.engine.list(MACHINE.target, harness.namespace)
        news = await harness.plans()
    assert plane["status"]["appliedSpec"]["machineGlobalConfig"] == {"kubelet-arg": ["max-pods=50"]}
    assert [one["metadata"]["uid"] for one in before] == [one["metadata"]["uid"] for one in after]
    for name in ("s1", "w1"):
        assert plans[name]["data"]["plan"] != news[name]["data"]["plan"]
        assert base64.b64decode(news[name]["data"]["plan-state"]) == b"succeeded"
        assert news[name]["data"]["appliedPlan"] == plans[name]["data"]["plan"]


async def test_idle_cluster_writes_nothing_when_reconciled_again(harness: ControlPlaneHarness) -> None:
    async with harness.running() as manager:
        await harness.cluster_with_hosts(("s1",), ("w1",))
        await harness.ready()
        await harness.settled()
        written = []
        for _ in range(3):  # what was held back for a moment is written at the first look
            looks = manager.ledger.reconciles
            for controller, name in (("rkecontrolplane", "c"), ("rkedrain", "s1"), ("rkebootstrap", "s1")):
                manager.controllers[controller].enqueue(Key(harness.namespace, name))
            await harness.settled()
            assert manager.ledger.reconciles >= looks + 3
            written.append(manager.ledger.writes)
        assert written[1] == written[2]


async def test_machine_status_is_patched_at_most_four_times_per_machine(harness: ControlPlaneHarness) -> None:
    async with harness.running() as manager:
        await harness.cluster_with_hosts(("s1",), ("w1", "w2"))
        await harness.ready()
        await harness.settled()
        written = manager.ledger.writes_by["rkecontrolplane", "patch machines/status"]
    assert 3 <= written <= 3 * 4
