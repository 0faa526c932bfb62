"""Flavours of nano: outwardly K3s (`NANO`) or RKE2 (`RKE2`). Each is a table of names, ports and behaviours. Other
modules read these and never compare the program's name.

The behaviours of RKE2 were seen on hosts or read in its source (docs/rke2.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from remuda.lab.nano import arguments
from remuda.lab.nano.arguments import ArgumentType


class Flavour(msgspec.Struct, frozen=True, kw_only=True):
    original: str  # distribution that it imitates
    name: str  # name of the program, also in its folders, paths and annotations
    release: str  # prefix of the release number in a version: the nano of +nano1
    server_arguments: Mapping[str, ArgumentType]
    agent_arguments: Mapping[str, ArgumentType]
    fatal: str  # prefix of the final error message
    supervisor_port: int
    peer_port: int  # port on which servers reach each other
    api_port: int = 6443
    static_pods: bool = False  # etcd, the API server and the like run in a process that outlives the program
    begins_without_etcd: bool = False  # a first server without etcd starts a cluster, on its own database
    health_ports_fixed: bool = False  # a component that serves its health on another port is killed
    excludes_cloud_addresses: bool = False  # see `check_cloud_settings`
    profiles: tuple[str, ...] = ()  # values of `profile` that give etcd's authorities to user etcd

    @property
    def config_file(self) -> str:
        return f"/etc/rancher/{self.name}/config.yaml"

    @property
    def data_dir(self) -> str:
        return f"/var/lib/rancher/{self.name}"

    @property
    def kubeconfig(self) -> str:
        return f"/etc/rancher/{self.name}/{self.name}.yaml"

    @property
    def prefix(self) -> str:
        """Return the prefix of the supervisor's paths."""
        return f"/v1-{self.name}"

    @property
    def unpacked(self) -> str:
        """Return the version of a source tree that is not from a bundle."""
        return f"v1.36.3+{self.release}0"

    def variable(self, name: str) -> str:
        return f"{self.name.upper()}_{name}"

    def header(self, name: str) -> str:
        """Return the name of a header in a request for a node's certificates, such as `Node-Name`."""
        return f"{self.name}-{name}"

    def supervisor_of(self, api_url: str) -> str:
        """Return the URL of the supervisor on the server with this API."""
        return re.sub(f":{self.api_port}$", f":{self.supervisor_port}", api_url)

    def etcd(self, name: str) -> str:
        """Return the name of a Node's annotation about etcd."""
        return f"etcd.{self.name}.cattle.io/{name}"


NANO = Flavour(
    original="K3s",
    name="nano",
    release="nano",
    server_arguments=arguments.SERVER,
    agent_arguments=arguments.AGENT,
    fatal="nano {command}: {why}",
    supervisor_port=6443,
    peer_port=6443,
)

RKE2 = Flavour(
    original="RKE2",
    name="rke2",
    release="rke2r",
    server_arguments=arguments.RKE2_SERVER,
    agent_arguments=arguments.RKE2_AGENT,
    fatal='level=fatal msg="{why}"',
    supervisor_port=9345,
    peer_port=2380,
    static_pods=True,
    begins_without_etcd=True,
    health_ports_fixed=True,
    excludes_cloud_addresses=True,
    profiles=("cis", "etcd"),
)
