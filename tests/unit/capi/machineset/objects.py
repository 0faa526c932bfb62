"""Machines as a MachineSet sees them, made in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.capi.types import Machine, MachineSpec, MachineStatus, NodeInfo, NodeReference
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, ObjectMeta

CREATED = "2026-01-01T00:00:00Z"


def machine(
    name: str = "m",
    *,
    conditions: Mapping[str, bool] | Sequence[Condition] = {},
    node: bool = True,
    deleted: str | None = None,
    created: str = CREATED,
    annotations: Mapping[str, str] | None = None,
    kubelet: str = "",
    **spec: Any,
) -> Machine:
    if isinstance(conditions, Mapping):
        conditions = [condition(type, status, "Any") for type, status in conditions.items()]
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            creation_timestamp=created,
            deletion_timestamp=deleted,
            annotations=annotations or {},
        ),
        spec=MachineSpec(**spec),
        status=MachineStatus(
            conditions=conditions,
            node_ref=NodeReference(name=f"node-{name}") if node else None,
            node_info=NodeInfo(kubelet_version=kubelet) if kubelet else None,
        ),
    )


def good(name: str = "m", **facts: Any) -> Machine:
    return machine(name, conditions={"Ready": True, "Available": True, "UpToDate": True}, **facts)
