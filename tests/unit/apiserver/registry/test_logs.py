from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.auth.user import User
from remuda.apiserver.client import LocalClient
from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.registry.logs import PodLogs
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from tests.unit.apiserver.registry.conftest import JANE, NAMESPACES, Everyone

PODS = Target("v1", "pods")


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[tuple[Registry, PodLogs]]:
    store = await SqliteStore.open(tmp_path / "data")
    registry = Registry(store, Served(builtin_resources()), Everyone())
    logs = PodLogs(registry)
    registry.connect_with("pods", "log", logs.connector())
    client = LocalClient(registry, JANE, field_manager="test")
    await client.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
    for name, node in (("free", ""), ("placed", "n1")):
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x:1"}]}
        if node:
            spec["nodeName"] = node
        await client.create(PODS, "ns", {"metadata": {"name": name}, "spec": spec})
    yield registry, logs
    await store.close()


async def read(registry: Registry, name: str, **query: str) -> bytes:
    resource = registry.resources.find("", "v1", "pods")
    assert resource is not None
    call = registry.authorize(User("jane"), "get", resource, "ns", name, "log")
    return b"".join([chunk async for chunk in registry.connect(call, query)])


@pytest.mark.parametrize(
    ("pod", "code", "message"),
    [
        ("free", 400, "pod free does not have a host assigned"),
        ("placed", 400, "no log of pod placed is at hand: this server cannot reach node n1"),
        ("gone", 404, 'pods "gone" not found'),
    ],
)
async def test_missing_pod_log_error_states_reason(
    logs: tuple[Registry, PodLogs], pod: str, code: int, message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        await read(logs[0], pod)
    assert (caught.value.code, caught.value.message) == (code, message)


async def test_pod_log_sources_are_tried_in_order(logs: tuple[Registry, PodLogs]) -> None:
    asked: list[str] = []

    def other(pod: dict[str, Any], query: Mapping[str, str]) -> AsyncIterator[bytes] | None:
        asked.append("other")
        return None

    def mine(pod: dict[str, Any], query: Mapping[str, str]) -> AsyncIterator[bytes] | None:
        asked.append("mine")

        async def lines() -> AsyncIterator[bytes]:
            yield f"{pod['metadata']['name']} tail {query['tailLines']}\n".encode()
            yield b"end\n"

        return lines()

    logs[1].add(other)
    logs[1].add(mine)
    assert await read(logs[0], "placed", tailLines="5") == b"placed tail 5\nend\n"
    assert asked == ["other", "mine"]
