"""Hosts that somebody made, on an engine: one line per Cluster, and what becomes of those who run it."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import SECRETS
from remuda.providers.bootstrap import clusters, custom
from remuda.providers.bootstrap.registration import HostRefused
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP
from tests.controllers.bootstrap_harness import BootstrapHarness, encoded, text
from tests.controllers.engine import Engine, Json, condition, is_true, named

WORKER = {"role_worker": "true", "node_name": "Barn-1", "address": "10.0.0.7", "labels": "cattle.io/os=linux,zone=a"}


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> BootstrapHarness:
    return await BootstrapHarness.create(engine)


async def registration(harness: BootstrapHarness, name: str = "c") -> Json:
    return await harness.engine.until(SECRETS, harness.namespace, clusters.registration_secret(name), lambda obj: True)


async def cluster_token(harness: BootstrapHarness, name: str = "c") -> str:
    return text(await registration(harness, name), clusters.TOKEN)


async def refused(attempt: object) -> HostRefused:
    with pytest.raises(HostRefused) as caught:
        await attempt  # type: ignore[misc]
    return caught.value


async def test_registered_host_becomes_machine_with_its_roles_and_addresses(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        info = await harness.connect(
            await cluster_token(harness),
            "host-1",
            **{**WORKER, "role_control_plane": "true", "internal_address": "192.168.0.7", "taints": "a=b:NoSchedule"},
        )
        name = custom.machine_name("host-1")
        assert info.secret_name == names.plan_secret(name)
        made = await harness.engine.until(
            MACHINE.target,
            harness.namespace,
            name,
            lambda obj: obj.get("status", {}).get("initialization", {}).get("infrastructureProvisioned"),
        )
        async with harness.host(info) as host:
            await host.get(SECRETS, harness.namespace, info.secret_name)
    assert made["spec"]["providerID"] == f"custom://{custom.digest('host-1')}"
    assert made["status"]["addresses"] == [
        {"type": "InternalIP", "address": "192.168.0.7"},
        {"type": "ExternalIP", "address": "10.0.0.7"},
        {"type": "Hostname", "address": "barn-1"},
    ]
    labels = made["metadata"]["labels"]
    assert {key: labels.get(key) for key in (names.WORKER_ROLE, names.CONTROL_PLANE_ROLE, names.ETCD_ROLE)} == {
        names.WORKER_ROLE: "true",
        names.CONTROL_PLANE_ROLE: "true",
        names.ETCD_ROLE: None,
    }
    assert (labels[names.MACHINE_ID], labels[names.NODE_NAME], labels["zone"]) == ("host-1", "barn-1", "a")
    assert capi_names.CONTROL_PLANE in labels
    plan = await harness.plan(name)
    assert plan["metadata"]["labels"][names.MACHINE_ID] == "host-1"
    assert plan["metadata"]["annotations"] == {
        names.ADDRESS: "10.0.0.7",
        names.INTERNAL_ADDRESS: "192.168.0.7",
        names.NODE_LABELS: "cattle.io/os=linux,zone=a",
        names.NODE_TAINTS: "a=b:NoSchedule",
    }
    assert "CATTLE_TOKEN" not in await harness.data(name)
    assert await harness.engine.get(SECRETS, harness.namespace, name) is None, "the request is still there"


async def test_host_is_provisioned_only_when_its_agent_has_connected(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        found = await harness.engine.until(CLUSTER.target, harness.namespace, "c", lambda obj: True)
        request = custom.request_secret(
            CLUSTER.decode(await harness.engine.client.get(CLUSTER.target, harness.namespace, named(found))),
            {"id": ["host-1"], "role-worker": ["true"]},
            "host-1",
        )
        await harness.engine.create(SECRETS, harness.namespace, request)
        name = custom.machine_name("host-1")
        waiting = await harness.engine.until(
            CUSTOM_MACHINE.target,
            harness.namespace,
            name,
            lambda obj: condition(obj, "Ready").get("reason") == "WaitingForHost",
        )
        assert "provisioned" not in waiting["status"].get("initialization", {})
        await harness.connect(await cluster_token(harness), "host-1")
        await harness.engine.until(CUSTOM_MACHINE.target, harness.namespace, name, lambda obj: is_true(obj, "Ready"))


async def test_registered_host_reconnects_to_same_machine_despite_changed_flags(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        token = await cluster_token(harness)
        first = await harness.connect(token, "host-1", **WORKER)
        again = await harness.connect(token, "host-1", role_etcd="true", node_name="other")
        assert again == first
        (machine,) = await harness.engine.list(MACHINE.target, harness.namespace)
        assert names.ETCD_ROLE not in machine["metadata"]["labels"]


async def test_stale_registration_request_is_removed_on_retry(harness: BootstrapHarness) -> None:
    await harness.cluster()
    name = custom.machine_name("host-1")
    async with harness.running():
        token = await cluster_token(harness)
        asking = asyncio.create_task(harness.connect(token, "host-1", **WORKER))
        await harness.engine.until(SECRETS, harness.namespace, name, lambda obj: True)
        asking.cancel()
        await harness.engine.until(MACHINE.target, harness.namespace, name, lambda obj: True)
        await harness.connect(token, "host-1", **WORKER)
        await harness.engine.gone(SECRETS, harness.namespace, name)
        assert len(await harness.engine.list(MACHINE.target, harness.namespace)) == 1


async def test_machine_of_a_pool_is_found_by_the_id_of_its_host(harness: BootstrapHarness) -> None:
    """Upgrades of an agent run the registration command with the id the host already has."""
    await harness.cluster()
    await harness.machine()
    async with harness.running():
        await harness.bootstrapped()
        first = await harness.connect(await harness.token(), "host-1")
        assert await harness.connect(await cluster_token(harness), "host-1") == first


async def test_host_with_duplicate_node_name_is_refused_until_first_is_deleted(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        token = await cluster_token(harness)
        await harness.connect(token, "host-1", **WORKER)
        refusal = await refused(harness.connect(token, "host-2", **WORKER))
        assert refusal.code == 409
        assert f"Machine {harness.namespace}/{custom.machine_name('host-1')}" in refusal.message
        assert "--node-name" in refusal.message
        assert "barn-1" in (await harness.until_event("HostRefused", "c"))["message"]
        await harness.engine.delete(MACHINE.target, harness.namespace, custom.machine_name("host-1"))
        await harness.engine.gone(MACHINE.target, harness.namespace, custom.machine_name("host-1"))
        info = await harness.connect(token, "host-2", **WORKER)
        assert info.secret_name == names.plan_secret(custom.machine_name("host-2"))


async def test_host_of_deleting_machine_is_refused_then_registers_as_new_machine(harness: BootstrapHarness) -> None:
    await harness.cluster()
    name = custom.machine_name("host-1")
    async with harness.running():
        token = await cluster_token(harness)
        await harness.connect(token, "host-1", **WORKER)
        before = await harness.plan(name)
    await harness.engine.delete(MACHINE.target, harness.namespace, name)
    refusal = await refused(harness.connect(token, "host-1", **WORKER))
    assert (refusal.code, "being deleted" in refusal.message) == (409, True)
    async with harness.running():
        await harness.engine.gone(MACHINE.target, harness.namespace, name)
        await harness.connect(token, "host-1", **WORKER)
        after = await harness.plan(name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        ({}, 409, "no role"),
        ({"role_worker": "true", "labels": "rke.cattle.io/init-node=true"}, 400, "a host cannot choose the label"),
        ({"role_worker": "true", "labels": "cluster.x-k8s.io/control-plane="}, 400, "a host cannot choose the label"),
        ({"role_worker": "true", "labels": "nonsense"}, 400, "not a label"),
        ({"role_worker": "true", "taints": "a=b:Sometimes"}, 400, "not a taint"),
        ({"role_worker": "true", "node_name": "a b"}, 400, "valid node name"),
        ({"role_worker": "true", "address": "x" * 5000}, 400, "longer than"),
    ],
)
async def test_invalid_registration_is_refused_and_creates_nothing(
    harness: BootstrapHarness, said: dict[str, str], code: int, why: str
) -> None:
    await harness.cluster()
    async with harness.running():
        refusal = await refused(harness.connect(await cluster_token(harness), "host-1", **said))
        assert refusal.code == code
        assert why in refusal.message
        for target in (MACHINE.target, RKE_BOOTSTRAP.target, CUSTOM_MACHINE.target):
            assert await harness.engine.list(target, harness.namespace) == []
        assert await harness.engine.get(SECRETS, harness.namespace, custom.machine_name("host-1")) is None


async def test_registration_token_is_limited_to_its_cluster_and_revoked_with_its_secret(
    harness: BootstrapHarness,
) -> None:
    await harness.cluster("c")
    await harness.cluster("d")
    async with harness.running():
        token, other = await cluster_token(harness, "c"), await cluster_token(harness, "d")
        forged = f"{other.rpartition('.')[0]}.{token.rpartition('.')[2]}"
        assert (await refused(harness.connect(forged, "host-1", **WORKER))).code == 401
        old = await registration(harness)
        await harness.engine.delete(SECRETS, harness.namespace, clusters.registration_secret("c"))
        await harness.engine.until(
            SECRETS,
            harness.namespace,
            clusters.registration_secret("c"),
            lambda obj: obj["metadata"]["uid"] != old["metadata"]["uid"],
        )
        assert (await refused(harness.connect(token, "host-1", **WORKER))).code == 401
        await harness.connect(await cluster_token(harness, "c"), "host-1", **WORKER)


async def test_concurrent_hosts_each_get_their_own_machine(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        token = await cluster_token(harness)
        infos = await asyncio.gather(
            *(harness.connect(token, f"host-{n}", role_worker="true", node_name=f"barn-{n}") for n in range(10))
        )
    assert len({info.secret_name for info in infos}) == 10


async def test_changed_server_url_rewrites_registration_command_and_keeps_token(harness: BootstrapHarness) -> None:
    await harness.cluster()
    async with harness.running():
        token = await cluster_token(harness)
    moved = Site(server_url="https://elsewhere.example:8443", ca_pem=b"another\n")
    async with harness.running(site=moved):
        found = await harness.engine.until(
            SECRETS,
            harness.namespace,
            clusters.registration_secret("c"),
            lambda obj: moved.ca_checksum in text(obj, clusters.COMMAND),
        )
    assert text(found, clusters.TOKEN) == token
    assert f"--token {token} " in text(found, clusters.COMMAND)


async def test_abandoned_registration_requests_are_deleted(
    harness: BootstrapHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_REQUEST_SECONDS", 1.0)
    await harness.cluster()
    cluster = CLUSTER.decode(await harness.engine.client.get(CLUSTER.target, harness.namespace, "c"))
    values = {"id": ["host-1"], "role-worker": ["true"]}
    await harness.engine.create(SECRETS, harness.namespace, custom.request_secret(cluster, values, "host-1"))
    async with harness.running():
        await harness.engine.gone(SECRETS, harness.namespace, custom.machine_name("host-1"))


async def test_unreadable_registration_request_is_refused_permanently(harness: BootstrapHarness) -> None:
    await harness.cluster()
    cluster = CLUSTER.decode(await harness.engine.client.get(CLUSTER.target, harness.namespace, "c"))
    request = custom.request_secret(cluster, {}, "host-1")
    request.pop("stringData")
    request["data"] = {custom.DATA: encoded("{")}
    await harness.engine.create(SECRETS, harness.namespace, request)
    async with harness.running():
        found = await harness.engine.until(
            SECRETS,
            harness.namespace,
            custom.machine_name("host-1"),
            lambda obj: custom.REFUSED in obj["metadata"].get("annotations", {}),
        )
        assert "cannot read the request" in found["metadata"]["annotations"][custom.REFUSED]
