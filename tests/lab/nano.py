"""Clusters of nano as real processes, each on an address of its own and in a folder of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.kubeconfig import load
from remuda.lab.nano.flavour import NANO, Flavour
from remuda.providers.shared.drivers.proc import HostProcesses
from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS

NODES = Target("v1", "nodes")
TOKEN = "the-token-of-servers"
AGENT_TOKEN = "the-token-of-agents"
# Quick, so that tests soon see the loss of a member. On a busy machine a member that lives is missed now and then, and
# writes are refused meanwhile: tests repeat theirs.
QUICK = ["heartbeat-interval=250", "election-timeout=2500"]

PROGRAM = ("-m", "remuda.lab.nano")
# Nodes of this one renew their Leases often, so that tests soon see that one has fallen silent.
RENEWING = (
    "-c",
    "import sys; from remuda.lab.nano import kubelet, program; kubelet._RENEW_SECONDS = 0.5; "
    "sys.exit(program.main(sys.argv[1:]))",
)

RKE2_PROGRAM = ("-m", "remuda.lab.nano.rke2")

Obj = dict[str, Any]


class Host:
    def __init__(
        self, name: str, address: str, root: Path, program: tuple[str, ...] = PROGRAM, flavour: Flavour = NANO
    ) -> None:
        self.name = name
        self.flavour = flavour
        self.program = program
        self.address = address
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None
        self._client: HttpClient | None = None
        self._started = 0  # where the log of the last start begins

    @property
    def url(self) -> str:
        """URL of the supervisor."""
        return f"https://{self.address}:{self.flavour.supervisor_port}"

    @property
    def data(self) -> Path:
        return self.root / self.flavour.data_dir.lstrip("/")

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
        path = self.root / "etc/rancher" / self.flavour.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key.replace("_", "-"): value for key, value in values.items()}))

    def start(self, role: str, *, version: str = "", flags: tuple[str, ...] = ()) -> None:
        with (self.root / "log").open("ab") as log:
            self._started = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, *self.program, role, *flags],
                env={**os.environ, **self.environment, "NANO_VERSION": version or f"v1.36.4+{self.flavour.release}1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(LIMIT_SECONDS)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    async def ended(self) -> int:
        assert self.process is not None
        try:
            return await asyncio.to_thread(self.process.wait, LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.log}") from None

    def client(self) -> HttpClient:
        """As the admin, by this server."""
        if self._client is None:
            access = load(self.root / self.flavour.kubeconfig.lstrip("/"))
            self._client = HttpClient(access, timeout_seconds=LIMIT_SECONDS)
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


class NanoHosts:
    """The hosts of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[Host] = []
        self.program = PROGRAM  # that hosts are made with from now on
        self.flavour = NANO
        self._network = _free_network()

    def host(self, name: str) -> Host:
        root = self.folder / name
        root.mkdir(parents=True)
        host = Host(name, f"{self._network}.{len(self.hosts) + 1}", root, self.program, self.flavour)
        self.hosts.append(host)
        return host

    def server(self, name: str, by: Host | None = None, **more: Any) -> Host:
        """Started; it joins by `by`, or begins a cluster."""
        host = self.host(name)
        begins: Obj = {"cluster_init": True} if "cluster-init" in self.flavour.server_arguments else {}
        place: Obj = begins if by is None else {"server": by.url}
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
            if host.flavour.static_pods:
                HostProcesses(host.root).end(hard=True)  # components outlive their server


def fetch(url: str, ca: Path | None, *, user: str = "", client: Path | None = None) -> tuple[int, bytes]:
    """Return the code and the body that a GET is answered with. `user`: name and password; `client`: its certificate
    and key without their suffixes."""
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    if client is not None and context is not None:
        context.load_cert_chain(client.with_name(client.name + ".crt"), client.with_name(client.name + ".key"))
    request = urllib.request.Request(url)
    if user:
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, context=context, timeout=LIMIT_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


async def ask(host: Host, path: str, *, user: str = "") -> tuple[int, bytes]:
    return await asyncio.to_thread(fetch, host.url + path, host.tls / "server-ca.crt", user=user)


async def eventually(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    diagnosis: Callable[[], str] = lambda: "",
) -> None:
    """What other processes do brings no watch of ours: looked at, until it is so."""
    until = time.monotonic() + LIMIT_SECONDS
    last: BaseException | None = None
    while time.monotonic() < until:
        try:
            if await condition():
                return
            last = None
        except (StatusError, OSError) as error:
            last = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {LIMIT_SECONDS:g} s: {what}; last error {last!r}\n{diagnosis()}")


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


@pytest.fixture
async def nano_hosts(tmp_path: Path) -> AsyncIterator[NanoHosts]:
    """Hosts of nano that end with their test. Import it in a conftest.py."""
    nano_hosts = NanoHosts(tmp_path)
    try:
        yield nano_hosts
    finally:
        await nano_hosts.close()
