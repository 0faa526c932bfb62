"""Observations to begin a test with: a cluster as it is when all work is done, and what is different about it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from remuda.kube import clock
from remuda.providers.controlplane.planner.decision import Decision
from remuda.providers.controlplane.planner.observation import (
    Drain,
    EtcdMember,
    Observation,
    ObservedHost,
    ObservedNode,
    PlanReport,
    Pool,
    Roles,
)
from tests.unit.providers.controlplane.planner import plans
from tests.unit.providers.controlplane.planner.model import ALL, CONTROL_PLANE, ETCD, SERVER, WORKER, World

T = TypeVar("T")

__all__ = ["ALL", "CONTROL_PLANE", "ETCD", "SERVER", "WORKER", "Drain", "EtcdMember", "ObservedNode"]


@lru_cache
def settled(*shape: tuple[str, Roles, int], version: str = plans.VERSION) -> Observation:
    """Hosts are called <pool>-<number>, counted through."""
    world = World(7, {name: (roles, count) for name, roles, count in shape}, version=version)
    clock.use(lambda: world.now)
    try:
        for _ in range(500):
            world.tick()
            world.manage(plans.decide)
            if world.is_settled():
                return world.observe()
    finally:
        clock.use(None)
    raise AssertionError(world.last)


def three_servers() -> Observation:
    """server-1 is the init node."""
    return settled(("server", SERVER, 3), ("worker", WORKER, 2))


def newcomer(name: str, roles: Roles, **fields: Any) -> ObservedHost:
    """Ready for its first plan."""
    number = int(name.rpartition("-")[2])
    given: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "created": 5000.0 + number,
        "roles": roles,
        "pool": name.rpartition("-")[0],
        "node_name": name,
        "internal_addresses": (f"10.1.0.{number}",),
        "connected": True,
        "connected_since": 5000.0,
        "infrastructure_ready": True,
        "held": roles.etcd,
        "report": PlanReport(secret=name),
    }
    return ObservedHost(**{**given, **fields})


def fresh(*hosts: ObservedHost, now: float = 5000.0, pools: tuple[Pool, ...] = (), **fields: Any) -> Observation:
    """A cluster that has not begun."""
    cluster = fields.pop("cluster", plans.cluster())
    return Observation(cluster=cluster, hosts=hosts, pools=pools, now=now, **fields)


def with_host(observed: Observation, name: str, **fields: Any) -> Observation:
    """Fields of the Host; those of its report come as a dict."""

    def changed(host: ObservedHost) -> ObservedHost:
        if host.name != name:
            return host
        given = dict(fields)
        if "report" in given:
            given["report"] = msgspec.structs.replace(host.report, **given["report"])
        return msgspec.structs.replace(host, **given)

    return msgspec.structs.replace(observed, hosts=[changed(host) for host in observed.hosts])


def with_newcomer(observed: Observation, host: ObservedHost) -> Observation:
    return msgspec.structs.replace(observed, hosts=sorted((*observed.hosts, host), key=lambda h: h.name))


def dead(observed: Observation, name: str) -> Observation:
    """The others see that its member does not answer; what it says itself is of yesterday."""
    for host in observed.hosts:
        if host.name != name and host.report.members:
            members = tuple(
                msgspec.structs.replace(m, healthy=not m.name.startswith(f"{name}-")) for m in host.report.members
            )
            observed = with_host(observed, host.name, report={"members": members})
    return observed


def without_member(observed: Observation, name: str) -> Observation:
    """It has left, and the others know."""
    for host in observed.hosts:
        if host.report.members:
            members = tuple(m for m in host.report.members if not m.name.startswith(f"{name}-"))
            observed = with_host(observed, host.name, report={"members": members})
    return observed


def with_spec(observed: Observation, **of_cluster: Any) -> Observation:
    """By default the settings of settled clusters."""
    of_cluster = {"settings": {"n": 0}, **of_cluster}
    return msgspec.structs.replace(observed, cluster=plans.cluster(**of_cluster))


def upgraded(observed: Observation, **of_cluster: Any) -> Observation:
    return with_spec(observed, version="v1.36.4+k3s1", **of_cluster)


def host(observed: Observation, name: str) -> ObservedHost:
    return next(host for host in observed.hosts if host.name == name)


def acts(decision: Decision, kind: type[T]) -> list[T]:
    return [act for act in decision.acts if isinstance(act, kind)]


def hosts_of(decision: Decision, kind: type[Any]) -> list[str]:
    return [act.host for act in acts(decision, kind)]
