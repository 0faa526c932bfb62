"""The tunnel of a declared cluster, on hosts that are processes: delivered by the plan, opened when the node's API is
up, and back by itself after whatever breaks it. Between hosts and manager is a line that the test can cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from remuda.app.log_setup import AUDIT_FILE
from tests.lab.clusters import CONTROL_PLANES, VERSION, DeclaredCluster, Fleet, pool
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.lab.server import end
from tests.lab.tunnel_cutter import Line
from tests.lab.tunnels import Tunnels
from tests.lab.up import Json, eventually


@contextlib.contextmanager
def in_a_thread(line: Line) -> Iterator[Callable[[Callable[[], None]], None]]:
    """The line, on a loop of its own; what is done to it goes through what this yields."""
    loop = asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()

    async def carry() -> None:
        async with line.laid():
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(carry()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield lambda act: asyncio.run_coroutine_threadsafe(_do(act), loop).result(30)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)


async def _do(act: Callable[[], None]) -> None:
    act()


class Link(NamedTuple):
    fleet: Fleet
    line: Line
    act: Callable[[Callable[[], None]], None]
    tunnels: Tunnels

    def cut(self) -> None:
        def cut() -> None:
            self.line.closed = True
            self.line.cut()

        self.act(cut)

    def mend(self) -> None:
        self.act(lambda: setattr(self.line, "closed", False))


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    port, health = free_port(), free_port()
    line = Line(f"127.0.0.1:{port}")
    with in_a_thread(line) as act:
        flags = ("--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{health}")
        fleet = Fleet("process", None, *flags, "--server-url", f"https://{line.address}")
        try:
            fleet.add_nano(tmp_path_factory.mktemp("bundles"), VERSION)
            yield Link(fleet, line, act, Tunnels(health))
        finally:
            fleet.stop()


def root_of(fleet: Fleet, node: str) -> Path:
    (root,) = fleet.hosts.glob(f"process/{node}/root")
    return root


def status(root: Path) -> Json:
    try:
        return dict(json.loads((root / "var/lib/rancher/capr/tunnel/status.json").read_text()))
    except OSError:
        return {}


def running_since(root: Path, unit: str) -> str:
    """The process of a unit."""
    ask = [str(root / "usr/local/bin/systemctl"), "show", "-p", "MainPID", "--value", unit]
    return subprocess.run(ask, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True).stdout.strip()


def test_control_plane_node_opens_tunnel_and_reconnects_after_failures(link: Link) -> None:
    fleet = link.fleet
    cluster = DeclaredCluster(fleet, "gate", [pool("server", 1, "ec"), pool("worker", 1, "w")])
    cluster.apply()
    cluster.has_nodes(2)
    (machine,) = cluster.machines("server")
    (worker,) = cluster.machines("worker")
    root = root_of(fleet, cluster.node_of(machine))
    id = fleet.http("GET", f"{CONTROL_PLANES}/gate").body["spec"]["managementClusterName"]
    opened = {f"{id}:{machine}": 1}

    def connected() -> bool:
        return bool(status(root).get("connected_to")) and link.tunnels.open() == opened

    cluster.until(connected, "the server has a tunnel, and only the server")
    assert not (root_of(fleet, cluster.node_of(worker)) / "var/lib/rancher/capr/tunnel").exists()
    said = (root / "var/log/remuda-tunnel.log").read_text()
    token = (root / "var/lib/rancher/capr/tunnel/token").read_text().strip()
    assert token not in said
    began, client = running_since(root, "nano"), running_since(root, "remuda-tunnel")

    end(fleet.process, LIMIT_SECONDS)  # in good order
    assert fleet.process.stdout is not None
    fleet.process.stdout.close()
    log = root / "var/log/remuda-tunnel.log"
    eventually(lambda: "the manager is stopping" in log.read_text(), lambda: f"it does not hear why: {log.read_text()}")
    fleet.start_again()
    cluster.until(connected, "it comes back to a manager that was started anew")

    fleet.kill()
    eventually(lambda: not status(root)["connected_to"], lambda: f"it has not noticed: {status(root)}")
    fleet.start_again()
    cluster.until(connected, "it comes back to a manager that was killed")

    link.cut()
    cluster.until(lambda: not status(root)["connected_to"], "it notices that the line is cut")
    link.mend()
    cluster.until(connected, "it comes back over a line that was mended")

    assert running_since(root, "nano") == began, "nothing of this restarts a node"
    assert running_since(root, "remuda-tunnel") == client, "nor the tunnel's own service"
    audit = fleet.data / AUDIT_FILE
    assert token not in fleet.log.read_text() + (audit.read_text() if audit.exists() else "")
    cluster.is_well()

    cluster.delete()
    cluster.leaves_nothing()
    cluster.until(lambda: not link.tunnels.open(), "the tunnel has ended with its machine")
