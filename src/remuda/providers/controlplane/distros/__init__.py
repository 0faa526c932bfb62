"""The distributions a cluster can be made of: tables of facts, and nothing else.

What the planner knows of a distribution it knows from here; it asks for facts, never for names. A `kubernetesVersion`
names its distribution: `v1.36.4+k3s1`, `v1.36.4+rke2r1`, `v1.36.4+nano1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

ArgumentType = Literal["string", "boolean", "list", "number"]


class Distro(msgspec.Struct, frozen=True, kw_only=True):
    """Paths are as on a real host."""

    name: str  # also of its folders: /etc/rancher/<name>
    env_prefix: str  # K3S
    server_unit: str  # without .service
    agent_unit: str
    supervisor_port: int  # where nodes join
    api_port: int = 6443
    server_arguments: Mapping[str, ArgumentType]  # what the config file of a server may hold, the agent's included
    agent_arguments: Mapping[str, ArgumentType]
    defaults: Mapping[str, Any] = {}  # config of every node that the user has not set
    needs_cluster_init: bool = False  # its first server must be told to begin a cluster of its own
    taints_etcd_beside_control_plane: bool = True  # whether a node with both roles also gets the taint of etcd
    kubelet_without_api: bool = True  # whether the kubelet of an etcd-only node answers before there is an API
    network_probe: str = ""  # port and path on loopback, where the network is one of `probed_networks`; empty: none
    probed_networks: frozenset[str] = frozenset()
    installer_image: str = ""  # without its tag; empty: it is installed from artefacts of the manager only
    executed: bool = True  # in tests; else only rendered, and the docs say so

    @property
    def data_dir(self) -> str:
        return f"/var/lib/rancher/{self.name}"

    @property
    def config_dir(self) -> str:
        return f"/etc/rancher/{self.name}"

    @property
    def etcd_annotation(self) -> str:
        """Prefix of what the distribution says of etcd on its Nodes, and is asked there."""
        return f"etcd.{self.name}.cattle.io"


class Version(msgspec.Struct, frozen=True, order=True):
    """`order` is by age; the text it was read from comes last."""

    major: int
    minor: int
    patch: int
    release: int  # of the distribution: the 1 of +k3s1
    candidate: str
    distro: str
    text: str

    @property
    def kubernetes(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"


class BadVersion(ValueError):
    """In the user's words."""


_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(rc\d+))?\+(k3s|rke2r|nano)(\d+)(-rc\d+)?")


def parse_version(text: str) -> Version:
    """Raises BadVersion."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise BadVersion(
            f"{text!r} is no version of a distribution: v1.36.4+k3s1, v1.36.4+rke2r1 and v1.36.4+nano1 are ones"
        )
    major, minor, patch, early, distro, release, late = match.groups()
    candidate = early or (late or "").lstrip("-") or "z"  # a release comes after its candidates
    return Version(
        int(major),
        int(minor),
        int(patch),
        int(release),
        candidate,
        distro.rstrip("r") if distro == "rke2r" else distro,
        text,
    )


def of(version: Version) -> Distro:
    from remuda.providers.controlplane.distros.k3s import K3S
    from remuda.providers.controlplane.distros.nano import NANO
    from remuda.providers.controlplane.distros.rke2 import RKE2

    return {"k3s": K3S, "rke2": RKE2, "nano": NANO}[version.distro]
