"""What those outside the manager know: each host its Secret and its tokens, each workload cluster its authority and its
Nodes. Written once when the fleet is raised, read by the processes that play hosts and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

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


def address(number: int) -> str:
    """Each cluster has a loopback address of its own."""
    return f"127.77.{number >> 8 & 255}.{number & 255}"
