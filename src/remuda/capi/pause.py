"""Pausing: controllers skip an object if its Cluster is paused or if it has the paused annotation itself.

Controllers change nothing of a paused object except its Paused condition, which reports the reason.
"""

from __future__ import annotations

from typing import Protocol

from remuda.capi import names
from remuda.kube.conditions import TRUE, condition
from remuda.kube.objects import Condition, ObjectMeta


class _Spec(Protocol):
    @property
    def paused(self) -> bool | None: ...


class _Cluster(Protocol):
    @property
    def spec(self) -> _Spec: ...


def paused(cluster: _Cluster | None, metadata: ObjectMeta) -> Condition:
    """The Paused condition of an object, given the Cluster it belongs to (None if that is not known)."""
    causes = []
    if cluster is not None and cluster.spec.paused:
        causes.append("spec.paused of the Cluster is true")
    if names.PAUSED in metadata.annotations:
        causes.append(f"the object has the annotation {names.PAUSED}")
    if not causes:
        return condition("Paused", False, "NotPaused")
    return condition("Paused", True, "Paused", " and ".join(causes))


def is_paused(cluster: _Cluster | None, metadata: ObjectMeta) -> bool:
    return paused(cluster, metadata).status == TRUE
