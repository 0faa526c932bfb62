"""Admission of Clusters. It sets no defaults."""

from __future__ import annotations

import ipaddress

from remuda.capi.admission.rules import admission
from remuda.capi.types import CLUSTER, Cluster, NetworkRanges
from remuda.capi.types.cluster import NO_TOPOLOGY
from remuda.kube import names as kube_names
from remuda.kube.errors import FieldError, forbidden, invalid


def complaints(cluster: Cluster) -> list[FieldError]:
    found = [
        invalid("metadata.name", cluster.metadata.name, f"is used as a label value of other objects: {complaint}")
        for complaint in kube_names.label_value(cluster.metadata.name)
    ]
    spec = cluster.spec
    if spec.topology is not None:
        found.append(forbidden("spec.topology", NO_TOPOLOGY))
    elif spec.control_plane_ref is None and spec.infrastructure_ref is None:
        found.append(forbidden("spec", "one of spec.controlPlaneRef and spec.infrastructureRef must be set"))
    if spec.cluster_network is not None:
        found += _range_complaints(spec.cluster_network.pods, "spec.clusterNetwork.pods.cidrBlocks")
        found += _range_complaints(spec.cluster_network.services, "spec.clusterNetwork.services.cidrBlocks")
    return found


def transitions(old: Cluster, new: Cluster) -> list[FieldError]:
    found = []
    if old.spec.infrastructure_ref is not None and new.spec.infrastructure_ref is None:
        found.append(forbidden("spec.infrastructureRef", "cannot be removed"))
    if old.spec.control_plane_ref is not None and new.spec.control_plane_ref is None:
        found.append(forbidden("spec.controlPlaneRef", "cannot be removed"))
    return found


def _range_complaints(ranges: NetworkRanges | None, path: str) -> list[FieldError]:
    blocks = ranges.cidr_blocks if ranges is not None else ()
    return [
        invalid(f"{path}[{index}]", block, "must be a CIDR, such as 10.1.0.0/16 or fd00::/48")
        for index, block in enumerate(blocks)
        if not _is_range(block)
    ]


def _is_range(text: str) -> bool:
    _, _, length = text.partition("/")
    if not (length.isascii() and length.isdigit()):
        return False
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


admit = admission(CLUSTER, complaints=complaints, transitions=transitions)
