"""What a simulated server does once it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.types import Machine, MachineSpec
from remuda.kube.objects import ObjectMeta
from remuda.lab.simulator import loop as virtual
from remuda.lab.simulator import nodes
from remuda.lab.simulator.cloud import CloudHost
from remuda.lab.simulator.etcd import Etcd
from remuda.lab.simulator.types import MachineScript
from remuda.lab.simulator.workload import ModelWorkload

HOST = CloudHost(name="m", tag="ns/c", number=7, created_at=0, ready_at=0)
WORKER = Machine(metadata=ObjectMeta(name="m"), spec=MachineSpec(version="v1.35.2"))
CONTROL_PLANE = Machine(metadata=ObjectMeta(name="m", labels={names.CONTROL_PLANE: ""}))


def conditions(node: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in node["status"]["conditions"]}


def test_node_is_built_from_machine_and_host() -> None:
    node = nodes.node(WORKER, HOST)
    assert node["spec"]["providerID"] == HOST.provider_id
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.2"
    assert node["spec"]["taints"] == [{"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}]
    assert conditions(node) == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }


def test_control_plane_node_has_role_label() -> None:
    role = "node-role.kubernetes.io/control-plane"
    assert role in nodes.node(CONTROL_PLANE, HOST)["metadata"]["labels"]
    assert role not in nodes.node(WORKER, HOST)["metadata"]["labels"]


async def test_node_registration_is_idempotent() -> None:
    client = ModelWorkload()
    assert await nodes.find(client, "m") is None
    await nodes.register(client, WORKER, HOST)
    before = await nodes.find(client, "m")
    await nodes.register(client, WORKER, HOST)
    assert await nodes.find(client, "m") == before is not None


def test_first_server_bootstraps_etcd_and_second_server_joins() -> None:
    etcd = Etcd()
    assert nodes.join_etcd(etcd, "m0") == ""
    assert nodes.join_etcd(etcd, "m0") == ""
    assert nodes.join_etcd(etcd, "m1") == ""
    assert [member.name for member in etcd.voters] == ["m0", "m1"]


def test_joining_server_waits_until_etcd_learner_has_caught_up() -> None:
    async def main() -> list[bool]:
        etcd = Etcd(catch_up_seconds=3)
        nodes.join_etcd(etcd, "m0")
        answers = [bool(nodes.join_etcd(etcd, "m1"))]
        await asyncio.sleep(3)
        return [*answers, bool(nodes.join_etcd(etcd, "m1"))]

    assert virtual.run(main()) == [True, False]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (MachineScript(), ("", 0.0)),
        (MachineScript(node_fails_after_seconds=30), ("fails", 20.0)),
        (MachineScript(node_fails_after_seconds=30, node_vanishes_after_seconds=15), ("vanishes", 5.0)),
        (MachineScript(node_vanishes_after_seconds=5), ("vanishes", 0.0)),
    ],
)
def test_node_trouble_follows_the_machine_script(script: MachineScript, expected: tuple[str, float]) -> None:
    async def main() -> tuple[str, float]:
        client = ModelWorkload()
        await nodes.register(client, WORKER, HOST)
        await asyncio.sleep(10)
        found = await nodes.find(client, "m")
        assert found is not None
        return nodes.trouble(script, found)

    what, seconds = virtual.run(main())
    assert (what, pytest.approx(seconds)) == expected


async def test_revived_node_does_not_fail_again() -> None:
    client = ModelWorkload()
    script = MachineScript(node_fails_after_seconds=0)
    await nodes.register(client, WORKER, HOST)
    await nodes.fail(client, "m")
    failed = await nodes.find(client, "m")
    assert failed is not None
    assert conditions(failed)["Ready"] == "False"
    assert nodes.trouble(script, failed) == ("", 0.0)
    await nodes.revive(client, "m")
    revived = await nodes.find(client, "m")
    assert revived is not None
    assert conditions(revived)["Ready"] == "True"
    assert nodes.trouble(script, revived) == ("", 0.0)


async def test_node_vanish_is_idempotent() -> None:
    client = ModelWorkload()
    await nodes.register(client, WORKER, HOST)
    await nodes.remove_node(client, "m")
    await nodes.remove_node(client, "m")
    assert msgspec.json.encode(list((await client.list(nodes.NODES)).items)) == b"[]"
