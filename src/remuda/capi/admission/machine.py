"""Admission of Machines."""

from __future__ import annotations

from typing import Any

from remuda.capi import names
from remuda.capi.admission.machine_fields import cluster_label, immutable_cluster, machine_complaints, prefixed_version
from remuda.capi.admission.rules import admission
from remuda.capi.types import MACHINE, Machine
from remuda.kube.errors import FieldError

NODE_DELETION_TIMEOUT_SECONDS = 10


def defaults(new: Machine, old: Machine | None) -> dict[str, Any]:
    spec: dict[str, Any] = dict(prefixed_version(new.spec))
    if new.spec.deletion.node_deletion_timeout_seconds is None:
        spec["deletion"] = {"nodeDeletionTimeoutSeconds": NODE_DELETION_TIMEOUT_SECONDS}
    return {"metadata": cluster_label(new.spec.cluster_name), "spec": spec}


def complaints(machine: Machine) -> list[FieldError]:
    of_pool = names.POOL_NAME in machine.metadata.labels
    return machine_complaints(machine.spec, "spec", control_plane=machine.is_control_plane, of_pool=of_pool)


def transitions(old: Machine, new: Machine) -> list[FieldError]:
    return immutable_cluster(old.spec.cluster_name, new.spec.cluster_name)


admit = admission(MACHINE, defaults=defaults, complaints=complaints, transitions=transitions)
