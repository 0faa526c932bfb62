"""`remuda up` dies before and after everything it does for a control plane, and the cluster comes about all the same,
changes in place, loses a member of etcd in good order and goes: one beginning, one pair of tokens, nothing left.

Hosts are model agents; the cluster's own API is an engine whose authority the cluster was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import names as capi_names
from remuda.capi.machine.workload import NODE
from remuda.capi.types import CLUSTER, MACHINE
from remuda.kube import clock, kubeconfig
from remuda.kube.client import Client
from remuda.kube.core import SECRETS
from remuda.kube.http import HttpClient
from remuda.kube.objects import Kind
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager
from tests.controllers.bootstrap_harness import TEST_MACHINE
from tests.controllers.control_plane_harness import SERVER, VERSION, WORKER, Hosts, QuickAgents
from tests.faults import register
from tests.faults.machines.scenario import NAMESPACE, RetryingClient
from tests.faults.supervised_up import SupervisedUp, running
from tests.lab.limits import LIMIT_SECONDS

_SUITE = "tests/faults/controllers/test_control_plane_points.py"
_K3S = "etcd.k3s.cattle.io"
_MACHINES = {"s1": SERVER, "s2": SERVER, "s3": SERVER, "w1": WORKER}
_DRAIN = {"enabled": True, "force": True}

Json = dict[str, Any]


@asynccontextmanager
async def agents(up: SupervisedUp, hosts: Hosts) -> AsyncIterator[None]:
    client = HttpClient(kubeconfig.load(up.data / "admin.kubeconfig"))
    manager = Manager(client, namespace=NAMESPACE, name="agents", interval=0.1)
    QuickAgents(manager, hosts)
    await manager.start()
    manager.lead()
    try:
        yield
    finally:
        await manager.stop()
        await client.close()


async def make(
    retrying_client: RetryingClient, kind: Kind[Any], name: str, spec: Json, labels: Json | None = None
) -> None:
    await retrying_client.make(kind.target, NAMESPACE, kind.name, name, metadata={"labels": labels or {}}, spec=spec)


async def declare(retrying_client: RetryingClient, workload: ApiServer, folder: Path) -> None:
    authority = {
        name: (folder / "pki" / file).read_text() for name, file in (("tls.crt", "ca.crt"), ("tls.key", "ca.key"))
    }
    await retrying_client.make(SECRETS, NAMESPACE, "Secret", "c-ca", stringData=authority)
    await make(retrying_client, RKE_CLUSTER, "c", {})
    spec = {
        "kubernetesVersion": VERSION,
        "clusterName": "c",
        "controlPlaneEndpoint": {"host": "127.0.0.1", "port": workload.front.port},
        "upgradeStrategy": {"workerDrainOptions": _DRAIN},
    }
    await make(retrying_client, RKE_CONTROL_PLANE, "c", spec)
    await retrying_client.until(RKE_CONTROL_PLANE.target, NAMESPACE, "c", lambda obj: "WaitingForCluster" in str(obj))
    references = {
        "infrastructureRef": {"apiGroup": names.GROUP, "kind": "RKECluster", "name": "c"},
        "controlPlaneRef": {"apiGroup": names.GROUP, "kind": "RKEControlPlane", "name": "c"},
    }
    await make(retrying_client, CLUSTER, "c", references)


async def machine(retrying_client: RetryingClient, name: str, roles: Json, number: int) -> None:
    labels = {**roles, capi_names.CLUSTER_NAME: "c"}
    await make(retrying_client, RKE_BOOTSTRAP, name, {"clusterName": "c"}, labels)
    target = TEST_MACHINE.target
    await retrying_client.make(target, NAMESPACE, TEST_MACHINE.name, name, spec={"providerID": f"test://{name}"})
    spec = {
        "clusterName": "c",
        "bootstrap": {"configRef": {"apiGroup": names.GROUP, "kind": "RKEBootstrap", "name": name}},
        "infrastructureRef": TEST_MACHINE.reference(name),
    }
    await make(retrying_client, MACHINE, name, spec, labels)
    addresses = [{"type": "InternalIP", "address": f"10.0.0.{number}"}]
    await retrying_client.patch_status(
        target, NAMESPACE, name, {"initialization": {"provisioned": True}, "addresses": addresses}
    )
    await retrying_client.until(RKE_BOOTSTRAP.target, NAMESPACE, name, lambda obj: said(obj, "AgentConnected"))
    found = await retrying_client.get(RKE_BOOTSTRAP.target, NAMESPACE, name)
    assert found is not None
    kept = [one for one in found["status"]["conditions"] if one["type"] != "AgentConnected"]
    called = {"type": "AgentConnected", "status": "True", "reason": "Connected", "message": ""}
    news = [*kept, {**called, "lastTransitionTime": clock.now()}]
    await retrying_client.patch_status(RKE_BOOTSTRAP.target, NAMESPACE, name, {"conditions": news})


async def node(workload: Client, name: str) -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/etcd": "true"}},
        "spec": {"providerID": f"test://{name}"},
    }
    await workload.create(NODE.target, "", obj)
    conditions = [
        {"type": type, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": clock.now()}
        for type in ("Ready", "EtcdIsVoter")
    ]
    status = {"conditions": conditions, "nodeInfo": {"kubeletVersion": VERSION}}
    await workload.patch(NODE.target, "", name, {"status": status}, subresource="status")


async def leave(retrying_client: RetryingClient, workload: Client, hosts: Hosts, name: str) -> None:
    """As the distribution does it, when it is asked."""
    await retrying_client.delete(MACHINE.target, NAMESPACE, name)
    async with asyncio.timeout(LIMIT_SECONDS):
        while f'{_K3S}/remove":"true"'.encode() not in await workload.get(NODE.target, "", name):
            await asyncio.sleep(0.2)
    hosts.members.remove(name)
    left = {"metadata": {"annotations": {f"{_K3S}/removed-node-name": f"{name}-0a1b"}}}
    await workload.patch(NODE.target, "", name, left)
    await retrying_client.until(MACHINE.target, NAMESPACE, name, lambda obj: obj is None)


def said(obj: Json | None, type: str) -> str:
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next((one["status"] for one in conditions if one["type"] == type), "")


def is_ready(generation: int) -> Any:
    return lambda obj: said(obj, "Ready") == "True" and obj["status"].get("observedGeneration", 0) >= generation


async def change(retrying_client: RetryingClient, **spec: Any) -> None:
    await retrying_client.patch(RKE_CONTROL_PLANE.target, NAMESPACE, "c", {"spec": spec})
    found = await retrying_client.get(RKE_CONTROL_PLANE.target, NAMESPACE, "c")
    assert found is not None
    await retrying_client.until(RKE_CONTROL_PLANE.target, NAMESPACE, "c", is_ready(found["metadata"]["generation"]))


async def test_control_plane_recovers_from_crash_at_every_point(tmp_path: Path) -> None:
    hosts = Hosts()
    hosts.failing["w1"] = "not yet"  # at first: it has to be asked once more
    workload = await ApiServer.start(ServerSettings(data_dir=tmp_path / "workload", port=0))
    try:
        async with running(tmp_path, register.points(_SUITE)) as (up, client):
            retrying_client = RetryingClient(client)
            await retrying_client.until_answered(lambda: install(client, [TEST_MACHINE.definition()]))
            async with agents(up, hosts):
                await live(retrying_client, workload, hosts, tmp_path / "workload")
            print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
            assert up.left == set(), "the scenario has not come here"
    finally:
        await workload.stop()


async def live(retrying_client: RetryingClient, workload: ApiServer, hosts: Hosts, folder: Path) -> None:
    api = workload.client()
    await declare(retrying_client, workload, folder)
    for number, (name, roles) in enumerate(_MACHINES.items(), 1):
        if roles is WORKER:  # its plan, which fails, is then the last: no other server is put into it
            for server in list(_MACHINES)[: number - 1]:
                await retrying_client.until(
                    MACHINE.target, NAMESPACE, server, lambda obj: said(obj, "Reconciled") == "True"
                )
        await machine(retrying_client, name, dict(roles), number)
        await node(api, name)
    await retrying_client.until(MACHINE.target, NAMESPACE, "w1", lambda obj: said(obj, "PlanApplied") == "False")
    hosts.failing.clear()
    await retrying_client.until(RKE_CONTROL_PLANE.target, NAMESPACE, "c", is_ready(1))
    tokens = await retrying_client.get(SECRETS, NAMESPACE, "c-rke-state")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": "w1", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
    }
    await api.create(NODE.target._replace(plural="pods"), "default", pod)
    await change(retrying_client, machineGlobalConfig={"kubelet-arg": ["max-pods=50"]})
    await change(retrying_client, controlPlaneEndpoint={"host": "localhost", "port": workload.front.port})
    marked = [name for name in _MACHINES if await is_init(retrying_client, name)]
    assert len(marked) == 1, "the cluster was begun once"
    await leave(retrying_client, api, hosts, marked[0])
    await retrying_client.until(RKE_CONTROL_PLANE.target, NAMESPACE, "c", is_ready(1))
    kept = await retrying_client.get(SECRETS, NAMESPACE, "c-rke-state")
    assert tokens is not None
    assert kept is not None
    assert kept["data"] == tokens["data"]
    assert sorted(set(hosts.members)) == sorted(hosts.members) == sorted({"s1", "s2", "s3"} - {marked[0]})
    await retrying_client.delete(CLUSTER.target, NAMESPACE, "c")
    for target in (CLUSTER.target, RKE_CONTROL_PLANE.target):
        await retrying_client.until(target, NAMESPACE, "c", lambda obj: obj is None)
    assert await retrying_client.names(MACHINE.target) == []


async def is_init(retrying_client: RetryingClient, name: str) -> bool:
    found = await retrying_client.get(RKE_BOOTSTRAP.target, NAMESPACE, name)
    return found is not None and found["metadata"]["labels"].get(names.INIT_NODE) == "true"
