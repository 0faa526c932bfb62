"""The distributions a cluster can be made of: tables of facts, and nothing else (`contract`: with their sources).

What the planner knows of a distribution it knows from here; it asks for facts, never for names. A `kubernetesVersion`
names its distribution: `v1.36.4+k3s1`, `v1.36.4+rke2r1`, `v1.36.4+nano1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.providers.shared.distros.contract import ArgumentType, Contract

__all__ = ["ArgumentType", "BadVersion", "Distro", "Version", "of", "parse_version"]


class Distro(msgspec.Struct, frozen=True, kw_only=True):
    """Paths are as on a real host."""

    name: str  # also of its folders: /etc/rancher/<name>
    env_prefix: str  # K3S
    server_unit: str  # without .service
    agent_unit: str
    supervisor_port: int  # where nodes join
    api_port: int = 6443
    server_arguments: Mapping[str, ArgumentType]  # keys of a server's config file, including the agent's
    agent_arguments: Mapping[str, ArgumentType]
    defaults: Mapping[str, Any] = {}  # config of every node that the user has not set
    needs_cluster_init: bool = False  # its first server needs a setting to start a new cluster
    taints_etcd_beside_control_plane: bool = True  # whether a node with both roles also gets the taint of etcd
    kubelet_without_api: bool = True  # whether the kubelet of an etcd-only node answers before there is an API
    components_outlive_unit: bool = False  # whether etcd and the API server answer while the unit of a server restarts
    network_probe: str = ""  # port and path on loopback, where the network is one of `probed_networks`; empty: none
    probed_networks: frozenset[str] = frozenset()
    installer_image: str = ""  # without its tag; empty: it is installed from artefacts of the manager only
    executed: bool = True  # executed in tests; otherwise only rendered, as the docs say
    contract: Contract = Contract()  # facts with their sources, by version

    def arguments(self, server: bool, version: Version) -> dict[str, ArgumentType]:
        """Return the keys that the config file of a server, or else of an agent, may hold in this version."""
        missing = {name for keys in self.contract.keys if not keys.holds(version) for name in keys.types}
        table = self.server_arguments if server else self.agent_arguments
        return {name: kind for name, kind in table.items() if name not in missing}

    def unit(self, server: bool) -> str:
        return self.server_unit if server else self.agent_unit

    @property
    def data_dir(self) -> str:
        return f"/var/lib/rancher/{self.name}"

    @property
    def config_dir(self) -> str:
        return f"/etc/rancher/{self.name}"

    @property
    def etcd_annotation(self) -> str:
        """Return the prefix of the annotations about etcd on Nodes."""
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
    """Error with a message for users."""


_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(rc\d+))?\+(k3s|rke2r|nano)(\d+)(-rc\d+)?")


def parse_version(text: str) -> Version:
    """Raises BadVersion."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise BadVersion(
            f"{text!r} is not a version of a distribution; examples: v1.36.4+k3s1, v1.36.4+rke2r1, v1.36.4+nano1"
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
    from remuda.providers.shared.distros.k3s import K3S, NANO
    from remuda.providers.shared.distros.rke2 import RKE2

    return {"k3s": K3S, "rke2": RKE2, "nano": NANO}[version.distro]
