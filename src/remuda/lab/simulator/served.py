"""Workload clusters with real APIs: one embedded API server per cluster, in this process, on a separate port.

Everything is stored under one directory, so after a restart, or a kill, each API has the same port, objects and
certificates. A file there contains the violations that the etcd models recorded. Two processes may share the directory,
as during a move: the server runs in the first one, and the other connects to it over HTTPS.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import yaml

from remuda.apiserver.server import ApiServer, ServerSettings, StartRefused
from remuda.capi.types.cluster import Endpoint
from remuda.kube import kubeconfig, random_source
from remuda.kube.client import Client
from remuda.kube.errors import Unreachable
from remuda.kube.objects import Key
from remuda.lab.simulator.etcd import Etcd
from remuda.lab.simulator.workload_registry import EtcdClusters, admin_kubeconfig

_HOST = "127.0.0.1"
_PORT = "port"
VIOLATIONS = "violations"  # one per line; no such file: none
_KUBECONFIG = "admin.kubeconfig"
_LOWEST, _HIGHEST = 20_000, 29_999  # below the kernel's range of ephemeral ports


class ServedWorkloads:
    """Implementation of `workloads.Workloads` on real API servers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[Key, ApiServer] = {}
        self._clients: dict[Key, Client] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._members = EtcdClusters(witness=self._note)

    def _note(self, violation: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / VIOLATIONS).open("a") as file:
            file.write(f"{violation}\n")

    async def endpoint(self, cluster: Key) -> Endpoint:
        return Endpoint(host=_HOST, port=self._port(cluster))

    async def start(self, cluster: Key) -> Client:
        """Start the server. Raise Unreachable if that fails."""
        async with self._locks.setdefault(cluster, asyncio.Lock()):
            if cluster not in self._clients:
                await self._open(cluster)
            return self._clients[cluster]

    async def _open(self, cluster: Key) -> None:
        folder = self._folder(cluster)
        settings = ServerSettings(data_dir=folder / "server", host=_HOST, port=self._port(cluster))
        try:
            server = await ApiServer.start(settings)
        except StartRefused as refused:
            self._clients[cluster] = await self._of_another(cluster, refused)
            return
        self._servers[cluster] = server
        self._clients[cluster] = server.client()

    async def _of_another(self, cluster: Key, refused: StartRefused) -> Client:
        """Return whether another process serves it: then its kubeconfig exists and works."""
        from remuda.kube.http import HttpClient

        try:
            client = HttpClient(kubeconfig.load(self._folder(cluster) / "server" / _KUBECONFIG))
        except kubeconfig.KubeconfigError:
            raise Unreachable(f"the API of {cluster} cannot come up: {refused}", sent=False) from None
        try:
            await client.raw_get("/version")
        except BaseException:
            await client.close()
            raise
        return client

    async def dial(self, cluster: Key) -> Client:
        found = self._clients.get(cluster)
        if found is None:
            raise Unreachable(f"the API of {cluster} is not up", sent=False)
        return found

    async def kubeconfig(self, cluster: Key) -> dict[str, Any]:
        server = self._servers.get(cluster)
        if server is None:
            config: dict[str, Any] = yaml.safe_load((self._folder(cluster) / "server" / _KUBECONFIG).read_text())
            return config
        admin = server.pki.admin
        return admin_kubeconfig(
            cluster,
            server.url,
            ca_pem=server.pki.ca_certificate_pem,
            client_certificate_pem=admin.certificate_pem,
            client_key_pem=admin.key_pem,
        )

    def etcd(self, cluster: Key) -> Etcd:
        return self._members.of(cluster)

    async def remove(self, cluster: Key) -> None:
        async with self._locks.setdefault(cluster, asyncio.Lock()):
            await self._close(cluster)
            shutil.rmtree(self._folder(cluster), ignore_errors=True)
        self._members.remove(cluster)
        del self._locks[cluster]

    async def close(self) -> None:
        for cluster in list(self._clients):
            await self._close(cluster)

    async def _close(self, cluster: Key) -> None:
        client = self._clients.pop(cluster, None)
        server = self._servers.pop(cluster, None)
        if client is not None:
            await client.close()
        if server is not None:
            await server.stop()

    def _folder(self, cluster: Key) -> Path:
        return self._directory / cluster.namespace / cluster.name

    def _port(self, cluster: Key) -> int:
        """Return the port, chosen once and stored in a file."""
        file = self._folder(cluster) / _PORT
        try:
            return int(file.read_text())
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".new")
            temporary.write_text(str(_free_port(self._taken())))
            temporary.replace(file)
            return int(file.read_text())

    def _taken(self) -> set[int]:
        """Return the ports of all clusters in the directory, running or not."""
        return {int(file.read_text()) for file in self._directory.glob(f"*/*/{_PORT}")}


def _free_port(taken: set[int]) -> int:
    for _ in range(1000):
        port = int(random_source.between(_LOWEST, _HIGHEST))
        if port not in taken and _can_listen(port):
            return port
    raise Unreachable("no port is free for another API server", sent=False)


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
