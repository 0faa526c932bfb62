"""Hosts that somebody made, on an engine: one line per Cluster, and what becomes of those who run it."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube.core import SECRETS
from remuda.providers.bootstrap import clusters, custom
from remuda.providers.bootstrap.registration import Refusal
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP
from tests.controllers.engine import Engine, Json, condition, is_true, named
from tests.controllers.yard import Yard, encoded, text

WORKER = {"role_worker": "true", "node_name": "Barn-1", "address": "10.0.0.7", "labels": "cattle.io/os=linux,zone=a"}


@pytest_asyncio.fixture(loop_scope="session")
async def yard(engine: Engine) -> Yard:
    return await Yard.create(engine)


async def registration(yard: Yard, name: str = "c") -> Json:
    return await yard.engine.until(SECRETS, yard.namespace, clusters.registration_secret(name), lambda obj: True)


async def cluster_token(yard: Yard, name: str = "c") -> str:
    return text(await registration(yard, name), clusters.TOKEN)


async def refused(attempt: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await attempt  # type: ignore[misc]
    return caught.value


async def test_registered_host_becomes_machine_with_its_roles_and_addresses(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        info = await yard.connect(
            await cluster_token(yard),
            "host-1",
            **{**WORKER, "role_control_plane": "true", "internal_address": "192.168.0.7", "taints": "a=b:NoSchedule"},
        )
        name = custom.machine_name("host-1")
        assert info.secret_name == names.plan_secret(name)
        made = await yard.engine.until(
            MACHINE.target,
            yard.namespace,
            name,
            lambda obj: obj.get("status", {}).get("initialization", {}).get("infrastructureProvisioned"),
        )
        async with yard.host(info) as host:
            await host.get(SECRETS, yard.namespace, info.secret_name)
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
    plan = await yard.plan(name)
    assert plan["metadata"]["labels"][names.MACHINE_ID] == "host-1"
    assert plan["metadata"]["annotations"] == {
        names.ADDRESS: "10.0.0.7",
        names.INTERNAL_ADDRESS: "192.168.0.7",
        names.NODE_LABELS: "cattle.io/os=linux,zone=a",
        names.NODE_TAINTS: "a=b:NoSchedule",
    }
    assert "CATTLE_TOKEN" not in await yard.data(name)
    assert await yard.engine.get(SECRETS, yard.namespace, name) is None, "the request is still there"


async def test_a_host_is_provisioned_only_when_its_agent_has_connected(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        found = await yard.engine.until(CLUSTER.target, yard.namespace, "c", lambda obj: True)
        request = custom.request_secret(
            CLUSTER.decode(await yard.engine.client.get(CLUSTER.target, yard.namespace, named(found))),
            {"id": ["host-1"], "role-worker": ["true"]},
            "host-1",
        )
        await yard.engine.create(SECRETS, yard.namespace, request)
        name = custom.machine_name("host-1")
        waiting = await yard.engine.until(
            CUSTOM_MACHINE.target,
            yard.namespace,
            name,
            lambda obj: condition(obj, "Ready").get("reason") == "WaitingForHost",
        )
        assert "provisioned" not in waiting["status"].get("initialization", {})
        await yard.connect(await cluster_token(yard), "host-1")
        await yard.engine.until(CUSTOM_MACHINE.target, yard.namespace, name, lambda obj: is_true(obj, "Ready"))


async def test_registered_host_reconnects_to_same_machine_despite_changed_flags(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        token = await cluster_token(yard)
        first = await yard.connect(token, "host-1", **WORKER)
        again = await yard.connect(token, "host-1", role_etcd="true", node_name="other")
        assert again == first
        (machine,) = await yard.engine.list(MACHINE.target, yard.namespace)
        assert names.ETCD_ROLE not in machine["metadata"]["labels"]


async def test_stale_registration_request_is_removed_on_retry(yard: Yard) -> None:
    await yard.cluster()
    name = custom.machine_name("host-1")
    async with yard.running():
        token = await cluster_token(yard)
        asking = asyncio.create_task(yard.connect(token, "host-1", **WORKER))
        await yard.engine.until(SECRETS, yard.namespace, name, lambda obj: True)
        asking.cancel()
        await yard.engine.until(MACHINE.target, yard.namespace, name, lambda obj: True)
        await yard.connect(token, "host-1", **WORKER)
        await yard.engine.gone(SECRETS, yard.namespace, name)
        assert len(await yard.engine.list(MACHINE.target, yard.namespace)) == 1


async def test_a_machine_of_a_pool_is_found_by_the_id_of_its_host(yard: Yard) -> None:
    """Upgrades of an agent run the registration command with the id the host already has."""
    await yard.cluster()
    await yard.machine()
    async with yard.running():
        await yard.bootstrapped()
        first = await yard.connect(await yard.token(), "host-1")
        assert await yard.connect(await cluster_token(yard), "host-1") == first


async def test_host_with_duplicate_node_name_is_refused_until_first_is_deleted(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        token = await cluster_token(yard)
        await yard.connect(token, "host-1", **WORKER)
        refusal = await refused(yard.connect(token, "host-2", **WORKER))
        assert refusal.code == 409
        assert f"Machine {yard.namespace}/{custom.machine_name('host-1')}" in refusal.message
        assert "--node-name" in refusal.message
        assert "barn-1" in (await yard.said("HostRefused", "c"))["message"]
        await yard.engine.delete(MACHINE.target, yard.namespace, custom.machine_name("host-1"))
        await yard.engine.gone(MACHINE.target, yard.namespace, custom.machine_name("host-1"))
        info = await yard.connect(token, "host-2", **WORKER)
        assert info.secret_name == names.plan_secret(custom.machine_name("host-2"))


async def test_host_of_deleting_machine_is_refused_then_registers_as_new_machine(yard: Yard) -> None:
    await yard.cluster()
    name = custom.machine_name("host-1")
    async with yard.running():
        token = await cluster_token(yard)
        await yard.connect(token, "host-1", **WORKER)
        before = await yard.plan(name)
    await yard.engine.delete(MACHINE.target, yard.namespace, name)
    refusal = await refused(yard.connect(token, "host-1", **WORKER))
    assert (refusal.code, "being deleted" in refusal.message) == (409, True)
    async with yard.running():
        await yard.engine.gone(MACHINE.target, yard.namespace, name)
        await yard.connect(token, "host-1", **WORKER)
        after = await yard.plan(name)
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
    yard: Yard, said: dict[str, str], code: int, why: str
) -> None:
    await yard.cluster()
    async with yard.running():
        refusal = await refused(yard.connect(await cluster_token(yard), "host-1", **said))
        assert refusal.code == code
        assert why in refusal.message
        for target in (MACHINE.target, RKE_BOOTSTRAP.target, CUSTOM_MACHINE.target):
            assert await yard.engine.list(target, yard.namespace) == []
        assert await yard.engine.get(SECRETS, yard.namespace, custom.machine_name("host-1")) is None


async def test_registration_token_is_limited_to_its_cluster_and_revoked_with_its_secret(yard: Yard) -> None:
    await yard.cluster("c")
    await yard.cluster("d")
    async with yard.running():
        token, other = await cluster_token(yard, "c"), await cluster_token(yard, "d")
        forged = f"{other.rpartition('.')[0]}.{token.rpartition('.')[2]}"
        assert (await refused(yard.connect(forged, "host-1", **WORKER))).code == 401
        old = await registration(yard)
        await yard.engine.delete(SECRETS, yard.namespace, clusters.registration_secret("c"))
        await yard.engine.until(
            SECRETS,
            yard.namespace,
            clusters.registration_secret("c"),
            lambda obj: obj["metadata"]["uid"] != old["metadata"]["uid"],
        )
        assert (await refused(yard.connect(token, "host-1", **WORKER))).code == 401
        await yard.connect(await cluster_token(yard, "c"), "host-1", **WORKER)


async def test_concurrent_hosts_each_get_their_own_machine(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        token = await cluster_token(yard)
        infos = await asyncio.gather(
            *(yard.connect(token, f"host-{n}", role_worker="true", node_name=f"barn-{n}") for n in range(10))
        )
    assert len({info.secret_name for info in infos}) == 10


async def test_changed_server_url_rewrites_registration_command_and_keeps_token(yard: Yard) -> None:
    await yard.cluster()
    async with yard.running():
        token = await cluster_token(yard)
    moved = Site(server_url="https://elsewhere.example:8443", ca_pem=b"another\n")
    async with yard.running(site=moved):
        found = await yard.engine.until(
            SECRETS,
            yard.namespace,
            clusters.registration_secret("c"),
            lambda obj: moved.ca_checksum in text(obj, clusters.COMMAND),
        )
    assert text(found, clusters.TOKEN) == token
    assert f"--token {token} " in text(found, clusters.COMMAND)


async def test_abandoned_registration_requests_are_deleted(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_REQUEST_SECONDS", 1.0)
    await yard.cluster()
    cluster = CLUSTER.decode(await yard.engine.client.get(CLUSTER.target, yard.namespace, "c"))
    values = {"id": ["host-1"], "role-worker": ["true"]}
    await yard.engine.create(SECRETS, yard.namespace, custom.request_secret(cluster, values, "host-1"))
    async with yard.running():
        await yard.engine.gone(SECRETS, yard.namespace, custom.machine_name("host-1"))


async def test_unreadable_registration_request_is_refused_permanently(yard: Yard) -> None:
    await yard.cluster()
    cluster = CLUSTER.decode(await yard.engine.client.get(CLUSTER.target, yard.namespace, "c"))
    request = custom.request_secret(cluster, {}, "host-1")
    request.pop("stringData")
    request["data"] = {custom.DATA: encoded("{")}
    await yard.engine.create(SECRETS, yard.namespace, request)
    async with yard.running():
        found = await yard.engine.until(
            SECRETS,
            yard.namespace,
            custom.machine_name("host-1"),
            lambda obj: custom.REFUSED in obj["metadata"].get("annotations", {}),
        )
        assert "cannot read the request" in found["metadata"]["annotations"][custom.REFUSED]
