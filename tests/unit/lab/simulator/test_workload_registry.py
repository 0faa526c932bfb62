"""Workload clusters by name: models in memory and real servers keep the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.kube import kubeconfig
from remuda.kube.errors import StatusError, Unreachable
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key
from remuda.lab.simulator.served import VIOLATIONS, ServedWorkloads
from remuda.lab.simulator.workload_registry import ModelWorkloads, Workloads
from tests.unit.lab.simulator.test_workload import NODES, node

C1, C2 = Key("ns", "c1"), Key("ns", "c2")


@pytest.fixture(params=["model", "served"])
async def workloads(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workloads]:
    made: Workloads = ModelWorkloads() if request.param == "model" else ServedWorkloads(tmp_path)
    yield made
    await made.close()


async def started(workloads: Workloads, cluster: Key) -> None:
    workloads.etcd(cluster).bootstrap("m0")
    await workloads.start(cluster)


async def test_workload_api_is_reachable_only_after_start(workloads: Workloads) -> None:
    with pytest.raises(Unreachable, match="ns/c1 is not up"):
        await workloads.dial(C1)
    await started(workloads, C1)
    client = await workloads.dial(C1)
    assert await workloads.start(C1) is client
    await client.create(NODES, "", node("n1"))
    assert len((await client.list(NODES)).items) == 1


async def test_workload_clusters_are_isolated(workloads: Workloads) -> None:
    await asyncio.gather(started(workloads, C1), started(workloads, C2))
    await (await workloads.dial(C1)).create(NODES, "", node("n1"))
    assert (await (await workloads.dial(C2)).list(NODES)).items == []
    assert await workloads.endpoint(C1) != await workloads.endpoint(C2)


async def test_workload_endpoint_is_known_before_start_and_stable(workloads: Workloads) -> None:
    before = await workloads.endpoint(C1)
    await started(workloads, C1)
    assert before.valid
    assert await workloads.endpoint(C1) == before
    config = await workloads.kubeconfig(C1)
    assert config["clusters"][0]["cluster"]["server"] == f"https://{before}"
    assert (config["clusters"][0]["name"], config["users"][0]["name"]) == ("c1", "c1-admin")


async def test_removed_workload_loses_its_objects(workloads: Workloads) -> None:
    await started(workloads, C1)
    client = await workloads.dial(C1)
    await client.create(NODES, "", node("n1"))
    await workloads.remove(C1)
    await workloads.remove(C1)
    with pytest.raises(Unreachable):
        await workloads.dial(C1)
    await started(workloads, C1)
    assert (await (await workloads.dial(C1)).list(NODES)).items == []


async def test_model_workload_without_quorum_rejects_writes() -> None:
    workloads = ModelWorkloads()
    client = await workloads.start(C1)
    with pytest.raises(StatusError, match="no leader"):
        await client.create(NODES, "", node("n1"))
    workloads.etcd(C1).bootstrap("m0")
    await client.create(NODES, "", node("n1"))


async def test_violations_are_kept_after_cluster_removal() -> None:
    workloads = ModelWorkloads()
    for cluster in (C1, C2):
        workloads.etcd(cluster).bootstrap("m0")
        workloads.etcd(cluster).take_host("m0")
    await workloads.remove(C1)
    assert [violation.split(":")[0] for violation in workloads.violations] == ["ns/c1", "ns/c2"]


async def test_violations_of_served_workload_are_written_to_disk(tmp_path: Path) -> None:
    served = ServedWorkloads(tmp_path)
    etcd = served.etcd(Key("default", "c"))
    etcd.bootstrap("first")
    assert not (tmp_path / VIOLATIONS).exists()
    etcd.take_host("first")
    written = (tmp_path / VIOLATIONS).read_text()
    assert written == "".join(f"default/c: {how}\n" for how in etcd.violations)
    assert "the quorum was lost by removing the host of first" in written


async def test_served_workload_restarts_with_same_data_and_endpoint(tmp_path: Path) -> None:
    first = ServedWorkloads(tmp_path)
    await (await first.start(C1)).create(NODES, "", node("n1"))
    config, endpoint = await first.kubeconfig(C1), await first.endpoint(C1)
    await first.close()
    second = ServedWorkloads(tmp_path)
    client = await second.start(C1)
    assert len((await client.list(NODES)).items) == 1
    assert (await second.kubeconfig(C1), await second.endpoint(C1)) == (config, endpoint)
    await second.close()


async def test_kubeconfig_of_served_workload_connects(tmp_path: Path) -> None:
    import yaml

    workloads = ServedWorkloads(tmp_path)
    await (await workloads.start(C1)).create(NODES, "", node("n1"))
    access = kubeconfig.parse(yaml.safe_dump(await workloads.kubeconfig(C1)).encode())
    client = HttpClient(access)
    assert len((await client.list(NODES)).items) == 1
    await client.close()
    await workloads.close()


async def test_served_workload_is_shared_between_registries(tmp_path: Path) -> None:
    one, other = ServedWorkloads(tmp_path), ServedWorkloads(tmp_path)
    await (await one.start(C1)).create(NODES, "", node("n1"))
    client = await other.start(C1)
    await client.create(NODES, "", node("n2"))
    assert len((await (await one.dial(C1)).list(NODES)).items) == 2
    assert (await other.kubeconfig(C1))["clusters"][0]["cluster"]["server"] == f"https://{await one.endpoint(C1)}"
    await other.close()
    await one.close()


async def test_served_workload_ports_are_unique_and_in_range(tmp_path: Path) -> None:
    workloads = ServedWorkloads(tmp_path)
    ports = [(await workloads.endpoint(Key("ns", f"c{number}"))).port for number in range(20)]
    assert len(set(ports)) == 20
    assert all(20_000 <= port < 32_768 for port in ports)
