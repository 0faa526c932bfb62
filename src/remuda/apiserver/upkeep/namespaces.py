"""Namespace lifecycle: a namespace being deleted is emptied, then released.

Everything in it is deleted in the background; objects with finalizers keep it waiting, and its conditions say which
kinds and finalizers those are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from remuda.apiserver.registry.calls import DeleteOptions, ListOptions
from remuda.apiserver.registry.identity import NAMESPACES
from remuda.apiserver.registry.objects import decode, timestamp
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.types import Event
from remuda.apiserver.upkeep.definitions import with_condition
from remuda.apiserver.upkeep.duty import KeyedDuty, create, modify
from remuda.kube.errors import StatusError

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_RECHECK_SECONDS = 5.0


async def create_first_namespaces(registry: Registry) -> None:
    missing = [n for n in FIRST_NAMESPACES if registry.store.latest(NAMESPACES, "", n) is None]
    await asyncio.gather(*(create(registry, NAMESPACES, "", {"metadata": {"name": name}}) for name in missing))


class NamespacesDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("namespaces", registry, self._reconcile)
        self._ending: set[str] = set()

    async def start(self) -> None:
        for entry in self.registry.store.scan(NAMESPACES):
            if b'"deletionTimestamp"' in entry.value:
                self.worker.add((entry.name,))

    def observe(self, events: Sequence[Event]) -> None:
        for event in events:
            entry = event.entry
            if entry.table == NAMESPACES:
                if event.type != "DELETED" and b'"deletionTimestamp"' in entry.value:
                    self.worker.add((entry.name,))
            elif event.type == "DELETED" and entry.namespace in self._ending:
                self.worker.add((entry.namespace,))

    async def _reconcile(self, key: tuple[str]) -> None:
        (name,) = key
        namespace = self.registry.read(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            self._ending.discard(name)
            return
        self._ending.add(name)
        tables = self._namespaced_tables()
        await self._delete_contents(name, tables)
        remaining = [r for r in tables if self.registry.store.scan(r.table, name, limit=1)]
        if remaining:
            await self._report(namespace, name, remaining)
            self.worker.add_later(key, _RECHECK_SECONDS)
        elif (namespace.get("spec") or {}).get("finalizers"):
            await modify(self.registry, NAMESPACES, "", name, _without_finalizers, "finalize")

    def _namespaced_tables(self) -> list[Resource]:
        by_table = {r.table: r for r in self.registry.resources.all() if r.namespaced and "delete" in r.verbs}
        return [self.registry.resources.of_table(table) or r for table, r in by_table.items()]

    async def _delete_contents(self, name: str, resources: Sequence[Resource]) -> None:
        for resource in resources:
            if not self.registry.store.scan(resource.table, name, limit=1):
                continue
            call = self.registry.system_call("deletecollection", resource, name, "")
            try:
                await self.registry.delete_collection(
                    call, ListOptions(), DeleteOptions(propagation_policy="Background")
                )
            except StatusError as error:
                if error.code not in (404, 409):
                    raise

    async def _report(self, namespace: Obj, name: str, remaining: Sequence[Resource]) -> None:
        status = dict(namespace.get("status") or {})
        conditions = status.get("conditions") or []
        for condition in self._conditions(name, remaining):
            conditions = with_condition(conditions, condition)
        if conditions != status.get("conditions"):
            status["conditions"] = conditions
            await modify(self.registry, NAMESPACES, "", name, lambda live: {**live, "status": status}, "status")

    def _conditions(self, name: str, remaining: Sequence[Resource]) -> list[dict[str, Any]]:
        kinds, finalizers = [], Counter[str]()
        for resource in remaining:
            entries = self.registry.store.scan(resource.table, name)
            kinds.append(f"{resource.qualified}. has {len(entries)} resource instances")
            for entry in entries:
                finalizers.update(decode(entry.value)["metadata"].get("finalizers", []))
        waiting = [f"{f} in {n} resource instances" for f, n in sorted(finalizers.items())]
        found = [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            (
                "NamespaceContentRemaining",
                "True",
                "SomeResourcesRemain",
                f"Some resources are remaining: {', '.join(kinds)}",
            ),
        ]
        if waiting:
            message = f"Some content in the namespace has finalizers remaining: {', '.join(waiting)}"
            found.append(("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message))
        now = timestamp()
        return [
            {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
            for kind, status, reason, message in found
        ]


def _without_finalizers(live: Obj) -> Obj:
    spec = {k: v for k, v in (live.get("spec") or {}).items() if k != "finalizers"}
    return {**live, "metadata": dict(live["metadata"]), "spec": spec}
