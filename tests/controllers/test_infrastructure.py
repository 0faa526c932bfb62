"""RKEClusters: the endpoint a client can use, and what a driver makes for a cluster as a whole, by real Jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi import names as capi_names
from remuda.capi.setup import add_controllers
from remuda.capi.types import CLUSTER, MACHINE
from remuda.jobs.runner import JobRunner
from remuda.kube.core import JOBS, ROLE_BINDINGS, ROLES, SECRET, SECRETS, SERVICE_ACCOUNTS
from remuda.providers.bootstrap.definitions import definitions
from remuda.providers.infrastructure import controller
from remuda.providers.infrastructure.endpoint import BEFORE
from remuda.providers.machine import definitions as node_drivers
from remuda.providers.machine import leaks
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import ClusterOrder
from remuda.providers.shared.jobs.budget import Rules
from remuda.providers.shared.jobs.cluster_job import ClusterStateSecret
from remuda.providers.shared.jobs.settings import MachineSettings
from remuda.providers.shared.types.infrastructure import ENDPOINT_MACHINE, RKE_CLUSTER
from remuda.providers.shared.types.machine import NODE_DRIVER
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.jobs import Runner
from tests.lab.balancers import Greeters, reached
from tests.lab.drivers import processes_below
from tests.lab.ports import free_port

PROCESS = {"infrastructure": {"driver": "process"}}


class InfrastructureHarness:
    """One Cluster; its Machines are played by the test."""

    def __init__(self, engine: Engine, namespace: str, directory: Path) -> None:
        self.engine = engine
        self.namespace = namespace
        self.jobs = Runner(engine, directory)

    @asynccontextmanager
    async def running(self, *, run_jobs: bool = True) -> AsyncIterator[Manager]:
        def add(manager: Manager) -> None:
            add_controllers(manager, only=("cluster",))
            rules = Rules(first_seconds=0.2, most_seconds=0.2)
            controller.add(manager, MachineSettings(rules=rules, job_key=self.jobs.settings.key))
            if run_jobs:
                JobRunner(manager, self.jobs.settings)

        async with self.engine.running(self.namespace, add) as manager:
            yield manager

    async def cluster(self, **spec: Any) -> None:
        body = {"apiVersion": names.API_VERSION, "kind": "RKECluster", "metadata": {"name": "c"}, "spec": spec}
        await self.engine.create(RKE_CLUSTER.target, self.namespace, body)
        reference = {"apiGroup": names.GROUP, "kind": "RKECluster", "name": "c"}
        await self.create(CLUSTER, "c", {"infrastructureRef": reference})

    async def create(self, kind: Any, name: str, spec: Json, labels: Json | None = None) -> None:
        metadata = {"name": name, "labels": labels or {}}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        await self.engine.create(kind.target, self.namespace, body)

    async def server(self, name: str, address: str, *, control_plane: bool = True) -> None:
        """A Machine whose Node is there."""
        labels = {capi_names.CLUSTER_NAME: "c"} | ({capi_names.CONTROL_PLANE: ""} if control_plane else {})
        reference = {"apiGroup": names.MACHINE_GROUP, "kind": "TestMachine", "name": name}
        spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference}
        await self.create(MACHINE, name, spec, labels)
        addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        await self.engine.status(
            MACHINE.target, self.namespace, name, {"addresses": addresses, "nodeRef": {"name": name}}
        )

    async def until(self, holds: Any) -> Json:
        return await self.engine.until(RKE_CLUSTER.target, self.namespace, "c", holds)

    async def copy(self, host: str) -> None:
        await self.engine.until(
            CLUSTER.target,
            self.namespace,
            "c",
            lambda obj: obj["spec"].get("controlPlaneEndpoint", {}).get("host") == host,
        )


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine, tmp_path: Path) -> AsyncIterator[InfrastructureHarness]:
    await engine.install(definitions())
    yield InfrastructureHarness(engine, await engine.namespace(), tmp_path)
    for pid in processes_below(tmp_path):
        os.kill(pid, signal.SIGKILL)


def _host(obj: Json) -> str:
    return obj.get("spec", {}).get("controlPlaneEndpoint", {}).get("host", "")  # type: ignore[no-any-return]


# the endpoint


async def test_endpoint_points_to_live_server_and_moves_when_server_is_deleted(harness: InfrastructureHarness) -> None:
    await harness.cluster()
    async with harness.running():
        await harness.until(lambda obj: is_true(obj, "Ready"))
        assert _host(await harness.until(lambda obj: True)) == "", "nothing answers yet"
        await harness.server("worker", "192.0.2.9", control_plane=False)
        await harness.server("one", "192.0.2.1")
        made = await harness.until(lambda obj: _host(obj) == "192.0.2.1")
        assert made["spec"]["controlPlaneEndpoint"]["port"] == 6443
        assert made["metadata"]["annotations"][ENDPOINT_MACHINE] == "one"
        await harness.copy("192.0.2.1")
        await harness.server("two", "192.0.2.2")
        await harness.engine.delete(MACHINE.target, harness.namespace, "one")
        moved = await harness.until(lambda obj: _host(obj) == "192.0.2.2")
        assert moved["metadata"]["annotations"][BEFORE] == "192.0.2.1:6443"
        await harness.copy("192.0.2.2")


async def test_interrupted_endpoint_move_is_completed(harness: InfrastructureHarness) -> None:
    await harness.cluster()
    async with harness.running():
        await harness.server("one", "192.0.2.1")
        await harness.copy("192.0.2.1")
    annotations = {ENDPOINT_MACHINE: "two", BEFORE: "192.0.2.1:6443"}
    patch = {"metadata": {"annotations": annotations}, "spec": {"controlPlaneEndpoint": {"host": "192.0.2.2"}}}
    await harness.engine.patch(RKE_CLUSTER.target, harness.namespace, "c", patch)
    await harness.server("two", "192.0.2.2")
    async with harness.running():
        await harness.copy("192.0.2.2")


async def test_user_supplied_endpoint_is_never_changed(harness: InfrastructureHarness) -> None:
    await harness.cluster(controlPlaneEndpoint={"host": "api.example", "port": 443})
    async with harness.running() as manager:
        await harness.copy("api.example")
        await harness.server("one", "192.0.2.1")
        await harness.engine.until(
            CLUSTER.target,
            harness.namespace,
            "c",
            lambda obj: obj["status"].get("initialization", {}).get("controlPlaneInitialized"),
        )
        del manager
    found = await harness.until(lambda obj: True)
    assert _host(found) == "api.example"
    assert ENDPOINT_MACHINE not in found["metadata"].get("annotations", {})


# what a driver makes


async def test_load_balancer_is_created_before_machines_and_removed_after_last(
    harness: InfrastructureHarness, tmp_path: Path
) -> None:
    hosts = harness.jobs.settings.hosts
    address = f"127.0.60.{free_port() % 250 + 1}"
    await harness.cluster(infrastructure={"driver": "process", "options": {"address": address}})
    async with harness.running() as manager:
        made = await harness.until(
            lambda obj: is_true(obj, "InfrastructureReady") and obj["status"]["initialization"].get("provisioned")
        )
        assert _host(made) == address
        assert ENDPOINT_MACHINE not in made["metadata"].get("annotations", {}), "it stands before the servers"
        await harness.copy(address)
        greeters = Greeters(["127.0.60.253", "127.0.60.254"])
        greeters.port = 6443
        async with greeters.serving():
            for name, server in (("one", "127.0.60.253"), ("two", "127.0.60.254")):
                await harness.server(name, server)
            assert await reached(address, 6443, 2) == greeters.addresses
        await harness.engine.delete(RKE_CLUSTER.target, harness.namespace, "c")
        waits = await harness.until(lambda obj: condition(obj, "Ready").get("reason") == "WaitingForMachines")
        assert "one, two" in condition(waits, "Ready")["message"]
        assert processes_below(hosts), "machines may still need it"
        for name in ("one", "two"):
            await harness.engine.delete(MACHINE.target, harness.namespace, name)
        await harness.engine.gone(RKE_CLUSTER.target, harness.namespace, "c")
        assert manager is not None
    assert processes_below(hosts) == []
    assert [path.name for path in (hosts / "process").iterdir()] == [".lock"]
    for target in (JOBS, SECRETS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS):
        left = [obj["metadata"]["name"] for obj in await harness.engine.list(target, harness.namespace)]
        assert [name for name in left if name.startswith("c-cluster")] == [], target.plural


async def test_invalid_infrastructure_options_stall_with_advice(harness: InfrastructureHarness) -> None:
    await harness.cluster(infrastructure={"driver": "process", "options": {"address": "192.0.2.1"}})
    async with harness.running():
        stalled = await harness.until(lambda obj: is_true(obj, "Stalled"))
        message = condition(stalled, "Stalled")["message"]
        assert "not an address of 127.0.0.0/8" in message
        assert "Change spec.infrastructure" in message
        assert not stalled["status"].get("initialization", {}).get("provisioned")
        spec = {"infrastructure": {"options": {"address": None}}}
        await harness.engine.patch(RKE_CLUSTER.target, harness.namespace, "c", {"spec": spec})
        made = await harness.until(lambda obj: is_true(obj, "InfrastructureReady"))
        assert condition(made, "Stalled") == {}
        await harness.engine.delete(RKE_CLUSTER.target, harness.namespace, "c")
        await harness.engine.gone(RKE_CLUSTER.target, harness.namespace, "c")


@pytest.mark.parametrize(
    ("driver", "said"), [("sim", "cannot create cluster infrastructure"), ("nowhere", "driver nowhere not found")]
)
async def test_unknown_or_unsupported_infrastructure_driver_is_reported(
    harness: InfrastructureHarness, driver: str, said: str
) -> None:
    await harness.cluster(infrastructure={"driver": driver})
    async with harness.running():
        held = await harness.until(lambda obj: condition(obj, "Ready").get("reason") == "NoSuchDriver")
        assert said in condition(held, "Ready")["message"]
        await harness.engine.delete(RKE_CLUSTER.target, harness.namespace, "c")
        await harness.engine.gone(RKE_CLUSTER.target, harness.namespace, "c")


async def test_created_infrastructure_is_kept_when_removed_from_spec(harness: InfrastructureHarness) -> None:
    await harness.cluster(**PROCESS)
    async with harness.running():
        await harness.until(lambda obj: is_true(obj, "InfrastructureReady"))
        spec = {"infrastructure": {"driver": "nspawn"}}
        await harness.engine.patch(RKE_CLUSTER.target, harness.namespace, "c", {"spec": spec})
        held = await harness.until(lambda obj: condition(obj, "Ready").get("reason") == "CannotChange")
        assert "driver process created the cluster infrastructure" in condition(held, "Ready")["message"]
        await harness.engine.patch(RKE_CLUSTER.target, harness.namespace, "c", {"spec": {"infrastructure": None}})
        await harness.until(lambda obj: "no longer asks for any" in condition(obj, "Ready")["message"])
        assert processes_below(harness.jobs.settings.hosts)
        await harness.engine.delete(RKE_CLUSTER.target, harness.namespace, "c")
        await harness.engine.gone(RKE_CLUSTER.target, harness.namespace, "c")
    assert processes_below(harness.jobs.settings.hosts) == []


async def test_infrastructure_of_deleted_cluster_is_reported_as_leak(harness: InfrastructureHarness) -> None:
    engine, hosts = harness.engine, harness.jobs.settings.hosts
    await engine.install([node_drivers.node_driver()])
    if await engine.get(NODE_DRIVER.target, "", "process") is None:
        driver = {"apiVersion": NODE_DRIVER.api_version, "kind": "NodeDriver", "metadata": {"name": "process"}}
        await engine.create(NODE_DRIVER.target, "", {**driver, "spec": {"active": True, "url": "local://"}})
    await harness.cluster(**PROCESS)
    async with harness.running():
        made = await harness.until(lambda obj: is_true(obj, "InfrastructureReady"))
        assert list((await leaks.find(engine.client, leaks.LeakSearchScope(hosts), ["process"])).leaks) == []
    await engine.patch(RKE_CLUSTER.target, harness.namespace, "c", {"metadata": {"finalizers": None}})
    await engine.delete(RKE_CLUSTER.target, harness.namespace, "c")
    (leak,) = (await leaks.find(engine.client, leaks.LeakSearchScope(hosts), ["process"])).leaks
    assert (leak.what, leak.id, leak.cluster) == (
        "cluster infrastructure",
        made["status"]["infrastructure"]["id"],
        f"{harness.namespace}/c",
    )


async def test_driver_notes_persist_for_next_job(harness: InfrastructureHarness) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c-cluster-state"}}
    await harness.engine.create(SECRETS, harness.namespace, secret)
    order = ClusterOrder(
        driver="process", action="ensure", name="c", namespace=harness.namespace, cluster="c", uid="u", owner="us",
        state_secret="c-cluster-state",
    )  # fmt: skip

    async def notes() -> ClusterStateSecret:
        value = await harness.engine.client.get(SECRETS, harness.namespace, "c-cluster-state")
        return ClusterStateSecret(harness.engine.client, order, SECRET.decode(value).data)

    first = await notes()
    await first.save({"subnet": "s-1"})
    await first.save_private_key("the very secret key")
    again = await notes()
    assert (again.value, again.private_key) == ({"subnet": "s-1"}, "the very secret key")
