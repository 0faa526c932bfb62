"""Look up other objects for admission, in the form that the rules need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE
from remuda.kube.admission import Review, Unseen
from remuda.providers.controlplane.rules.versions import Running
from remuda.providers.shared import names


def running(review: Review, cluster: str) -> Sequence[Running]:
    """Return the versions that the cluster's nodes are known to run."""
    labels = {capi_names.CLUSTER_NAME: cluster}
    try:
        machines = review.select(MACHINE.api_version, MACHINE.plural, review.namespace, labels)
    except Unseen:
        return []
    return [found for machine in machines if (found := running_on(machine)) is not None]


def running_on(machine: dict[str, Any]) -> Running | None:
    """Return the version that the Machine's node runs; None if nothing is known of its node yet."""
    version = ((machine.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion")
    if not version:
        return None
    metadata = machine["metadata"]
    labels = metadata.get("labels") or {}
    server = any(labels.get(role) == "true" for role in (names.ETCD_ROLE, names.CONTROL_PLANE_ROLE))
    return Running(machine=metadata["name"], version=version, server=server)
