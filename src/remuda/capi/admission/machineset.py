"""Admission of MachineSets."""

from __future__ import annotations

from typing import Any

from remuda.capi import names
from remuda.capi.admission.machine_fields import (
    cluster_label,
    default_replicas,
    immutable_cluster,
    own_labels,
    prefixed_version,
    replicated_complaints,
)
from remuda.capi.admission.rules import admission
from remuda.capi.types import MACHINE_SET, MachineSet
from remuda.kube.errors import FieldError


def defaults(new: MachineSet, old: MachineSet | None) -> dict[str, Any]:
    cluster = cluster_label(new.spec.cluster_name)
    own = own_labels(new, names.SET_NAME)
    labels = {**cluster.get("labels", {}), **own}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": own},
        "template": {"metadata": {"labels": labels}, "spec": prefixed_version(new.spec.template.spec)},
    }
    replicas = default_replicas(new, old)
    if replicas is not None:
        spec["replicas"] = replicas
    return {"metadata": cluster, "spec": spec}


def complaints(machine_set: MachineSet) -> list[FieldError]:
    return replicated_complaints(machine_set)


def transitions(old: MachineSet, new: MachineSet) -> list[FieldError]:
    return immutable_cluster(old.spec.cluster_name, new.spec.cluster_name)


admit = admission(MACHINE_SET, defaults=defaults, complaints=complaints, transitions=transitions)
