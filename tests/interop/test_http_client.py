"""Our client on the real kube-apiserver: what it does on ours, and what only the real one can show."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.http import HttpClient
from tests.lab import Upstream
from tests.suites.client import (
    ACCOUNTS,
    CONFIGMAPS,
    NAMESPACES,
    PODS,
    ClientSuite,
    config,
    define_horses,
    loads,
    names,
    refusal,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(upstream: Upstream) -> AsyncIterator[Client]:
    made = HttpClient(kubeconfig.load(upstream.kubeconfig, environ={}))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def horses(client: Client) -> Target:
    return await define_horses(client, f"h{secrets.token_hex(3)}.example")


@pytest_asyncio.fixture(loop_scope="module")
async def space(client: Client) -> str:
    name = f"space-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


class TestOnTheRealServer(ClientSuite):
    pass


async def test_large_lists_are_decompressed_completely(client: Client, space: str) -> None:
    for number in range(30):
        await client.create(CONFIGMAPS, space, config(f"big-{number:02}", a="x" * 10_000))
    found = await client.list(CONFIGMAPS, space, field_selector="metadata.name!=kube-root-ca.crt")
    assert names(found.items) == [f"big-{number:02}" for number in range(30)]
    assert all(len(loads(item)["data"]["a"]) == 10_000 for item in found.items)


async def test_strategic_merge_patch_merges_lists_by_key(client: Client, space: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "one"}]}}
    await client.create(PODS, space, pod)
    patch = {"spec": {"containers": [{"name": "a", "image": "two"}]}}
    found = loads(await client.patch(PODS, space, "p", patch, kind="strategic"))
    assert [(one["name"], one["image"]) for one in found["spec"]["containers"]] == [("a", "two")]


async def test_budget_refuses_an_eviction_at_once(client: Client, space: str) -> None:
    pod = {
        "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "one"}]},
    }
    await client.create(PODS, space, pod)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(PODS, space, "p", {"status": running}, subresource="status")
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}
    budgets = Target("policy/v1", "poddisruptionbudgets")
    await client.create(budgets, space, budget)
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await client.patch(budgets, space, "b", {"status": {**status, "expectedPods": 1}}, subresource="status")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    error = await refusal(client.create(PODS, space, eviction, name="p", subresource="eviction"))
    assert (error.code, error.details["causes"][0]["reason"]) == (429, "DisruptionBudget")


async def test_token_file_and_exec_credentials_authenticate(
    upstream: Upstream, client: Client, space: str, tmp_path: Path
) -> None:
    """A service account's token, each way a kubeconfig can give it."""
    await client.create(ACCOUNTS, space, {"metadata": {"name": "robot"}})
    ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = loads(await client.create(ACCOUNTS, space, ask, name="robot", subresource="token"))["status"]["token"]
    (tmp_path / "token").write_text(f"{token}\n")
    version = "client.authentication.k8s.io/v1"
    printed = {"kind": "ExecCredential", "apiVersion": version, "status": {"token": token}}
    program = ["-c", f"print({msgspec.json.encode(printed).decode()!r})"]
    ways = [
        {"token": token},
        {"tokenFile": "token"},
        {"exec": {"apiVersion": version, "command": sys.executable, "args": program, "interactiveMode": "Never"}},
    ]
    for way in ways:
        config_of = kubeconfig.build(upstream.url, ca_pem=upstream.ca_pem)
        config_of["users"][0]["user"] = way
        kubeconfig.write(tmp_path / "config", config_of)
        robot = HttpClient(kubeconfig.load(tmp_path / "config", environ={}))
        error = await refusal(robot.list(CONFIGMAPS, space))
        await robot.close()
        assert error.code == 403
        assert f'User "system:serviceaccount:{space}:robot" cannot list' in error.message


async def test_impersonation_headers_are_honoured(
    upstream: Upstream, client: Client, space: str, tmp_path: Path
) -> None:
    config_of = loads(msgspec.json.encode(msgspec.yaml.decode(upstream.kubeconfig.read_bytes())))
    config_of["users"][0]["user"] |= {"as": "jane", "as-groups": ["g"], "as-user-extra": {"a/b": ["c"]}}
    kubeconfig.write(tmp_path / "config", config_of)
    jane = HttpClient(kubeconfig.load(tmp_path / "config", environ={}))
    review = Target("authentication.k8s.io/v1", "selfsubjectreviews")
    found = loads(await jane.create(review, "", {}))["status"]["userInfo"]
    await jane.close()
    assert (found["username"], found["extra"]) == ("jane", {"a/b": ["c"]})
    assert "g" in found["groups"]


async def test_metadata_only_list_omits_data(client: Client, space: str) -> None:
    await client.create(CONFIGMAPS, space, config("m", {"m": "1"}, a="x"))
    (item,) = (await client.list(CONFIGMAPS, space, label_selector="m=1", metadata_only=True)).items
    assert loads(item)["kind"] == "PartialObjectMetadata"
    assert "data" not in loads(item)
