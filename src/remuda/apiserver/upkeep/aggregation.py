"""Aggregated ClusterRoles: their rules are those of the roles their selectors match."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remuda.apiserver.auth.aggregation import aggregated_rules
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import Event
from remuda.apiserver.upkeep.duty import KeyedDuty, modify

TABLE = "clusterroles.rbac.authorization.k8s.io"
_ALL = ("all",)


class AggregationDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("aggregation", registry, self._reconcile)

    async def start(self) -> None:
        await self._reconcile(_ALL)

    def observe(self, events: Sequence[Event]) -> None:
        if any(event.entry.table == TABLE for event in events):
            self.worker.add(_ALL)

    async def _reconcile(self, key: tuple[str, ...]) -> None:
        """All at once: roles may aggregate aggregated roles, and there are few."""
        roles = [decode(entry.value) for entry in self.registry.store.scan(TABLE)]
        for role in roles:
            rules = aggregated_rules(role, roles)
            if rules is not None and rules != (role.get("rules") or []):
                await modify(self.registry, TABLE, "", role["metadata"]["name"], _with_rules(rules))


def _with_rules(rules: list[Obj]) -> Callable[[Obj], Obj]:
    return lambda live: {**live, "metadata": dict(live["metadata"]), "rules": rules}
