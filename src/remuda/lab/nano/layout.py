"""Paths below the data directory: K3s' names for all of them, which are RKE2's too."""

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
        self.engine = self.db / "data"  # of the server that keeps the data
        self.cluster = self.db / "cluster.json"  # members of etcd, and which of them keeps the data
        self.etcd = self.db / "etcd"
        self.member_name = self.etcd / "name"
        self.tombstone = self.etcd / "tombstone"
        self.hand_over = self.etcd / "hand-over.json"  # there while the data is being given to another member
        self.agent = data / "agent"
        self.known_servers = self.agent / "etc" / f"{flavour.name}-agent-load-balancer.json"

    def make(self, *, server: bool) -> None:
        folders = [self.agent, self.known_servers.parent]
        if server:
            folders += [self.etcd_tls, self.credentials, self.manifests, self.etcd]
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """The file appears whole or not at all, survives a power cut, and is never readable by others for a moment."""
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
