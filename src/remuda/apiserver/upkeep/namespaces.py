"""Namespace lifecycle: a namespace being deleted is emptied, then released.

Everything in it is deleted in the background, pods before what they may need. Objects with finalizers keep the
namespace waiting, and its conditions say which kinds and finalizers those are, or what could not be deleted and why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from remuda.apiserver.registry.calls import DeleteOptions, ListOptions
from remuda.apiserver.registry.identity import NAMESPACES
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.types import StoreEntry, StoreEvent
from remuda.apiserver.upkeep.duty import CONTROLLERS, Condition, KeyedDuty, condition, create, modify, with_conditions
from remuda.kube.errors import StatusError

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FINALIZER = "kubernetes"
_PODS = "pods"
_RECHECK_SECONDS = 5.0


async def create_first_namespaces(registry: Registry) -> None:
    damaged = {one.key for one in registry.store.damaged}
    wanted = [name for name in FIRST_NAMESPACES if (NAMESPACES, "", name) not in damaged]
    missing = [name for name in wanted if registry.store.latest(NAMESPACES, "", name) is None]
    await asyncio.gather(*(create(registry, NAMESPACES, "", {"metadata": {"name": name}}) for name in missing))


class NamespacesDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("namespaces", registry, self._reconcile)
        self._ending: set[str] = set()

    async def start(self) -> None:
        for entry in self.registry.store.intact(NAMESPACES):
            if b'"deletionTimestamp"' in entry.value:
                self.worker.add((entry.name,))

    def observe(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            entry = event.entry
            if entry.table == NAMESPACES:
                if event.type == "DELETED":
                    self._ending.discard(entry.name)
                elif b'"deletionTimestamp"' in entry.value:
                    self.worker.add((entry.name,))
            elif event.type == "DELETED" and entry.namespace in self._ending and self._was_last(entry):
                self.worker.add((entry.namespace,))

    def _was_last(self, entry: StoreEntry) -> bool:
        """Return whether the deleted entry was the last of its kind in its namespace.

        Only then are the remaining objects counted, not at each of a thousand deletions.
        """
        return not self.registry.store.intact(entry.table, entry.namespace, limit=1)

    async def _reconcile(self, key: tuple[str]) -> None:
        (name,) = key
        namespace = self.registry.read(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            self._ending.discard(name)
            return
        if not (namespace.get("spec") or {}).get("finalizers"):
            return  # released; it may still wait for finalizers of its own
        self._ending.add(name)
        remaining, failures = await self._empty(name)
        # Write the status before the error is raised, so that a stuck namespace shows the cause.
        await self._report(name, [*_about_deletes(failures), *self._about_contents(name, remaining)])
        if failures:
            raise failures[0]
        if remaining:
            self.worker.add_later(key, _RECHECK_SECONDS)
        else:
            await modify(self.registry, NAMESPACES, "", name, _released, "finalize", manager=CONTROLLERS)

    async def _empty(self, name: str) -> tuple[list[Resource], list[StatusError]]:
        """Delete the content of the namespace; return the kinds with remaining objects, and the errors."""
        for error in self.registry.resources.unreadable.values():
            raise error  # objects of that kind may be here, and cannot be counted
        resources = self._namespaced_tables()
        failures: list[StatusError] = []
        for first in (True, False):
            for resource in resources:
                if (resource.table == _PODS) == first:
                    failures += await self._delete_all(name, resource)
            remaining = [r for r in resources if self.registry.store.scan(r.table, name, limit=1)]
            # Programs in these pods may still use the Secrets and ConfigMaps of the namespace.
            if first and any(r.table == _PODS for r in remaining):
                break
        return remaining, failures

    def _namespaced_tables(self) -> list[Resource]:
        by_table = {r.table: r for r in self.registry.resources.all() if r.namespaced and "delete" in r.verbs}
        return [self.registry.resources.of_table(table) or r for table, r in by_table.items()]

    async def _delete_all(self, name: str, resource: Resource) -> list[StatusError]:
        if not self.registry.store.scan(resource.table, name, limit=1):
            return []
        call = self.registry.system_call("deletecollection", resource, name, "")
        try:
            await self.registry.delete_collection(call, ListOptions(), DeleteOptions(propagation_policy="Background"))
        except StatusError as error:
            return [error]
        return []

    async def _report(self, name: str, found: Sequence[Condition]) -> None:
        def reported(live: Obj) -> Obj:
            status = dict(live.get("status") or {})
            status["conditions"] = with_conditions(status.get("conditions") or (), found)
            return {**live, "metadata": dict(live["metadata"]), "status": status}

        await modify(self.registry, NAMESPACES, "", name, reported, "status", manager=CONTROLLERS)

    def _about_contents(self, name: str, remaining: Sequence[Resource]) -> list[Condition]:
        kinds: list[str] = []
        finalizers = Counter[str]()
        for resource in remaining:
            entries = self.registry.store.scan(resource.table, name)
            kinds.append(f"{resource.plural}.{resource.group} has {len(entries)} resource instances")
            for entry in entries:
                finalizers.update(decode(entry.value)["metadata"].get("finalizers") or ())
        waiting = [f"{finalizer} in {count} resource instances" for finalizer, count in finalizers.items()]
        return [
            _remaining("NamespaceContentRemaining", kinds),
            _remaining("NamespaceFinalizersRemaining", waiting),
        ]


# Messages of a condition without remaining objects, and their prefixes with some.
_NOTHING = {
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
_SOMETHING = {
    "NamespaceContentRemaining": ("SomeResourcesRemain", "Some resources are remaining"),
    "NamespaceFinalizersRemaining": (
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining",
    ),
}


def _remaining(kind: str, what: Sequence[str]) -> Condition:
    if not what:
        return condition(kind, "False", *_NOTHING[kind])
    reason, start = _SOMETHING[kind]
    return condition(kind, "True", reason, f"{start}: {', '.join(sorted(what))}")


def _about_deletes(failures: Sequence[StatusError]) -> list[Condition]:
    """Return the conditions about deletes. The first two can fail only if kinds are discovered over the network."""
    found = [
        condition(
            "NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
    ]
    kind = "NamespaceDeletionContentFailure"
    if failures:
        why = ", ".join(sorted(failure.message for failure in failures))
        message = f"Failed to delete all resource types, {len(failures)} remaining: {why}"
        return [*found, condition(kind, "True", "ContentDeletionFailed", message)]
    message = "All content successfully deleted, may be waiting on finalization"
    return [*found, condition(kind, "False", "ContentDeleted", message)]


def _released(live: Obj) -> Obj:
    """Remove only our own finalizer: others may keep the namespace for their own reasons."""
    spec = dict(live.get("spec") or {})
    spec["finalizers"] = [f for f in spec.get("finalizers") or () if f != FINALIZER]
    if not spec["finalizers"]:
        del spec["finalizers"]
    return {**live, "metadata": dict(live["metadata"]), "spec": spec}
