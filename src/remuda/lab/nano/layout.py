"""Paths below the data directory, with K3s' names, which RKE2 uses too."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from remuda.lab.nano.flavour import NANO, Flavour


class NanoLayout:
    def __init__(self, data: Path, flavour: Flavour = NANO) -> None:
        self.flavour = flavour
        self.data = data
        self.server = data / "server"
        self.tls = self.server / "tls"
        self.etcd_tls = self.tls / "etcd"
        self.credentials = self.server / "cred"
        self.manifests = self.server / "manifests"
        self.db = self.server / "db"
        self.engine = self.db / "data"  # on the server that has the data
        self.cluster = self.db / "cluster.json"  # members of etcd, and the one that has the data
        self.etcd = self.db / "etcd"
        self.member_name = self.etcd / "name"
        self.tombstone = self.etcd / "tombstone"
        self.hand_over = self.etcd / "hand-over.json"  # exists while the data is handed over to another member
        self.agent = data / "agent"
        self.known_servers = self.agent / "etc" / f"{flavour.name}-agent-load-balancer.json"

    def make(self, *, server: bool) -> None:
        folders = [self.agent, self.known_servers.parent]
        if server:
            folders += [self.etcd_tls, self.credentials, self.manifests, self.etcd]
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file atomically and durably. It is never readable by other users."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
