"""What a cluster's control plane says of the agents of its hosts: proxies and the like, and where they keep state.

It reaches a host once, with the script that installs the agent; what is changed later is for hosts made from then on.
"""

from __future__ import annotations

from remuda.capi.types import Cluster
from remuda.kube.objects import Key
from remuda.providers.controlplane.types import RKE_CONTROL_PLANE, RKEControlPlane

Environment = dict[str, str]

_STATE = "CATTLE_AGENT_VAR_DIR"


def control_plane_of(cluster: Cluster) -> Key | None:
    """None: that of another provider, which says nothing of agents."""
    reference = cluster.spec.control_plane_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CONTROL_PLANE.group, RKE_CONTROL_PLANE.name):
        return None
    return Key(cluster.metadata.namespace, reference.name)


def of(control_plane: RKEControlPlane) -> Environment:
    """Where state is kept is set by dataDirectories alone, as in plans."""
    spec = control_plane.spec
    found = {variable.name: variable.value for variable in spec.agent_env_vars if variable.value}
    found.pop(_STATE, None)
    if spec.data_directories.system_agent:
        found[_STATE] = spec.data_directories.system_agent
    return found
