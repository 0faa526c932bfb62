"""`provisioning.cattle.io/v1` Cluster, and `management.cattle.io/v3` Cluster, which gives it the id it is reached by.

Fields that do nothing yet are here too, so that they can be refused by name (`provisioning.fields`); none is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from remuda.capi.types.shared import Conditions, Generation, Percentage
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.kube.schema import Rule
from remuda.providers.shared import names
from remuda.providers.shared.types.configuration import EnvVar, LocalClusterAuthEndpoint, Operations, Taint

API_VERSION = "provisioning.cattle.io/v1"

# Conditions of a provisioning Cluster.
CREATED = "Created"  # the management Cluster is there
RKE_CLUSTER_CONDITION = "RKECluster"  # what it asks for has been made into objects
READY, UPDATED, PROVISIONED = "Ready", "Updated", "Provisioned"  # all three tell what its RKEControlPlane tells
RECONCILING, STALLED = "Reconciling", "Stalled"
REMOVED = "Removed"
HELD = "Held"  # a change is not made, because the user has forbidden what it would do
AUTHOR_RECORDED = "AuthorRecorded"  # False: nobody is known to have chosen its credentials

IN_PLACE_ONLY, REPLACE = "inPlaceOnly", "replace"

CredentialName = Annotated[
    str, Field("Cloud credential: namespace:name, or the name of a Secret in this namespace.", max_length=317)
]


class ObjectReference(Part):
    """As core/v1 has it; only these are read."""

    api_version: Annotated[str, Field("API version of the object.")] = ""
    kind: Annotated[str, Field("Kind of the object.", required=True)] = ""
    name: Annotated[str, Field("Name of the object.", required=True)] = ""
    namespace: Annotated[str, Field("Namespace of the Cluster, or empty.")] = ""
    uid: Annotated[str, Field("Not used.")] = ""
    resource_version: Annotated[str, Field("Not used.")] = ""
    field_path: Annotated[str, Field("Not used.")] = ""


class PoolRollingUpdate(Part):
    max_unavailable: Annotated[
        Percentage | None, Field("Number of machines that may be unavailable during a replacement.")
    ] = None
    max_surge: Annotated[Percentage | None, Field("Number of additional machines during a replacement.")] = None


class PoolUserData(Part):
    inline_userdata: Annotated[str, Field("A #cloud-config; only for other infrastructure providers.")] = ""


class MachinePool(Part):
    """Machines of one sort."""

    name: Annotated[str, Field("Name of the pool.", required=True, min_length=1)] = ""
    display_name: Annotated[str, Field("Deprecated; not used.")] = ""
    machine_config_ref: Annotated[
        ObjectReference | None,
        Field("The <Driver>Config of the pool, or the template of another infrastructure provider.", required=True),
    ] = None
    etcd_role: Annotated[bool, Field("The machines are etcd members.")] = False
    control_plane_role: Annotated[bool, Field("The machines run the API server, controllers and scheduler.")] = False
    worker_role: Annotated[bool, Field("The machines run user Pods.")] = False
    quantity: Annotated[int | None, Field("Number of machines; 1 if unset.", minimum=0, format="int32")] = None
    labels: Annotated[Mapping[str, str], Field("Labels of the pool's Nodes and Machines.")] = {}
    taints: Annotated[Sequence[Taint], Field("Taints of the pool's Nodes.", list_type="atomic")] = ()
    cloud_credential_secret_name: CredentialName = ""
    paused: Annotated[bool, Field("Machines are neither replaced nor scaled.")] = False
    drain_before_delete: Annotated[bool, Field("Nodes are drained before their machine is deleted.")] = False
    drain_before_delete_timeout: Annotated[str | None, Field('Time limit of the drain: "10m".')] = None
    rolling_update: Annotated[PoolRollingUpdate | None, Field("How machines are replaced.")] = None
    machine_deployment_labels: Annotated[Mapping[str, str], Field("Of the MachineDeployment.")] = {}
    machine_deployment_annotations: Annotated[Mapping[str, str], Field("Of the MachineDeployment.")] = {}
    autoscaling_min_size: Annotated[int | None, Field("Minimum number of machines for an autoscaler.", minimum=0)] = (
        None
    )
    autoscaling_max_size: Annotated[int | None, Field("Maximum number of machines for an autoscaler.", minimum=1)] = (
        None
    )
    node_startup_timeout: Annotated[str | None, Field("A machine without a Node for this long is unhealthy.")] = None
    unhealthy_node_timeout: Annotated[
        str | None, Field("The machine of a Node that is not Ready for this long is replaced; never, if unset.")
    ] = None
    max_unhealthy: Annotated[str | None, Field("If more machines than this are unhealthy, none is replaced.")] = None
    unhealthy_range: Annotated[
        str | None, Field('Machines are replaced only while the number of unhealthy ones is in this range: "[1-3]".')
    ] = None
    machine_os: Annotated[str, Field("linux.", enum=("", "linux", "windows"))] = msgspec.field(
        name="machineOS", default=""
    )
    hostname_length_limit: Annotated[int, Field("Maximum length of host names.", minimum=10, maximum=63)] = 0
    dynamic_schema_spec: Annotated[
        str, Field("Options that the driver had when the pool was created, as JSON; set by the manager.")
    ] = ""
    userdata: Annotated[PoolUserData | None, Field("User data; only for other infrastructure providers.")] = None
    replacement: Annotated[
        str,
        Field(
            "inPlaceOnly: changes that would replace machines are denied.",
            enum=("", IN_PLACE_ONLY, REPLACE),
        ),
    ] = ""


_HAS_MIN, _HAS_MAX = "has(self.autoscalingMinSize)", "has(self.autoscalingMaxSize)"
_IS_SERVER = "((has(self.etcdRole) && self.etcdRole) || (has(self.controlPlaneRole) && self.controlPlaneRole))"
_POOL_RULES = (
    Rule(rule=f"{_HAS_MIN} == {_HAS_MAX}", message="set both autoscalingMinSize and autoscalingMaxSize, or neither"),
    Rule(
        rule=f"!{_HAS_MIN} || !{_HAS_MAX} || self.autoscalingMinSize <= self.autoscalingMaxSize",
        message="autoscalingMinSize must not be more than autoscalingMaxSize",
    ),
    Rule(
        rule=f"!{_HAS_MIN} || self.autoscalingMinSize > 0 || !{_IS_SERVER}",
        message="autoscalingMinSize must be more than 0 for etcd and control plane pools",
    ),
)


class MachinePoolDefaults(Part):
    hostname_length_limit: Annotated[int, Field("Default for pools that do not set it.", minimum=10, maximum=63)] = 0


class ClusterInfrastructure(Part):
    """Infrastructure that a driver makes for the whole cluster before its first machine: a network, a balancer."""

    driver: Annotated[str, Field("Driver that creates the infrastructure.", required=True, min_length=1)] = ""
    options: Annotated[Mapping[str, Any], Field("Options of the driver.", preserve_unknown=True)] = {}


class RKEConfig(Operations):
    machine_pools: Annotated[
        Sequence[MachinePool],
        Field(
            "Pools of machines to create. Without any, hosts register themselves.",
            list_type="map",
            list_map_keys=("name",),
            max_items=1000,
            items=Field(rules=_POOL_RULES),
        ),
    ] = ()
    machine_pool_defaults: Annotated[MachinePoolDefaults, Field("For pools.")] = MachinePoolDefaults()
    infrastructure_ref: Annotated[
        ObjectReference | None, Field("Cluster infrastructure of another provider; an RKECluster if unset.")
    ] = None
    cluster_infrastructure: Annotated[
        ClusterInfrastructure | None, Field("Infrastructure that a driver creates for the cluster as a whole.")
    ] = None


class ClusterAPIConfig(Part):
    cluster_name: Annotated[str, Field("Not supported.")] = ""


class ClusterSpec(Part):
    kubernetes_version: Annotated[str, Field('Distribution and version, for example "v1.36.4+k3s1".')] = ""
    cloud_credential_secret_name: CredentialName = ""
    rke_config: Annotated[RKEConfig | None, Field("Configuration of the cluster and its machines.")] = None
    local_cluster_auth_endpoint: Annotated[LocalClusterAuthEndpoint, Field("Not supported yet.")] = (
        LocalClusterAuthEndpoint()
    )
    agent_env_vars: Annotated[
        Sequence[EnvVar], Field("Environment variables of the installation.", list_type="atomic")
    ] = ()
    cluster_agent_deployment_customization: Annotated[
        Mapping[str, Any] | None, Field("Not supported: Remuda has no cluster agent.", preserve_unknown=True)
    ] = None
    fleet_agent_deployment_customization: Annotated[
        Mapping[str, Any] | None, Field("Not supported.", preserve_unknown=True)
    ] = None
    webhook_deployment_customization: Annotated[
        Mapping[str, Any] | None, Field("Not supported.", preserve_unknown=True)
    ] = None
    default_pod_security_admission_configuration_template_name: Annotated[str, Field("Not supported.")] = ""
    enable_network_policy: Annotated[bool | None, Field("Not supported.")] = None
    redeploy_system_agent_generation: Annotated[int, Field("Not needed: agents update themselves.")] = 0
    cluster_api_config: Annotated[ClusterAPIConfig | None, Field("Not supported.")] = msgspec.field(
        name="clusterAPIConfig", default=None
    )
    default_cluster_role_for_project_members: Annotated[str, Field("Deprecated; not used.")] = ""


class ClusterStatus(Part):
    ready: Annotated[bool, Field("The cluster is ready.")] = False
    cluster_name: Annotated[str, Field("The management Cluster: the id in /k8s/clusters/<id>.")] = ""
    fleet_workspace_name: Annotated[str, Field("The namespace.")] = ""
    client_secret_name: Annotated[str, Field("The Secret with the kubeconfig.")] = ""
    agent_deployed: Annotated[bool, Field("The cluster's API answers.")] = False
    observed_generation: Generation = 0
    conditions: Conditions = ()


class Cluster(Object):
    """A Kubernetes cluster: its machines, what runs on them, and how they are kept."""

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class ManagementClusterSpec(Part):
    display_name: Annotated[str, Field("Name of the cluster for users.")] = ""
    description: Annotated[str, Field("Description of the cluster.")] = ""
    fleet_workspace_name: Annotated[str, Field("Namespace of the provisioning Cluster.")] = ""
    imported_config: Annotated[Mapping[str, Any] | None, Field("Not used.", preserve_unknown=True)] = None


class ProvisioningClusterRef(Part):
    """The provisioning Cluster it was made with."""

    namespace: Annotated[str, Field("Its namespace.")] = ""
    name: Annotated[str, Field("Its name.")] = ""


class ManagementClusterInfo(Part):
    """Status of a management Cluster, copied from its provisioning Cluster."""

    machine_provider: Annotated[str, Field("The driver of the first pool, or custom.")] = ""
    kubernetes_version: Annotated[str, Field("The desired version.")] = ""
    node_count: Annotated[int, Field("Number of Machines.")] = 0
    provisioning_cluster_ref: ProvisioningClusterRef | None = None


class ManagementClusterStatus(Part):
    info: ManagementClusterInfo = ManagementClusterInfo()
    conditions: Conditions = ()


class ManagementCluster(Object):
    """The id a cluster is reached by, and what is known of it; it is made with the provisioning Cluster."""

    spec: ManagementClusterSpec = ManagementClusterSpec()
    status: ManagementClusterStatus = ManagementClusterStatus()


CLUSTER: Kind[Cluster] = Kind(API_VERSION, "Cluster", "clusters", Cluster)
MANAGEMENT_CLUSTER: Kind[ManagementCluster] = Kind(
    names.MANAGEMENT_API_VERSION, "Cluster", "clusters", ManagementCluster, namespaced=False
)
KINDS: tuple[Kind[Any], ...] = (CLUSTER, MANAGEMENT_CLUSTER)
