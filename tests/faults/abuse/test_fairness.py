"""One user sends costly requests over many connections: nobody else may notice.

The server and all clients run on one event loop, so that its processor time tells how long the server worked until it
answered, however busy the machine is; and the answers in between tell who was served before.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from remuda.apiserver.server import ApiServer, ServerSettings
from tests.lab.limits import LIMIT_SECONDS

ATTACKERS = 64
MOST_SECONDS = 1.0  # of processor time, from a request of somebody else to its answer
MOST_ANSWERS = 16  # to the attackers meanwhile; without a queue, each attacker has one
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ADMINISTRATOR: Mapping[str, str] = {}
PLAIN_USER = {"Impersonate-User": "rider", "Impersonate-Group": "system:authenticated"}
GUEST = {"Impersonate-User": "guest", "Impersonate-Group": "system:authenticated"}
NODE = {"Impersonate-User": "system:serviceaccount:default:node-1", "Impersonate-Group": "system:serviceaccounts"}

# Just below the limits, and refused by its name at last. All attackers together stay below what one user may have in
# progress, so that they wait in the queue.
CONTAINERS = [{"name": f"c{n}", "image": "x"} for n in range(3_900)]
COSTLY = json.dumps({"metadata": {"name": "Costly"}, "spec": {"containers": CONTAINERS}}).encode()
SMALL = json.dumps({"metadata": {"generateName": "small-"}}).encode()


class Client:
    """One connection with the administrator's certificate, which impersonates whom a request says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, method: str, path: str, body: bytes, user: Mapping[str, str], length: int | None = None) -> None:
        headers = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(length or len(body)), **user}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    async def ask(self, method: str, path: str, body: bytes, user: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Return the code, the head and the body of the answer."""
        self.send(method, path, body, user)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return int(head.split()[1]), head, await self._reader.readexactly(length)


class Site:
    def __init__(self, server: ApiServer) -> None:
        config = yaml.safe_load(server.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._port = server.front.port
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        folder = server.kubeconfig.parent
        for part in ("certificate", "key"):
            (folder / f"client-{part}.pem").write_bytes(base64.b64decode(user[f"client-{part}-data"]))
        self._tls.load_cert_chain(folder / "client-certificate.pem", folder / "client-key.pem")
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls))
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    site = Site(server)
    api = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "abuse"},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"apiGroup": api, "kind": "Group", "name": name}
            for name in ("system:authenticated", "system:serviceaccounts")
        ],
    }
    code, _, _ = await (await site.connect()).ask("POST", BINDINGS, json.dumps(binding).encode(), ADMINISTRATOR)
    assert code == 201
    yield site
    site.close()
    await server.stop()


@asynccontextmanager
async def flood(site: Site) -> AsyncIterator[Counter[int]]:
    """Send costly requests of one user over many connections; yield how often each code was answered so far."""
    answers: Counter[int] = Counter()

    async def attack(client: Client) -> None:
        while True:
            code, _, _ = await client.ask("POST", PODS, COSTLY, PLAIN_USER)
            answers[code] += 1

    clients = [await site.connect() for _ in range(ATTACKERS)]
    attackers = [asyncio.create_task(attack(client)) for client in clients]
    while not answers:
        await asyncio.sleep(0)
    yield answers
    for attacker in attackers:
        attacker.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)


async def test_costly_requests_of_one_user_do_not_delay_others(site: Site) -> None:
    asked: dict[str, tuple[str, str, bytes, Mapping[str, str]]] = {
        "health check": ("GET", "/readyz", b"", ADMINISTRATOR),
        "administrator": ("POST", CONFIGMAPS, SMALL, ADMINISTRATOR),
        "user": ("POST", CONFIGMAPS, SMALL, GUEST),
        "node": ("POST", CONFIGMAPS, SMALL, NODE),
        "lease": ("POST", LEASES, SMALL, GUEST),
    }
    other = await site.connect()
    async with asyncio.timeout(LIMIT_SECONDS), flood(site) as answers:
        for name, request in asked.items():
            began, before = time.thread_time(), answers.total()
            code, _, _ = await other.ask(*request)
            used, between = time.thread_time() - began, answers.total() - before
            print(f"{name}: {used:.2f} s of processor time, {between} answers to attackers")
            assert code in (200, 201), name
            assert used < MOST_SECONDS, name
            assert between <= MOST_ANSWERS, name
        assert set(answers) == {422}, answers


async def test_user_above_request_limit_gets_retry_after_and_others_are_served(site: Site) -> None:
    """Bodies that never arrive count too: nobody holds all that the server accepts."""
    clients = [await site.connect() for _ in range(200)]
    for client in clients:
        client.send("POST", CONFIGMAPS, b"{", PLAIN_USER, length=1000)

    async def code_of(user: Mapping[str, str]) -> tuple[int, bytes, Any]:
        code, head, body = await (await site.connect()).ask("POST", CONFIGMAPS, SMALL, user)
        return code, head, msgspec.json.decode(body)

    async with asyncio.timeout(LIMIT_SECONDS):
        code, head, said = await code_of(PLAIN_USER)
        while code != 429:  # until the last of the heads has arrived
            code, head, said = await code_of(PLAIN_USER)
        assert b"\r\nRetry-After: 1\r\n" in head
        assert "user rider has too many requests in progress: at most 200" in said["message"]
        assert (await code_of(GUEST))[0] == 201
        for client in clients:
            client.writer.close()
        while (await code_of(PLAIN_USER))[0] != 201:
            pass
