"""Functions that all controllers of the provider share: owners of an object, whether it is paused, its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from remuda.capi import names
from remuda.capi.contract import ProviderObject
from remuda.capi.pause import paused
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine, Reference
from remuda.kube import clock, conditions
from remuda.kube.objects import Condition, Key, Kind, ObjectMeta, OwnerReference
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.types import Script
from remuda.runtime.caches import Caches, Informer
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Blocked, Outcome
from remuda.runtime.steps import Step

FINALIZER = "simulator.remuda.dev"
CONCURRENCY = 50
UNFINISHED = "unfinished"  # an index: objects that still wait for something, by themselves and by their Cluster

READY = "Ready"
WAITING = "Waiting"

Json = dict[str, Any]


class ProviderKind(NamedTuple):
    """Kind of one family, and the dependencies of its controller."""

    manager: Manager
    family: Family
    kind: Kind[Any]

    @property
    def name(self) -> str:
        """Return the name of the controller."""
        name = self.kind.name.lower()
        return f"{name}-v1beta1" if self.family.old else name

    @property
    def caches(self) -> Caches:
        return self.manager.caches

    @property
    def informer(self) -> Informer[Any]:
        return self.manager.caches.of(self.kind)

    def read(self, key: Key) -> ProviderObject | None:
        value = self.informer.raw(*key)
        return None if value is None else ProviderObject(value, self.kind.target, self.family.contract)

    def named_by(self, reference: Reference | None, namespace: str) -> list[Key]:
        """Return the key of a referenced object, if it is of this kind and still waits for something."""
        if reference is None or reference.api_group != self.family.group or reference.kind != self.kind.name:
            return []
        return self.informer.keys(UNFINISHED, f"{namespace}/{reference.name}")

    def index_unfinished(self, finished: Callable[[Any], bool]) -> None:
        """Index unfinished objects, so that events of Clusters and Machines are cheap: finished ones are skipped."""

        def places(obj: Any) -> Iterable[str]:
            if obj.metadata.deleting or not finished(obj):
                yield str(obj.key)
                if cluster := obj.metadata.labels.get(names.CLUSTER_NAME):
                    yield f"cluster {obj.metadata.namespace}/{cluster}"

        self.caches.index(self.kind, UNFINISHED, places)

    def of_cluster(self, cluster: Cluster) -> list[Key]:
        return self.informer.keys(UNFINISHED, f"cluster {cluster.key}")


def machine_of(caches: Caches, metadata: ObjectMeta) -> Machine | None:
    owner = metadata.owner("Machine", names.GROUP)
    return None if owner is None else caches.of(MACHINE).get(metadata.namespace, owner.name)


def cluster_of(caches: Caches, metadata: ObjectMeta, machine: Machine | None = None) -> Cluster | None:
    """Return the cluster of an object, by its Machine, its owner, or its label."""
    owner = metadata.owner("Cluster", names.GROUP)
    name = machine.spec.cluster_name if machine is not None else owner.name if owner is not None else ""
    name = name or metadata.labels.get(names.CLUSTER_NAME, "")
    return caches.of(CLUSTER).get(metadata.namespace, name) if name else None


def owner_reference(obj: ProviderObject) -> OwnerReference:
    """Return the owner reference for objects that it owns."""
    return OwnerReference(
        api_version=obj.target.api_version,
        kind=obj.kind,
        name=obj.key.name,
        uid=obj.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def put(obj: Json, path: Iterable[str], value: Any) -> None:
    *way, last = path
    for name in way:
        obj = obj.setdefault(name, {})
    obj[last] = value


def report(draft: Draft, obj: ProviderObject, *news: Condition) -> None:
    """Write conditions into the status, in the style of the object's contract; not paused, unless a condition says so.

    No observedGeneration is set: a report often changes the spec too, and would never be of the latest generation.
    """
    found = news if any(one.type == "Paused" for one in news) else (*news, paused(None, ObjectMeta()))
    conditions.put(draft.status, found, generation=0)
    if obj.old:
        for written in draft.status["conditions"]:
            if not written.get("message"):
                written.pop("message", None)  # omitted if empty


async def hold(side: ProviderKind, obj: ProviderObject, cluster: Cluster | None, step: Step) -> Outcome | None:
    """Report that the object is paused, if it is; return None to continue."""
    condition = paused(cluster, obj.metadata)
    if condition.status != conditions.TRUE:
        return None
    draft = obj.draft()
    report(draft, obj, condition)
    await save(side.manager.client, draft, step)
    return Blocked("Paused", str(obj), condition.message)


def wait(obj: ProviderObject, reason: str, message: str) -> Blocked:
    return Blocked(reason, str(obj), message)


class ScriptProgress:
    """Progress of scripted work, counted in this process: a restart begins the script again."""

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}

    def seconds_left(self, script: Script, since: str | None) -> float:
        """Return the seconds until work that began at a time is done."""
        return max(0.0, clock.parse(since) + script.seconds - clock.time()) if since and script.seconds else 0.0

    def fails(self, uid: str, script: Script) -> bool:
        """Count an attempt and return whether it is one of those that fail."""
        failed = self._failed.get(uid, 0)
        if failed >= script.failures:
            self._failed.pop(uid, None)
            return False
        self._failed[uid] = failed + 1
        return True


def cluster_facts(cluster: Cluster) -> object:
    """Return the fields of a Cluster that concern a provider's object."""
    metadata = cluster.metadata
    return cluster.spec, cluster.status.initialization, metadata.deleting, metadata.annotations, metadata.uid


def machine_facts(machine: Machine) -> object:
    """Return the fields of a Machine that concern its server and the server's bootstrap."""
    metadata = machine.metadata
    return machine.spec, machine.status.node_ref, metadata.deleting, metadata.annotations, metadata.uid
