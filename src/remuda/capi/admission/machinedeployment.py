"""Admission of MachineDeployments."""

from __future__ import annotations

from typing import Any

from remuda.capi import amounts, names
from remuda.capi.admission.machine_fields import (
    amount_complaints,
    cluster_label,
    default_replicas,
    immutable_cluster,
    own_labels,
    prefixed_version,
    replicated_complaints,
)
from remuda.capi.admission.rules import admission
from remuda.capi.types import MACHINE_DEPLOYMENT, MachineDeployment, RollingUpdate, RolloutStrategy
from remuda.kube import names as kube_names
from remuda.kube.errors import FieldError, invalid


def defaults(new: MachineDeployment, old: MachineDeployment | None) -> dict[str, Any]:
    cluster = cluster_label(new.spec.cluster_name)
    own = own_labels(new, names.DEPLOYMENT_NAME)
    labels = {**cluster.get("labels", {}), **own}
    selects_nothing = new.spec.selector.empty and not own  # the cluster's name alone would select too much
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {} if selects_nothing else labels},
        "rollout": {"strategy": _default_strategy(new.spec.rollout.strategy)},
        "template": {"metadata": {"labels": labels}, "spec": prefixed_version(new.spec.template.spec)},
    }
    replicas = default_replicas(new, old)
    if replicas is not None:
        spec["replicas"] = replicas
    return {"metadata": cluster, "spec": spec}


def _default_strategy(strategy: RolloutStrategy) -> dict[str, Any]:
    if strategy.type != "RollingUpdate":
        return {"type": strategy.type}
    update = strategy.rolling_update
    return {
        "type": strategy.type,
        "rollingUpdate": {"maxSurge": update.max_surge, "maxUnavailable": update.max_unavailable},
    }


def complaints(deployment: MachineDeployment) -> list[FieldError]:
    found = [
        invalid("metadata.name", deployment.metadata.name, f"is used as a label value of other objects: {complaint}")
        for complaint in kube_names.label_value(deployment.metadata.name)
    ]
    found += replicated_complaints(deployment)
    found += amount_complaints(deployment.spec.remediation.max_in_flight, "spec.remediation.maxInFlight")
    return found + _update_complaints(deployment.spec.rollout.strategy.rolling_update)


def _update_complaints(update: RollingUpdate) -> list[FieldError]:
    path = "spec.rollout.strategy.rollingUpdate"
    found = amount_complaints(update.max_unavailable, f"{path}.maxUnavailable")
    found += amount_complaints(update.max_surge, f"{path}.maxSurge")
    if not found and _means_none(update.max_unavailable) and _means_none(update.max_surge):
        found.append(
            invalid(
                path, update.max_surge, "maxUnavailable and maxSurge cannot both be 0: no Machine could be replaced"
            )
        )
    return found


def _means_none(amount: int | str) -> bool:
    return amounts.resolve(amount, 100, up=True) == 0


def transitions(old: MachineDeployment, new: MachineDeployment) -> list[FieldError]:
    return immutable_cluster(old.spec.cluster_name, new.spec.cluster_name)


admit = admission(MACHINE_DEPLOYMENT, defaults=defaults, complaints=complaints, transitions=transitions)
