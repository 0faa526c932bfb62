"""RKE2."""

from __future__ import annotations

from remuda.providers.controlplane.distros import Distro, arguments

AGENT_ARGUMENTS = {**arguments.NODE, **arguments.RKE2_NODE}
SERVER_ARGUMENTS = {**AGENT_ARGUMENTS, **arguments.SERVER, **arguments.RKE2_SERVER}

RKE2 = Distro(
    name="rke2",
    env_prefix="RKE2",
    server_unit="rke2-server",
    agent_unit="rke2-agent",
    installer_image="rancher/system-agent-installer-rke2",
    supervisor_port=9345,
    server_arguments=SERVER_ARGUMENTS,
    agent_arguments=AGENT_ARGUMENTS,
    defaults={"cni": "calico"},
    network_probe=":9099/liveness",
    probed_networks=frozenset({"calico"}),
    executed=False,
)
