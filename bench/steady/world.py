"""What those outside the manager know: each host its Secret and its tokens, each workload cluster its authority and its
Nodes. Written once when the fleet is raised, read by the processes that play hosts and clusters. Beside it, in the
manager's data, is what the driver `sim` remembers of its servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from remuda.providers.shared.drivers.simcloud import CloudEvent, SimServer

DATA, WORLD = "data", "world"  # in the folder of a fleet: the manager's data directory, and this


class Workload(msgspec.Struct, frozen=True):
    """A workload cluster, and where its API listens."""

    name: str
    address: str
    certificate: bytes
    key: bytes
    nodes: list[dict[str, Any]]


class Host(msgspec.Struct, frozen=True):
    namespace: str
    secret: str  # with its plan
    token: str
    tunnel: str  # the token of its tunnel; empty: it has none
    address: str  # of its cluster's API: this host's loopback


class Known(msgspec.Struct, frozen=True):
    url: str  # of the manager
    clusters: list[Workload]
    hosts: list[Host]

    @property
    def tunnels(self) -> int:
        return sum(bool(host.tunnel) for host in self.hosts)


def read(folder: Path) -> Known:
    return msgspec.msgpack.decode((folder / WORLD).read_bytes(), type=Known)


def write(folder: Path, known: Known, servers: Sequence[SimServer]) -> None:
    """With the servers as the cloud of the manager remembers them."""
    journal = _journal(folder)
    journal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = [CloudEvent(event="made", name=server.name, uid=server.key[1], server=server) for server in servers]
    _write(journal, b"".join(msgspec.json.encode(entry) + b"\n" for entry in made))
    _write(folder / WORLD, msgspec.msgpack.encode(known))


def read_servers(folder: Path) -> list[SimServer]:
    lines = _journal(folder).read_bytes().splitlines()
    made = (msgspec.json.decode(line, type=CloudEvent).server for line in lines)
    return [server for server in made if server is not None]


def _journal(folder: Path) -> Path:
    return folder / DATA / "hosts" / "sim" / "default.jsonl"


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def name(number: int) -> str:
    return f"herd-{number:03d}"


def address(number: int) -> str:
    """Each cluster has a loopback address of its own."""
    return f"127.77.{number >> 8 & 255}.{number & 255}"
