"""RKE2."""

from __future__ import annotations

from remuda.providers.controlplane.distros import Distro

RKE2 = Distro(
    name="rke2",
    env_prefix="RKE2",
    server_unit="rke2-server",
    agent_unit="rke2-agent",
    supervisor_port=9345,
    server_arguments={},
    agent_arguments={},
)
