"""Endpoint of a cluster's API where no balancer stands in front of its servers: the address of one of them. Pure.

Cluster API copies an endpoint to the Cluster once and never again. The address of one server does not last as long as
the cluster, so a new one is chosen when that server is deleted. We then update the copy too, because no other
controller would, and only if it still is the value that we had set. `BEFORE` records that value in the same write that
moves the endpoint, so that a process killed between the two writes can finish the update. An endpoint set by the user
or by a balancer is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remuda.capi.types import Cluster, Endpoint, Machine
from remuda.kube import conditions
from remuda.providers.shared.types.infrastructure import ENDPOINT_MACHINE, RKECluster

BEFORE = "remuda.dev/endpoint-before"  # annotation: host:port, as the endpoint was until it moved
API_PORT = 6443

_LIKELIEST = ("ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS")
_RECONCILED = "Reconciled"  # condition of a Machine that its planner is content with


class Choice(NamedTuple):
    endpoint: Endpoint
    machine: str


def choose(obj: RKECluster, cluster: Cluster, machines: Sequence[Machine], port: int = API_PORT) -> Choice | None:
    """Return the endpoint to write; None: the present one is right, or no better one is known."""
    if not cluster.status.initialization.control_plane_initialized or not _ours(obj, cluster):
        return None
    known = obj.metadata.annotations.get(ENDPOINT_MACHINE, "")
    candidates = [machine for machine in machines if machine.is_control_plane and not machine.metadata.deleting]
    said = obj.spec.control_plane_endpoint
    if said is not None and any(one.metadata.name == known and said.host in addresses(one) for one in candidates):
        return None
    done = sorted((one for one in candidates if addresses(one) and is_done(one)), key=_eldest)
    return Choice(Endpoint(host=addresses(done[0])[0], port=port), done[0].metadata.name) if done else None


def outdated(obj: RKECluster, cluster: Cluster) -> bool:
    """Return whether the Cluster still has our previous endpoint."""
    said, copied = obj.spec.control_plane_endpoint, cluster.spec.control_plane_endpoint
    if said is None or copied is None or ENDPOINT_MACHINE not in obj.metadata.annotations:
        return False
    return str(copied) != str(said) and str(copied) == obj.metadata.annotations.get(BEFORE)


def addresses(machine: Machine) -> list[str]:
    """Return a Machine's addresses, the most reachable first."""
    known = [one for one in machine.status.addresses if one.type in _LIKELIEST and one.address]
    return [one.address for one in sorted(known, key=lambda one: _LIKELIEST.index(one.type))]


def _ours(obj: RKECluster, cluster: Cluster) -> bool:
    """Return whether the endpoint is ours: no one else has set it, neither on this object nor on the Cluster."""
    if obj.spec.infrastructure is not None:
        return False
    if obj.spec.control_plane_endpoint is not None and obj.spec.control_plane_endpoint.valid:
        return ENDPOINT_MACHINE in obj.metadata.annotations
    copied = cluster.spec.control_plane_endpoint
    return copied is None or not copied.valid


def is_done(machine: Machine) -> bool:
    return machine.status.node_ref is not None or conditions.is_true(machine.status.conditions, _RECONCILED)


def _eldest(machine: Machine) -> tuple[bool, str, str]:
    settled = conditions.is_true(machine.status.conditions, _RECONCILED)
    return not settled, machine.metadata.creation_timestamp or "", machine.metadata.name
