"""K3s."""

from __future__ import annotations

from remuda.providers.controlplane.distros import Distro

K3S = Distro(
    name="k3s",
    env_prefix="K3S",
    server_unit="k3s",
    agent_unit="k3s-agent",
    supervisor_port=6443,
    server_arguments={},
    agent_arguments={},
    needs_cluster_init=True,
    taints_etcd_beside_control_plane=False,
    kubelet_without_api=False,
)
