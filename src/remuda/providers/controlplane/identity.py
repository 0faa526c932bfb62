"""Cluster id, as used in /k8s/clusters/<id> and in the tokens of the cluster's tunnels.

Clusters created by provisioning have their id in RKEControlPlane `spec.managementClusterName`. A control plane that a
user created by hand has none: its id is derived from its Cluster's name, so that all components compute the same one.
"""

from __future__ import annotations

import base64
import hashlib

from remuda.kube.names import dns1123_label
from remuda.kube.objects import Key
from remuda.providers.shared.types.controlplane import RKEControlPlane

_HASHED = 10  # characters


def id_of(plane: RKEControlPlane) -> str:
    """Empty for what cannot have one: its name for itself is no DNS label."""
    given = plane.spec.management_cluster_name
    if given:
        return "" if dns1123_label(given) else given
    return derived_id(cluster_of(plane))


def derived_id(cluster: Key) -> str:
    """Derive the id of a cluster that was given none."""
    digest = hashlib.sha256(f"{cluster.namespace}/{cluster.name}".encode()).digest()
    return "c-" + base64.b32encode(digest).decode().lower()[:_HASHED]


def cluster_of(plane: RKEControlPlane) -> Key:
    """The CAPI Cluster it is the control plane of."""
    return Key(plane.metadata.namespace, plane.spec.cluster_name)
