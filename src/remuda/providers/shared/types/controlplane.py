"""RKEControlPlane: the control plane of a Cluster whose servers are Machines like all others, told apart by roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from remuda.capi.types import Endpoint
from remuda.capi.types.shared import Conditions, Generation
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.providers.shared import names
from remuda.providers.shared.types.configuration import EnvVar, LocalClusterAuthEndpoint, Operations

# Conditions. The first four are the contract's; the others are upstream's names.
AVAILABLE = "Available"
NO_SERVER = "NoServer"  # reason of an Available that is False: no control plane node is healthy
ROLLING_OUT = "RollingOut"
SCALING_UP = "ScalingUp"
SCALING_DOWN = "ScalingDown"
READY = "Ready"  # the cluster is alive, and every node is as it shall be
RECONCILED = "Reconciled"
STABLE = "Stable"
PROVISIONED = "Provisioned"  # there is at least one machine of each role
BOOTSTRAPPED = "Bootstrapped"
CERTIFICATES_AVAILABLE = "CertificatesAvailable"
HELD = "Held"  # something is not done because it would do harm: what, and what to do about it

RECONCILED_MACHINE = "Reconciled"  # condition of a Machine: what the planner waits for there
PLAN_APPLIED = "PlanApplied"  # condition of a Machine: how its last plan went

INIT_NODE_MACHINE_ID = "rke.cattle.io/init-node-machine-id"  # label of an RKEControlPlane: the user's choice


class RKEControlPlaneSpec(Operations):
    kubernetes_version: Annotated[
        str, Field('Distribution and version, for example "v1.36.4+k3s1".', required=True, min_length=1)
    ] = ""
    cluster_name: Annotated[str, Field("Cluster that the control plane belongs to.", required=True, max_length=63)] = ""
    management_cluster_name: Annotated[str, Field("Id of the cluster in /k8s/clusters/<id>.")] = ""
    agent_env_vars: Annotated[
        Sequence[EnvVar], Field("Environment variables of the installation.", list_type="atomic")
    ] = ()
    local_cluster_auth_endpoint: Annotated[LocalClusterAuthEndpoint, Field("Not supported yet.")] = (
        LocalClusterAuthEndpoint()
    )
    unmanaged_config: Annotated[bool, Field("Not supported.")] = False
    control_plane_endpoint: Annotated[
        Endpoint | None, Field("API endpoint, if a load balancer is in front of the servers.")
    ] = None


class ControlPlaneInitialization(Part):
    control_plane_initialized: Annotated[bool | None, Field("The cluster's API answers.")] = None


class Renderer(Part):
    """Pinned inputs of plans: a new release of the manager changes no plan by itself."""

    version: Annotated[int, Field("Version of the plan format.", minimum=1)] = 1


class Installer(Part):
    """Source from which nodes install a version of the distribution: decided once per version."""

    version: Annotated[str, Field("Version of the distribution.")] = ""
    image: Annotated[str, Field("An installer image that nodes pull, or …")] = ""
    artefacts: Annotated[
        Mapping[str, Mapping[str, str]],
        Field("… files that the manager serves: by architecture and name, their sha256.", preserve_unknown=True),
    ] = {}


class RunningVersion(Part):
    """A version, and how many servers run it."""

    version: Annotated[str, Field("The version of the kubelet.", required=True)] = ""
    replicas: Annotated[int, Field("Number of servers that run it.", format="int32", required=True)] = 0


class RKEControlPlaneStatus(Part):
    initialization: Annotated[ControlPlaneInitialization, Field("Fields that Cluster API waits for.")] = (
        ControlPlaneInitialization()
    )
    observed_generation: Generation = 0
    version: Annotated[str, Field("Lowest version that a node runs.")] = ""
    versions: Annotated[
        Sequence[RunningVersion], Field("Versions that servers run, the lowest first.", list_type="atomic")
    ] = ()
    replicas: Annotated[int | None, Field("Number of control plane Machines.", format="int32")] = None
    ready_replicas: Annotated[int | None, Field("Number of ready control plane Machines.", format="int32")] = None
    available_replicas: Annotated[int | None, Field("Number of available control plane Machines.", format="int32")] = (
        None
    )
    up_to_date_replicas: Annotated[
        int | None, Field("Number of control plane Machines that have applied their current plan.", format="int32")
    ] = None
    renderer: Annotated[Renderer | None, Field("Renderer of the plans.")] = None
    installer: Annotated[Installer | None, Field("Source of the desired version.")] = None
    config_generation: Annotated[
        int, Field("Generation of the configuration; a new one restarts nodes.", format="int64")
    ] = 0
    applied_spec: Annotated[
        Mapping[str, Any] | None, Field("The spec that all nodes have applied.", preserve_unknown=True)
    ] = None
    conditions: Conditions = ()


class RKEControlPlane(Object):
    """The servers of a cluster, and what they and its workers are to do."""

    spec: RKEControlPlaneSpec = RKEControlPlaneSpec()
    status: RKEControlPlaneStatus = RKEControlPlaneStatus()


RKE_CONTROL_PLANE: Kind[RKEControlPlane] = Kind(
    names.API_VERSION, "RKEControlPlane", "rkecontrolplanes", RKEControlPlane
)
KINDS: tuple[Kind[Any], ...] = (RKE_CONTROL_PLANE,)
