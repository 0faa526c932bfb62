"""`python -m bench.steady.workloads FOLDER`: the APIs of all workload clusters of a fleet, in one process.

Each listens on an address of its own, with a certificate of its own authority, which it asks its callers for. Behind
it is a model (`simulator.workload`): reading, watching and writing are real HTTP over TLS, the objects are in memory.
Nodes are as large as real ones, and their kubelets do as real ones: a Lease every ten seconds, which nobody here reads
and so nobody writes, and the status of an unchanged Node every five minutes.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bench.steady.world import Workload, read
from remuda.kube import certificates
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.http.tls import load_pair
from remuda.lab.simulator.workload import ModelWorkload

PORT = 6443
HEARTBEAT_SECONDS = 300.0  # nodeStatusReportFrequency of a kubelet
_NODES = Target("v1", "nodes")
_IMAGES = 25

Json = dict[str, Any]


class Api:
    """One cluster's, as its callers see it."""

    def __init__(self, model: ModelWorkload) -> None:
        self._model = model

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except StatusError as error:
            return web.Response(
                status=error.code, body=msgspec.json.encode(error.status()), content_type="application/json"
            )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        place = _place(request.path)
        if place is None:
            return _json(await self._model.raw_get(request.path))
        target, namespace, name, subresource = place
        if request.method == "GET" and name:
            return _json(await self._model.get(target, namespace, name))
        if request.method == "GET" and request.query.get("watch"):
            return await self._watch(request, target, namespace)
        if request.method == "GET":
            return await self._list(request, target, namespace)
        if request.method == "DELETE":
            return _json(await self._model.delete(target, namespace, name))
        obj = msgspec.json.decode(await request.read())
        if request.method == "POST":
            return _json(await self._model.create(target, namespace, obj, name=name, subresource=subresource), 201)
        if request.method == "PUT":
            return _json(await self._model.update(target, namespace, name, obj, subresource=subresource))
        return _json(await self._model.patch(target, namespace, name, obj, subresource=subresource))

    async def _list(self, request: web.Request, target: Target, namespace: str) -> web.Response:
        found = await self._model.list(
            target,
            namespace,
            label_selector=request.query.get("labelSelector", ""),
            field_selector=request.query.get("fieldSelector", ""),
        )
        items = [msgspec.Raw(item) for item in found.items]
        body = {
            "apiVersion": target.api_version,
            "kind": "List",
            "metadata": {"resourceVersion": found.resource_version},
            "items": items,
        }
        return _json(msgspec.json.encode(body))

    async def _watch(self, request: web.Request, target: Target, namespace: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        changes = self._model.watch(
            target,
            namespace,
            resource_version=request.query.get("resourceVersion", ""),
            label_selector=request.query.get("labelSelector", ""),
            field_selector=request.query.get("fieldSelector", ""),
            timeout_seconds=float(request.query.get("timeoutSeconds", "0")),
        )
        try:
            async for change in changes:
                await answer.write(b'{"type":"%b","object":%b}\n' % (change.type.encode(), change.value))
        except StatusError as error:
            await answer.write(b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status()))
        return answer


def _place(path: str) -> tuple[Target, str, str, str] | None:
    """Target, namespace, name and subresource; None: not of a resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    rest = [*rest, "", ""]
    return Target(version, rest[0]), namespace, rest[1], rest[2]


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _context(cluster: Workload) -> ssl.SSLContext:
    """Signed by the cluster's authority, for what the manager dials; callers have to show what it has signed."""
    key = certificates.new_key()
    private = serialization.load_pem_private_key(cluster.key, password=None)
    authority = certificates.Authority(x509.load_pem_x509_certificate(cluster.certificate), private)  # type: ignore[arg-type]
    made = authority.issue_server(key, ["127.0.0.1", cluster.address], 7, datetime.datetime.now(datetime.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=cluster.certificate.decode())
    load_pair(context, certificates.certificate_pem(made), certificates.key_pem(key), cluster.name)
    return context


def full_size(node: Json) -> Json:
    """With everything that a kubelet says of itself: most of it nobody here reads."""
    name = node["metadata"]["name"]
    status = node["status"]
    for condition in status.get("conditions") or ():
        condition |= {"lastHeartbeatTime": _now(), "message": f"kubelet has sufficient {condition['type']} available"}
    amounts = {
        "cpu": "4",
        "ephemeral-storage": "61255492Ki",
        "hugepages-2Mi": "0",
        "memory": "16393244Ki",
        "pods": "110",
    }
    status |= {
        "capacity": amounts,
        "allocatable": amounts,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [
            {
                "names": [f"registry.example.com/library/image-{number}@sha256:{number:064x}"],
                "sizeBytes": 10**7 + number,
            }
            for number in range(_IMAGES)
        ],
    }
    status.setdefault("nodeInfo", {}).update(
        {"architecture": "amd64", "machineID": f"{hash(name):032x}", "operatingSystem": "linux", "osImage": "Debian 12"}
    )
    fields = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(40)}
    entry = {"manager": "k3s", "operation": "Update", "apiVersion": "v1", "time": _now(), "fieldsV1": fields}
    node["metadata"]["managedFields"] = [entry, {**entry, "subresource": "status"}]
    return node


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


async def _live(models: list[tuple[ModelWorkload, list[str]]], every: float) -> None:
    """Each Node's status once in that time, all of them spread over it."""
    nodes = [(model, name) for model, names in models for name in names]
    random.shuffle(nodes)
    while True:
        began = time.monotonic()
        for position, (model, name) in enumerate(nodes):
            due = began + every * position / len(nodes)
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            node: Json = msgspec.json.decode(await model.get(_NODES, "", name))
            said = [{**one, "lastHeartbeatTime": _now()} for one in node["status"].get("conditions") or ()]
            await model.patch(_NODES, "", name, {"status": {"conditions": said}}, subresource="status")


async def serve(folder: Path, heartbeat: float) -> None:
    models: list[tuple[ModelWorkload, list[str]]] = []
    for cluster in read(folder).clusters:
        model = ModelWorkload()
        for node in cluster.nodes:
            await model.create(_NODES, "", full_size(node))
        models.append((model, [node["metadata"]["name"] for node in cluster.nodes]))
        runner = web.ServerRunner(web.Server(Api(model).serve), access_log=None)  # type: ignore[arg-type]
        await runner.setup()
        await web.TCPSite(runner, cluster.address, PORT, ssl_context=_context(cluster), shutdown_timeout=1).start()
    print("started", flush=True)
    await _live(models, heartbeat)


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1]), HEARTBEAT_SECONDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
