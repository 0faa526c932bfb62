"""Clusters of nano as real processes, each on an address of its own and in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import load
from tests.lab.children import die_with_parent

NODES = Target("v1", "nodes")
TOKEN = "the-token-of-servers"
AGENT_TOKEN = "the-token-of-agents"
# Quick enough for tests, slow enough for a busy machine.
QUICK = ["heartbeat-interval=250", "election-timeout=2500"]
PATIENCE_SECONDS = 120.0

Obj = dict[str, Any]


class Host:
    def __init__(self, name: str, address: str, root: Path) -> None:
        self.name = name
        self.address = address
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None
        self._client: HttpClient | None = None
        self._started = 0  # where the log of the last start begins

    @property
    def url(self) -> str:
        return f"https://{self.address}:6443"

    @property
    def data(self) -> Path:
        return self.root / "var/lib/rancher/nano"

    @property
    def tls(self) -> Path:
        return self.data / "server/tls"

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    @property
    def environment(self) -> dict[str, str]:
        return {"REMUDA_HOST_ROOT": str(self.root), "REMUDA_HOST_ADDRESS": self.address}

    def configure(self, file: str = "config.yaml.d/50-rancher.yaml", **values: Any) -> None:
        path = self.root / "etc/rancher/nano" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key.replace("_", "-"): value for key, value in values.items()}))

    def start(self, role: str, *, version: str = "v1.36.4+nano1", flags: tuple[str, ...] = ()) -> None:
        with (self.root / "log").open("ab") as log:
            self._started = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "remuda.nano", role, *flags],
                env={**os.environ, **self.environment, "NANO_VERSION": version},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    async def ended(self) -> int:
        assert self.process is not None
        try:
            return await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.log}") from None

    def client(self) -> HttpClient:
        """As the admin, by this server."""
        if self._client is None:
            access = load(self.root / "etc/rancher/nano/nano.yaml")
            self._client = HttpClient(access, timeout_seconds=10)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def node(self, name: str = "") -> Obj:
        found: Obj = json.loads(await self.client().get(NODES, "", name or self.name))
        return found

    async def up(self) -> None:
        """Until it says so, since it was started last."""

        async def says() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} has ended:\n{self.log}"
            return "is up: node" in self.log[self._started :]

        await eventually(says, f"{self.name} is up", lambda: self.log)


class Herd:
    """The hosts of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[Host] = []
        self._network = _free_network()

    def host(self, name: str) -> Host:
        root = self.folder / name
        root.mkdir(parents=True)
        host = Host(name, f"{self._network}.{len(self.hosts) + 1}", root)
        self.hosts.append(host)
        return host

    def server(self, name: str, by: Host | None = None, **more: Any) -> Host:
        """Started; it joins by `by`, or begins a cluster."""
        host = self.host(name)
        place: Obj = {"cluster_init": True} if by is None else {"server": by.url}
        given: Obj = {"token": TOKEN, "agent_token": AGENT_TOKEN, "etcd_arg": QUICK, **place, **more}
        host.configure(node_name=name, **given)
        host.start("server")
        return host

    def agent(self, name: str, by: Host, **more: Any) -> Host:
        host = self.host(name)
        host.configure(node_name=name, server=by.url, **{"token": AGENT_TOKEN, **more})
        host.start("agent")
        return host

    async def close(self) -> None:
        for host in self.hosts:
            await host.close()
            if host.process is not None and host.process.poll() is None:
                host.process.kill()
                host.process.wait()


async def eventually(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    told: Callable[[], str] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """What other processes do brings no watch of ours: looked at, until it is so."""
    until = time.monotonic() + seconds
    last: BaseException | None = None
    while time.monotonic() < until:
        try:
            if await condition():
                return
            last = None
        except (StatusError, OSError) as error:
            last = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}; last error {last!r}\n{told()}")


def _free_network() -> str:
    """Addresses of loopback that no other test uses just now."""
    while True:
        network = f"127.{random.randint(64, 254)}.{random.randint(1, 254)}"
        with socket.socket() as probe:
            try:
                probe.bind((f"{network}.1", 6443))
            except OSError:
                continue
            return network
