"""Index of the objects of each Cluster, over `spec.clusterName`; shared by all controllers."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from remuda.capi.types import Machine
from remuda.kube.objects import Key, Kind, Object, ObjectMeta, OwnerReference
from remuda.runtime.caches import Caches

_INDEX = "cluster"


class _Spec(Protocol):
    @property
    def cluster_name(self) -> str: ...


class _Member(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> _Spec: ...


T = TypeVar("T", bound=Object)


def cluster_of(member: _Member) -> Key:
    return Key(member.metadata.namespace, member.spec.cluster_name)


def index_by_cluster(caches: Caches, kind: Kind[T]) -> None:
    """Add the index. Call it before the caches start. Every object of the kind must have a `spec.clusterName`."""
    caches.index(kind, _INDEX, lambda obj: (str(cluster_of(obj)),))  # type: ignore[arg-type]


def members(caches: Caches, kind: Kind[T], cluster: Key) -> list[T]:
    """Return the Cluster's objects of this kind, sorted by name."""
    return caches.of(kind).select(_INDEX, str(cluster))


def machine_facts(machine: Machine) -> object:
    """Return the parts of a Machine that matter to controllers that count it: owner references, labels, annotations,
    deletion, Node reference and the status of each condition. Reasons and messages, which change far more often, are
    left out."""
    metadata, status = machine.metadata, machine.status
    states = tuple((one.type, one.status) for one in status.conditions)
    return metadata.owner_references, metadata.labels, metadata.annotations, metadata.deleting, status.node_ref, states


def controlled_by(kind: Kind[Any], metadata: ObjectMeta) -> OwnerReference:
    """Return an owner reference that makes the object the controller of another one."""
    return OwnerReference(
        api_version=kind.api_version,
        kind=kind.name,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
