"""How workload clusters are dialled, and that caches know of their Secrets without knowing what is in them."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
import yaml

from remuda.capi import names
from remuda.capi.remote import SECRET, cluster_secrets, dialer, secret_data
from remuda.kube.objects import Key
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Retryable
from tests.controllers.engine import Engine


async def put_secret(engine: Engine, namespace: str, data: dict[str, bytes], *, labelled: bool = True) -> None:
    metadata: dict[str, Any] = {"name": "c-kubeconfig"}
    if labelled:
        metadata["labels"] = {names.CLUSTER_NAME: "c"}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
    await engine.create(SECRET.target, namespace, secret)


async def test_dialer_connects_with_kubeconfig_from_secret(engine: Engine) -> None:
    namespace = await engine.namespace()
    await put_secret(engine, namespace, {"value": engine.kubeconfig.read_bytes()})
    client = await dialer(engine.client)(Key(namespace, "c"))
    try:
        assert b"gitVersion" in await client.raw_get("/version")
    finally:
        await client.close()


async def test_dialer_accepts_custom_connect_function(engine: Engine) -> None:
    namespace = await engine.namespace()
    await put_secret(engine, namespace, {"value": engine.kubeconfig.read_bytes()})
    servers: list[str] = []

    def connect(access: Any) -> Any:
        servers.append(access.server)
        return engine.client

    assert await dialer(engine.client, connect)(Key(namespace, "c")) is engine.client
    assert servers == [yaml.safe_load(engine.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]]


def exec_kubeconfig() -> bytes:
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never"}
    }
    return msgspec.json.encode(_kubeconfig(user))


def file_kubeconfig() -> bytes:
    return msgspec.json.encode(_kubeconfig({"tokenFile": "/etc/passwd"}))


def _kubeconfig(user: dict[str, Any]) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "c-kubeconfig does not exist yet"),
        ({"other": b""}, "c-kubeconfig has no key value"),
        ({"value": b": nonsense ["}, "c-kubeconfig"),
        ({"value": exec_kubeconfig()}, "c-kubeconfig"),
        ({"value": file_kubeconfig()}, "c-kubeconfig"),
    ],
)
async def test_unusable_kubeconfig_error_names_secret(
    engine: Engine, data: dict[str, bytes] | None, words: str
) -> None:
    namespace = await engine.namespace()
    if data is not None:
        await put_secret(engine, namespace, data)
    with pytest.raises(Retryable, match=words):
        await dialer(engine.client)(Key(namespace, "c"))


async def test_secret_data_returns_decoded_values_or_none(engine: Engine) -> None:
    namespace = await engine.namespace()
    await put_secret(engine, namespace, {"a": b"\x00\xff"})
    assert await secret_data(engine.client, namespace, "c-kubeconfig") == {"a": b"\x00\xff"}
    assert await secret_data(engine.client, namespace, "missing") is None


async def test_cached_secrets_contain_no_data(engine: Engine) -> None:
    namespace = await engine.namespace()
    await put_secret(engine, namespace, {"value": b"hush"})
    manager = Manager(engine.client, namespace=namespace)
    secrets = cluster_secrets(manager.caches)
    await manager.start()
    try:
        found = secrets.raw(namespace, "c-kubeconfig")
        assert found is not None
        assert base64.b64encode(b"hush") not in found
        assert b'"data"' not in found
    finally:
        await manager.stop()
