"""kubectl logs, exec, attach and port-forward through the proxy and a tunnel to the real kube-apiserver, which asks a
node whose pods are processes of this machine (interop/kubelet): by WebSocket, as kubectl does now, and by SPDY, as it
did."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.interop.access.test_proxy import Tool, tool
from tests.lab import Upstream, require_peer
from tests.lab.certificates import Authority, write
from tests.lab.children import die_with_parent
from tests.lab.proxied import AuditLines, ProxiedCluster

WAIT = 120.0
NODE = "proxied-node"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def logs(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A node is there; where its pods write."""
    (path,) = require_peer("kubelet")
    folder = tmp_path_factory.mktemp("kubelet")
    certificate, key = Authority("node").server("127.0.0.1")
    files = write(folder, certificate=certificate, key=key)
    process = subprocess.Popen(
        [path, "--certificate", files["certificate"], "--key", files["key"], "--logs", folder],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    upstream.http("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    assert upstream.http("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, MERGE).code == 200
    yield folder
    upstream.http("DELETE", f"/api/v1/nodes/{NODE}")
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def pod(upstream: Upstream, logs: Path) -> Iterator[str]:
    """Running, as far as anybody can tell."""
    name = f"pod-{secrets.token_hex(3)}"
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "none"}]}
    assert upstream.http("POST", pods, {"metadata": {"name": name}, "spec": spec}).code == 201
    running = {"name": "c", "ready": True, "started": True, "restartCount": 0, "image": "none", "imageID": ""}
    status = {"phase": "Running", "containerStatuses": [{**running, "state": {"running": {}}}]}
    assert upstream.http("PATCH", f"{pods}/{name}/status", {"status": status}, MERGE).code == 200
    (logs / f"default-{name}.log").write_text("the first line\n")
    yield name
    upstream.http("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")


@pytest.fixture
async def kubectl(ann: Path, tmp_path: Path) -> AsyncIterator[Tool]:
    made = tool(ann, tmp_path / "cache")
    yield made
    await made.end()


@pytest.fixture(params=["websocket", "spdy"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    spoken = "true" if request.param == "websocket" else "false"
    names = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
    return {**os.environ, **dict.fromkeys(names, spoken)}


async def test_log_follow_streams_new_lines(kubectl: Tool, pod: str, logs: Path) -> None:
    assert await kubectl("logs", pod) == "the first line\n"
    following = await kubectl.start("logs", "-f", pod)
    assert following.stdout is not None
    async with asyncio.timeout(WAIT):
        assert await following.stdout.readline() == b"the first line\n"
        with (logs / f"default-{pod}.log").open("a") as log:
            log.write("the second\n")
        assert await following.stdout.readline() == b"the second\n"


async def test_exec_passes_every_byte_and_the_exit_code(
    kubectl: Tool, pod: str, environment: dict[str, str], audit: AuditLines
) -> None:
    every_byte = bytes(range(256)) * 16384
    process = await kubectl.start("exec", "-i", pod, "--", "cat", **environment)
    async with asyncio.timeout(WAIT):
        out, err = await process.communicate(every_byte)
    assert (process.returncode, err) == (0, b"")
    assert hashlib.sha256(out).digest() == hashlib.sha256(every_byte).digest()
    process = await kubectl.start("exec", pod, "--", "sh", "-c", "echo out; echo err >&2; exit 7", **environment)
    async with asyncio.timeout(WAIT):
        out, err = await process.communicate()
    assert (process.returncode, out) == (7, b"out\n")
    assert err.startswith(b"err\n")
    execs = [line for line in audit.lines if line["path"].endswith("/exec")]
    assert [line["code"] for line in execs] == [101, 101]
    assert {line["verb"] for line in execs} == {"get" if _by_websocket(environment) else "create"}


def _by_websocket(environment: dict[str, str]) -> bool:
    return environment["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"] == "true"


async def test_attach_passes_input_and_output(kubectl: Tool, pod: str, environment: dict[str, str]) -> None:
    process = await kubectl.start("attach", "-i", pod, **environment)
    async with asyncio.timeout(WAIT):
        out, _ = await process.communicate(b"hello\n")
    assert b"hello\n" in out


async def test_port_forward_reaches_pod_port(kubectl: Tool, pod: str, environment: dict[str, str]) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    there = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with there, asyncio.timeout(WAIT):
        port = there.sockets[0].getsockname()[1]
        process = await kubectl.start("port-forward", pod, f":{port}", "--address", "127.0.0.1", **environment)
        assert process.stdout is not None
        found = re.search(rb"127\.0\.0\.1:(\d+)", await process.stdout.readline())
        assert found is not None
        for word in (b"one\n", b"two\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
            writer.write(word)
            assert await reader.read() == word.upper()
            writer.close()


async def test_exec_ends_when_the_tunnel_is_lost(
    kubectl: Tool, pod: str, environment: dict[str, str], proxied_cluster: ProxiedCluster
) -> None:
    process = await kubectl.start("exec", "-i", pod, "--", "cat", **environment)
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(WAIT):
        process.stdin.write(b"here\n")
        assert await process.stdout.readline() == b"here\n"
        await proxied_cluster.end_tunnels()
        failed = await process.wait() != 0
    assert failed or not _by_websocket(environment)  # kubectl takes any end of SPDY for a good one
