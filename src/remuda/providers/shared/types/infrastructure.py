"""RKECluster: the infrastructure of a Cluster whose servers come one by one.

Whether something stands before the servers is told by `standing_endpoint`: an endpoint that is only the address of one
of them bears the annotation ENDPOINT_MACHINE, written together with it, and may move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from remuda.capi.types import Endpoint
from remuda.kube.objects import Condition, Field, Kind, Object, Part
from remuda.providers.shared import names

# Conditions.
READY = "Ready"
INFRASTRUCTURE = "InfrastructureReady"  # what a driver makes for the cluster as a whole is as it shall be
STALLED = names.STALLED  # no further attempt is made: a person has to look

ENDPOINT_MACHINE = "remuda.dev/endpoint-machine"  # annotation: the Machine whose address the endpoint is


class Infrastructure(Part):
    """Infrastructure that a driver creates for the whole cluster, before its first machine: network, load balancer."""

    driver: Annotated[str, Field("Driver that creates the infrastructure.", required=True, min_length=1)] = ""
    options: Annotated[Mapping[str, Any], Field("Options of the driver.", preserve_unknown=True)] = {}
    cloud_credential_secret_name: Annotated[
        str, Field("A Secret with credentials: name, or namespace:name.", max_length=317)
    ] = ""


class RKEClusterSpec(Part):
    infrastructure: Annotated[
        Infrastructure | None, Field("Infrastructure that a driver creates for the cluster; none if unset.")
    ] = None
    control_plane_endpoint: Annotated[
        Endpoint | None, Field("API endpoint of the cluster, if a load balancer is in front of its servers.")
    ] = None


class RKEClusterInitialization(Part):
    provisioned: Annotated[
        bool | None, Field("Whether the infrastructure is provisioned, so that machines can be created.")
    ] = None


class InfrastructureStatus(Part):
    """State of the infrastructure that a driver creates."""

    driver: Annotated[str, Field("Driver that creates the infrastructure.")] = ""
    id: Annotated[str, Field("Id of the infrastructure, set by the driver.")] = ""
    network: Annotated[Mapping[str, str], Field("Network settings for machines of the same driver.")] = {}
    applied: Annotated[str, Field("Checksum of the last applied order.")] = ""
    job_name: Annotated[str, Field("Name of the current or last Job.")] = ""
    counted_job: Annotated[str, Field("uid of the last Job whose result is in this status.")] = ""
    failures: Annotated[int, Field("Number of consecutive failed attempts.", minimum=0)] = 0
    last_failure_time: Annotated[str | None, Field("Time of the last failure.", format="date-time")] = None
    failure_message: Annotated[str, Field("Last output of the failed Job.")] = ""
    hopeless: Annotated[bool, Field("Whether the driver rejected the options, so that a retry is useless.")] = False
    failed_order: Annotated[str, Field("Checksum of the failed order; a different order is tried at once.")] = ""
    retried: Annotated[str, Field("Last handled value of the annotation remuda.dev/retry.")] = ""


class RKEClusterStatus(Part):
    infrastructure: Annotated[
        InfrastructureStatus | None, Field("State of the infrastructure that a driver creates.")
    ] = None
    initialization: Annotated[RKEClusterInitialization, Field("Fields that Cluster API waits for.")] = (
        RKEClusterInitialization()
    )
    conditions: Annotated[
        Sequence[Condition], Field("Current state, as conditions.", list_type="map", list_map_keys=("type",))
    ] = ()


class RKECluster(Object):
    """The infrastructure of a Cluster whose servers come one by one."""

    spec: RKEClusterSpec = RKEClusterSpec()
    status: RKEClusterStatus = RKEClusterStatus()


def standing_endpoint(cluster: RKECluster) -> Endpoint | None:
    """Return the endpoint in front of the servers, the user's or a driver's; None if it is one server's address."""
    endpoint = cluster.spec.control_plane_endpoint
    if endpoint is None or not endpoint.valid or ENDPOINT_MACHINE in cluster.metadata.annotations:
        return None
    return endpoint


RKE_CLUSTER: Kind[RKECluster] = Kind(names.API_VERSION, "RKECluster", "rkeclusters", RKECluster)
KINDS: tuple[Kind[Any], ...] = (RKE_CLUSTER,)
