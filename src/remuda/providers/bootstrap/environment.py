"""Environment of the hosts' agents, from a cluster's control plane: proxies and the like, and the state directory.

A host receives it once, with the script that installs the agent. Later changes apply only to hosts created afterwards.
"""

from __future__ import annotations

from remuda.capi.types import Cluster
from remuda.kube.objects import Key
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane

Environment = dict[str, str]

_STATE = "CATTLE_AGENT_VAR_DIR"


def control_plane_of(cluster: Cluster) -> Key | None:
    """None: that of another provider, which says nothing of agents."""
    reference = cluster.spec.control_plane_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CONTROL_PLANE.group, RKE_CONTROL_PLANE.name):
        return None
    return Key(cluster.metadata.namespace, reference.name)


def of(control_plane: RKEControlPlane) -> Environment:
    """Return the agents' environment. Only dataDirectories sets the state directory, as in plans."""
    spec = control_plane.spec
    found = {variable.name: variable.value for variable in spec.agent_env_vars if variable.value}
    found.pop(_STATE, None)
    if spec.data_directories.system_agent:
        found[_STATE] = spec.data_directories.system_agent
    return found
