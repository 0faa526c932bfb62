"""RKECluster: the infrastructure of a Cluster whose servers come one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from remuda.capi.types import Endpoint
from remuda.kube.objects import Condition, Field, Kind, Object, Part
from remuda.providers import names

READY = "Ready"


class RKEClusterSpec(Part):
    control_plane_endpoint: Annotated[
        Endpoint | None, Field("Where the cluster's API is reached, if something stands before its servers.")
    ] = None


class RKEClusterInitialization(Part):
    provisioned: Annotated[bool | None, Field("Machines may be made.")] = None


class RKEClusterStatus(Part):
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


RKE_CLUSTER: Kind[RKECluster] = Kind(names.API_VERSION, "RKECluster", "rkeclusters", RKECluster)
KINDS: tuple[Kind[Any], ...] = (RKE_CLUSTER,)
