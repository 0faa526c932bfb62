"""nano, the stand-in: outwardly K3s."""

from __future__ import annotations

from remuda.providers.shared.distros import Distro
from remuda.providers.shared.distros.k3s import AGENT_ARGUMENTS, SERVER_ARGUMENTS

NANO = Distro(
    name="nano",
    env_prefix="NANO",
    server_unit="nano",
    agent_unit="nano-agent",
    supervisor_port=6443,
    server_arguments=SERVER_ARGUMENTS,
    agent_arguments=AGENT_ARGUMENTS,
    needs_cluster_init=True,
    taints_etcd_beside_control_plane=False,
    kubelet_without_api=False,
)
