"""Objects for the tests of Machines, as short as they can be said."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi.machine.workload import Node, Pod
from remuda.capi.types import Cluster, Machine, MachineDrainRule
from remuda.kube.clock import parse

EPOCH = "2026-03-01T12:00:00Z"
NOW = parse(EPOCH)


def machine(*, meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Machine:
    raw = {
        "metadata": {"name": "m-1", "namespace": "ns", "uid": "m-1-uid", "generation": 1, **(meta or {})},
        "spec": {
            "clusterName": "c",
            "bootstrap": {"configRef": {"apiGroup": "bootstrap.test", "kind": "TestConfig", "name": "m-1"}},
            "infrastructureRef": {"apiGroup": "infrastructure.test", "kind": "TestMachine", "name": "m-1"},
            **spec,
        },
        "status": status or {},
    }
    return msgspec.convert(raw, Machine)


def deleting(**kwargs: Any) -> Machine:
    meta = {"deletionTimestamp": EPOCH, **kwargs.pop("meta", {})}
    return machine(meta=meta, **kwargs)


def cluster(*, ready: bool = True, labels: dict[str, str] | None = None) -> Cluster:
    raw = {
        "metadata": {"name": "c", "namespace": "ns", "labels": labels or {}},
        "status": {"initialization": {"infrastructureProvisioned": ready, "controlPlaneInitialized": ready}},
    }
    return msgspec.convert(raw, Cluster)


def pod(name: str, *, namespace: str = "default", phase: str = "Running", volumes: Any = (), **meta: Any) -> Pod:
    raw = {
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"volumes": list(volumes)},
        "status": {"phase": phase},
    }
    return msgspec.convert(raw, Pod)


def owned_by(kind: str, name: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True, "uid": f"{name}-uid"}]}


def node(name: str = "n-1", *, provider_id: str = "", **conditions: str) -> Node:
    raw = {
        "metadata": {"name": name},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [{"type": type, "status": status} for type, status in conditions.items()]},
    }
    return msgspec.convert(raw, Node)


HEALTHY = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}


def rule(name: str, behavior: str, order: int | None = None, **selectors: Any) -> MachineDrainRule:
    drain = {"behavior": behavior} | ({} if order is None else {"order": order})
    raw = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"drain": drain, **selectors}}
    return msgspec.convert(raw, MachineDrainRule)
