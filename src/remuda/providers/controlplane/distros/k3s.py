"""K3s."""

from __future__ import annotations

from remuda.providers.controlplane.distros import Distro, arguments

AGENT_ARGUMENTS = {**arguments.NODE, **arguments.K3S_NODE}
SERVER_ARGUMENTS = {**AGENT_ARGUMENTS, **arguments.SERVER, **arguments.K3S_SERVER}

K3S = Distro(
    name="k3s",
    env_prefix="K3S",
    server_unit="k3s",
    agent_unit="k3s-agent",
    installer_image="rancher/system-agent-installer-k3s",
    supervisor_port=6443,
    server_arguments=SERVER_ARGUMENTS,
    agent_arguments=AGENT_ARGUMENTS,
    needs_cluster_init=True,
    taints_etcd_beside_control_plane=False,
    kubelet_without_api=False,
)
