"""The real kubectl and client-go through the proxy and a tunnel to the real kube-apiserver."""

from __future__ import annotations

import asyncio
import json
import secrets
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.access.conftest import ID
from tests.lab import Upstream, require_peer
from tests.lab.proxied import AuditLines, ProxiedCluster

WAIT = 120.0


class Tool:
    """A program that is given a kubeconfig, run beside the test's loop."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._started: list[Process] = []

    async def start(self, *words: str, **environment: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self._command, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment or None, limit=1 << 20
        )
        self._started.append(process)
        return process

    async def __call__(self, *words: str, stdin: str = "", ok: bool = True) -> str:
        process = await self.start(*words)
        async with asyncio.timeout(WAIT):
            out, err = await process.communicate(stdin.encode())
        assert not ok or process.returncode == 0, f"{words}: {err.decode()[-4000:]}"
        return out.decode() if ok else err.decode()

    async def end(self) -> None:
        for process in self._started:
            if process.returncode is None:
                process.kill()
                await process.wait()


def tool(kubeconfig: Path, cache: Path) -> Tool:
    (path,) = require_peer("kubectl")
    return Tool([str(path), "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)])


@pytest.fixture
async def kubectl(ann: Path, tmp_path: Path) -> AsyncIterator[Tool]:
    made = tool(ann, tmp_path / "cache")
    yield made
    await made.end()


@pytest.fixture
async def namespace(kubectl: Tool) -> str:
    name = f"p-{secrets.token_hex(3)}"
    await kubectl("create", "namespace", name)
    return name


def config_map(name: str, value: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})


async def test_kubectl_through_proxy_behaves_as_direct(
    kubectl: Tool, namespace: str, upstream: Upstream, audit: AuditLines
) -> None:
    n = ("-n", namespace)
    assert await kubectl(*n, "apply", "-f", "-", stdin=config_map("a", "1")) == "configmap/a created\n"
    assert await kubectl(*n, "apply", "--server-side", "-f", "-", stdin=config_map("b", "1"))
    assert await kubectl(*n, "apply", "-f", "-", stdin=config_map("a", "2")) == "configmap/a configured\n"
    assert json.loads(await kubectl(*n, "get", "cm", "a", "-o", "json"))["data"] == {"k": "2"}
    assert "b" in await kubectl(*n, "get", "configmaps")
    await kubectl(*n, "patch", "cm", "a", "-p", '{"data":{"k":"3"}}')
    assert upstream.http("GET", f"/api/v1/namespaces/{namespace}/configmaps/a").body["data"] == {"k": "3"}
    assert "configmaps" in await kubectl("api-resources")
    assert await kubectl(*n, "delete", "cm", "a", "b")
    error = await kubectl(*n, "get", "cm", "a", ok=False)
    assert error == 'Error from server (NotFound): configmaps "a" not found\n'
    assert {line["through"] for line in audit.lines} == {"tunnel"}
    assert {"list", "get", "create", "patch", "delete"} <= {line["verb"] for line in audit.lines}


async def test_authorization_is_decided_by_downstream_cluster(bo: Path, tmp_path: Path) -> None:
    viewer = tool(bo, tmp_path / "cache")
    await viewer("get", "configmaps", "-n", "default")
    refused = await viewer("create", "configmap", "x", "-n", "default", ok=False)
    assert 'User "bo-' in refused
    assert "is forbidden" in refused
    whoami = json.loads(await viewer("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert whoami["username"].startswith("bo-")
    assert whoami["groups"] == ["system:authenticated"]


async def test_disconnected_cluster_is_reported_to_kubectl(kubectl: Tool, proxied_cluster: ProxiedCluster) -> None:
    await proxied_cluster.end_tunnels()
    error = await kubectl("get", "nodes", ok=False)
    assert f"Warning: the cluster {ID} has not been connected since " in error
    error = await kubectl("get", "--raw", "/api/v1/nodes", ok=False)
    assert f"the cluster {ID} has not been connected since " in error


async def test_kubectl_watch_ends_with_message_when_tunnel_is_lost(
    kubectl: Tool, namespace: str, proxied_cluster: ProxiedCluster
) -> None:
    await kubectl("-n", namespace, "create", "configmap", "a")
    watching = await kubectl.start("-n", namespace, "get", "configmaps", "-w")
    assert watching.stdout is not None
    async with asyncio.timeout(WAIT):
        while b"a " not in await watching.stdout.readline():
            pass
        await kubectl("-n", namespace, "create", "configmap", "b")  # seen by the watch, so there is one
        while b"b " not in await watching.stdout.readline():
            pass
        await proxied_cluster.end_tunnels()
        out, err = await watching.communicate()
    assert f"the cluster {ID} has not been connected since " in (out + err).decode()


async def test_informers_through_proxy_see_same_events_as_direct(ann: Path, run_tag: str) -> None:
    (path,) = require_peer("clients")
    clients = Tool([str(path), "--kubeconfig", str(ann), "--group", f"{run_tag}.proxied.example.com"])
    report = json.loads(await clients("--seconds", f"{WAIT:.0f}", "informers"))
    told = {"initial": ["a", "b", "c"], "then": ["update b", "delete a", "add d", "update b", "add a"]}
    sorts = ["typed configmaps", "dynamic configmaps", "dynamic mounts", "metadata configmaps", "metadata mounts"]
    assert {sort: report[sort] for sort in sorts} == dict.fromkeys(sorts, told)


async def test_informers_miss_nothing_when_the_tunnel_is_cut(
    ann: Path, run_tag: str, upstream: Upstream, proxied_cluster: ProxiedCluster
) -> None:
    (path,) = require_peer("clients")
    clients = Tool([str(path), "--kubeconfig", str(ann), "--group", f"{run_tag}.cut.example.com"])
    try:
        follower = await clients.start("--seconds", "3600", "follow")
        configmaps = f"/api/v1/namespaces/{(await _line(follower))['namespace']}/configmaps"
        assert upstream.http("POST", configmaps, {"metadata": {"name": "kept"}}).code == 201
        assert upstream.http("POST", configmaps, {"metadata": {"name": "going"}}).code == 201
        await _caught_up(follower, upstream, configmaps)
        for number in range(3):
            proxied_cluster.refuse_tunnels = True
            proxied_cluster.cut(ID)
            await proxied_cluster.until(lambda: not proxied_cluster.sessions.has(ID))
            # What happens while nobody can see it:
            assert upstream.http("POST", configmaps, {"metadata": {"name": f"new-{number}"}}).code == 201
            patch = {"Content-Type": "application/merge-patch+json"}
            body = {"data": {"n": str(number)}}
            assert upstream.http("PATCH", f"{configmaps}/kept", body, patch).code == 200
            if number == 1:
                assert upstream.http("DELETE", f"{configmaps}/going").code == 200
            proxied_cluster.refuse_tunnels = False
            report = await _caught_up(follower, upstream, configmaps)
        for sort in ("typed configmaps", "dynamic configmaps"):
            told = report[sort]["then"]
            assert [one for one in told if one.startswith("add ")] == [
                f"add {name}" for name in ("kept", "going", "new-0", "new-1", "new-2")
            ]
            assert told.count("update kept") == 3
            assert sum(one.startswith("delete") for one in told) == 1
    finally:
        await clients.end()


async def _line(process: Process, ask: bool = False) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(WAIT):
        if ask:
            process.stdin.write(b"\n")
        return json.loads(await process.stdout.readline())


async def _caught_up(follower: Process, upstream: Upstream, path: str) -> dict[str, Any]:
    items = (await asyncio.to_thread(upstream.http, "GET", path)).body["items"]
    there = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
    there.pop("kube-root-ca.crt", None)
    async with asyncio.timeout(WAIT):
        while True:
            report = await _line(follower, ask=True)
            if all(report[sort]["holds"] == there for sort in ("typed configmaps", "dynamic configmaps")):
                return report
            await asyncio.sleep(0.2)
