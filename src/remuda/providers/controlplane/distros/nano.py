"""nano, the stand-in."""

from __future__ import annotations

from remuda.providers.controlplane.distros import Distro

NANO = Distro(
    name="nano",
    env_prefix="NANO",
    server_unit="nano",
    agent_unit="nano-agent",
    supervisor_port=6443,
    server_arguments={},
    agent_arguments={},
    needs_cluster_init=True,
    taints_etcd_beside_control_plane=False,
    kubelet_without_api=False,
)
