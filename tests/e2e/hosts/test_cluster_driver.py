"""What the driver nspawn makes for a cluster: a bridge of its own with real hosts on it, and a balancer before them."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.providers.shared.drivers.nspawn import Nspawn
from remuda.providers.shared.drivers.nspawn.cluster import NspawnCluster
from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.spi import ClusterInfrastructure, ClusterOrder, Order
from tests.lab.balancers import Greeters, reached
from tests.lab.conformance import ClusterConformance, ClusterSubject
from tests.lab.drivers import processes_below
from tests.lab.hosts import Host, machines, require_hosts, until

BACKENDS = ("127.0.63.1", "127.0.63.2")
_GREETER = (
    "systemd-run --unit greeter python3 -c 'import socketserver as s\n"
    "class H(s.StreamRequestHandler):\n"
    '  def handle(self): self.wfile.write(b"{address}\\n"); self.rfile.read()\n'
    's.ThreadingTCPServer(("0.0.0.0", {port}), H).serve_forever()\''
)


class NspawnClusters(ClusterSubject):
    driver = NspawnCluster
    bad_options: Mapping[str, Mapping[str, Any]] = {"subnet": {"subnet": "198.19.0.0/31"}}
    backends = BACKENDS

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory)
        self.ports = (port,)
        self._bridges: set[str] = set()
        self.orders: list[ClusterOrder] = []

    def order(self, **changes: Any) -> ClusterOrder:
        order = super().order(**changes)
        digest = hashlib.sha256(f"{order.owner}/{order.uid}".encode()).hexdigest()
        self._bridges.add(f"rm-{digest[:9]}")
        self.orders.append(order)
        return order

    async def things(self) -> list[str]:
        links = {link["ifname"] for link in json.loads(await run("ip", "-json", "link"))} & self._bridges
        books = [str(path) for path in Path("/run/remuda/bridges").glob("*") if path.name in self._bridges]
        subnets = [str(path) for path in Path("/run/remuda/subnets").glob("*") if self._ours(path)]
        folders = [str(path) for path in (self.hosts / "nspawn" / ".clusters").glob("*")]
        processes = [f"process {pid}" for pid in processes_below(self.hosts)]
        return [*sorted(links), *books, *subnets, *folders, *processes]

    def _ours(self, path: Path) -> bool:
        return path.is_symlink() and Path(os.readlink(path)).is_relative_to(self.hosts)

    async def stands(self, order: ClusterOrder, made: ClusterInfrastructure) -> list[str]:
        assert made.endpoint is not None
        assert ipaddress.IPv4Address(made.endpoint.host) in ipaddress.IPv4Network(made.network["subnet"])
        return await reached(made.endpoint.host, made.endpoint.port, len(order.backends))


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[NspawnClusters]:
    require_hosts()
    async with Greeters(BACKENDS).serving() as greeters:
        made = NspawnClusters(tmp_path, greeters.port)
        yield made
    for order in made.orders:
        await made.act(order).remove(order)
    for pid in processes_below(tmp_path):
        os.kill(pid, signal.SIGKILL)
    assert await made.things() == []


class TestNspawnCluster(ClusterConformance):
    pass


async def test_cluster_hosts_join_its_bridge_and_reach_control_plane_through_load_balancer(
    subject: NspawnClusters, tmp_path: Path
) -> None:
    order = subject.order(backends=())
    made = await subject.act(order).ensure(order)
    subnet, port = ipaddress.IPv4Network(made.network["subnet"]), order.ports[0]
    hosts = [await _host(subject, name, made, tmp_path) for name in ("server-1", "server-2", "worker")]
    try:
        assert all(ipaddress.IPv4Address(host.address) in subnet for host in hosts)
        servers = hosts[:2]
        for host in servers:
            await host.run(_GREETER.format(address=host.address, port=port))
        updated = msgspec.structs.replace(order, backends=[host.address for host in servers])
        assert await subject.act(updated).ensure(updated) == made
        assert await subject.stands(updated, made) == sorted(updated.backends)
        assert made.endpoint is not None
        ask = f"timeout 10 bash -c 'read who </dev/tcp/{made.endpoint.host}/{port}; echo $who'"
        assert (await until(hosts[2], ask)).strip() in updated.backends
        await servers[0].remove()
        assert (await until(hosts[2], ask)).strip() == servers[1].address
    finally:
        for host in hosts:
            await host.remove()
    assert machines(subject.hosts) == []
    links = [link["ifname"] for link in json.loads(await run("ip", "-json", "link"))]
    assert made.id in links, "the bridge stays for as long as the cluster"
    await subject.act(order).remove(order)
    assert await subject.things() == []


async def _host(subject: NspawnClusters, name: str, made: ClusterInfrastructure, folder: Path) -> Host:
    """As a Job makes it: all it knows of the network is in its order."""
    order = Order(
        driver="nspawn", action="create", name=name, hostname=name, namespace="default", machine=name,
        uid=f"uid-{name}", cluster="conformance", owner="0a3c5f8e-conformance", options={"bootstrap": "ssh"},
        network=made.network,
    )  # fmt: skip
    driver = Nspawn(msgspec.convert(dict(order.options), Nspawn.options_type), subject.act(subject.orders[0]).context)
    return Host(driver, order, await driver.create(order, b""), folder)
