"""Status of ResourceQuotas: limits and usage.

A quota is processed when it changes, and when an object that it counts is created or deleted. Changes of objects, and
namespaces without quotas, cost nothing. `registry.quotas` checks creates and does not read this status.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.apiserver.kinds.core_quotas import TABLE, limits
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import StoreEntry, StoreEvent
from remuda.apiserver.upkeep.duty import CONTROLLERS, KeyedDuty, modify
from remuda.kube.quantity import canonical_quantity


class QuotasDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("quotas", registry, self._reconcile)
        self._counted: dict[str, frozenset[str]] = {}  # counted tables by namespace

    async def start(self) -> None:
        for namespace in {entry.namespace for entry in self.registry.store.intact(TABLE)}:
            self._follow(namespace)
            self.worker.add((namespace,))

    def observe(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            table, namespace = event.entry.table, event.entry.namespace
            if table == TABLE:
                self._follow(namespace)
                self.worker.add((namespace,))
            elif event.type != "MODIFIED" and table in self._counted.get(namespace, ()):
                self.worker.add((namespace,))

    def _follow(self, namespace: str) -> None:
        quotas = self.registry.store.scan(TABLE, namespace)
        if quotas:
            self._counted[namespace] = frozenset(limit.table for one in quotas for limit in limits(one.value))
        else:
            self._counted.pop(namespace, None)

    async def _reconcile(self, key: tuple[str, ...]) -> None:
        (namespace,) = key
        for quota in self.registry.store.scan(TABLE, namespace):
            wanted = self._status(quota)
            if (decode(quota.value).get("status") or {}) != wanted:
                await self._write(quota, wanted)

    async def _write(self, quota: StoreEntry, status: Obj) -> None:
        def change(live: Obj) -> Obj:
            return {**live, "status": status}

        await modify(self.registry, TABLE, quota.namespace, quota.name, change, "status", manager=CONTROLLERS)

    def _status(self, quota: StoreEntry) -> Obj:
        count = self.registry.store.count
        hard = {limit.resource: canonical_quantity(limit.most) for limit in limits(quota.value)}
        used = {
            limit.resource: canonical_quantity(count(limit.table, quota.namespace)) for limit in limits(quota.value)
        }
        return {"hard": hard, "used": used} if hard else {}
