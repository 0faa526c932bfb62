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
    """What a driver makes for the cluster as a whole, before its first machine: a network, a balancer."""

    driver: Annotated[str, Field("Which driver makes it.", required=True, min_length=1)] = ""
    options: Annotated[Mapping[str, Any], Field("Of that driver.", preserve_unknown=True)] = {}
    cloud_credential_secret_name: Annotated[
        str, Field("A Secret with credentials: name, or namespace:name.", max_length=317)
    ] = ""


class RKEClusterSpec(Part):
    infrastructure: Annotated[Infrastructure | None, Field("Made by a driver; without it, servers share nothing.")] = (
        None
    )
    control_plane_endpoint: Annotated[
        Endpoint | None, Field("Where the cluster's API is reached, if something stands before its servers.")
    ] = None


class RKEClusterInitialization(Part):
    provisioned: Annotated[bool | None, Field("Machines may be made.")] = None


class InfrastructureStatus(Part):
    """How far a driver is with it."""

    driver: Annotated[str, Field("The driver that makes it.")] = ""
    id: Annotated[str, Field("What the driver calls it.")] = ""
    network: Annotated[Mapping[str, str], Field("What machines of that driver have to know of it.")] = {}
    applied: Annotated[str, Field("Checksum of the order that was carried out last.")] = ""
    job_name: Annotated[str, Field("The Job that works on it, or did last.")] = ""
    counted_job: Annotated[str, Field("uid of the Job whose end is in this status.")] = ""
    failures: Annotated[int, Field("Attempts that failed in a row.", minimum=0)] = 0
    last_failure_time: Annotated[str | None, Field("When the last of them failed.", format="date-time")] = None
    failure_message: Annotated[str, Field("The last words of the Job that failed.")] = ""
    hopeless: Annotated[bool, Field("It cannot work with these options.")] = False
    failed_order: Annotated[str, Field("Checksum of the order that failed: another one is tried at once.")] = ""
    retried: Annotated[str, Field("The value of the annotation remuda.dev/retry that has been acted on.")] = ""


class RKEClusterStatus(Part):
    infrastructure: Annotated[InfrastructureStatus | None, Field("What a driver makes for the cluster.")] = None
    initialization: Annotated[RKEClusterInitialization, Field("What Cluster API waits for.")] = (
        RKEClusterInitialization()
    )
    conditions: Annotated[
        Sequence[Condition], Field("What is known of it.", list_type="map", list_map_keys=("type",))
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
