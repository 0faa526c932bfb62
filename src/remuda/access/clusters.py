"""Clusters by their id in /k8s/clusters/<id>, and ids by the CAPI Cluster.

A user who may write a control plane could give it the id of another cluster. So the older control plane owns the id; if
two are equally old, neither does.
"""

from __future__ import annotations

from remuda.kube.objects import Key
from remuda.providers.controlplane.identity import cluster_of, id_of
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.caches import Caches

_ID = "access-id"
_CLUSTER = "access-cluster"


class Clusters:
    def __init__(self, caches: Caches) -> None:
        self.planes = caches.of(RKE_CONTROL_PLANE)
        self.planes.index(_ID, lambda plane: filter(None, (id_of(plane),)))
        self.planes.index(_CLUSTER, lambda plane: (str(cluster_of(plane)),))

    def plane(self, id: str) -> RKEControlPlane | None:
        claims = sorted(self.planes.select(_ID, id), key=_age)
        if len(claims) > 1 and _age(claims[0]) == _age(claims[1]):
            return None
        return claims[0] if claims else None

    def find(self, id: str) -> Key | None:
        """Return the CAPI Cluster with this id."""
        plane = self.plane(id)
        return None if plane is None else cluster_of(plane)

    def id(self, cluster: Key) -> str:
        """Return the id of a CAPI Cluster; empty if its control plane is not ours."""
        for plane in self.planes.select(_CLUSTER, str(cluster)):
            found = id_of(plane)
            if self.find(found) == cluster:
                return found
        return ""


def _age(plane: RKEControlPlane) -> str:
    return plane.metadata.creation_timestamp or ""
