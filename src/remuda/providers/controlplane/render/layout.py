"""Paths and addresses on a host of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.providers.controlplane.planner.observation import ClusterFacts
from remuda.providers.controlplane.render.arguments import is_path

AGENT_REGISTRIES = "/etc/rancher/agent/registries.yaml"


class HostLayout(msgspec.Struct, frozen=True):
    data: str  # of the distribution
    state: str  # what plans remember
    agent: str
    config: str

    @property
    def settings(self) -> str:
        return f"{self.config}/config.yaml.d/50-rancher.yaml"

    @property
    def registries(self) -> str:
        return f"{self.config}/registries.yaml"

    @property
    def servers(self) -> str:
        """File with the list of servers that a host joins by."""
        return f"{self.config}/remuda-servers"

    @property
    def authority(self) -> str:
        """File with the CA certificate that a host trusts when it joins."""
        return f"{self.config}/remuda-ca.crt"

    @property
    def tool(self) -> str:
        return f"{self.state}/host-tool.py"

    def active_file(self, unit: str) -> str:
        """Return the file that exists only while systemd calls the unit active (`distros/prepare-rke2.sh`)."""
        return f"{self.state}/active-{unit}.crt"

    @property
    def authorities(self) -> str:
        """Directory where the agent puts the cluster's CAs, for the installation to move them to their places."""
        return f"{self.state}/authorities"

    @property
    def manager(self) -> str:
        """File from which the agent reads the CAs to trust, besides those it was given when it registered."""
        return f"{self.agent}/servers.d/50-manager.json"

    def tunnel_file(self, name: str) -> str:
        return f"{self.state}/tunnel/{name}"

    @property
    def server(self) -> str:
        return f"{self.data}/server"

    @property
    def manifests(self) -> str:
        return f"{self.server}/manifests/rancher"

    def config_file(self, name: str) -> str:
        return f"{self.data}/etc/config-files/{name}"


def of(cluster: ClusterFacts) -> HostLayout:
    chosen = cluster.spec.data_directories
    return HostLayout(
        data=_clean(chosen.k8s_distro or _configured(cluster) or cluster.distro.data_dir),
        state=_clean(chosen.provisioning or "/var/lib/rancher/capr"),
        agent=_clean(chosen.system_agent or "/var/lib/rancher/agent"),
        config=cluster.distro.config_dir,
    )


def loopback(cluster: ClusterFacts) -> str:
    networking = cluster.spec.networking
    preference = networking.stack_preference if networking is not None else ""
    return {"": "localhost", "dual": "localhost", "ipv6": "[::1]"}.get(preference, "127.0.0.1")


def one_of_each_family(addresses: Sequence[str]) -> list[str]:
    """Return the first address of each family: a kubelet accepts no more."""
    found: dict[bool, str] = {}
    for address in addresses:
        found.setdefault(":" in address, address)
    return list(found.values())


def _configured(cluster: ClusterFacts) -> str:
    found = cluster.spec.machine_global_config.get("data-dir")
    return str(found) if is_path(found) else ""


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"
