"""Aggregated ClusterRoles: their rules are those of the roles their selectors match.

Roles may aggregate aggregated roles: each write is seen as a change again, until nothing changes. A role whose selector
cannot be read keeps the rules it has and does not keep others from theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from remuda.apiserver.auth.aggregation import aggregated_rules
from remuda.apiserver.registry.calls import WriteOptions
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import Event, ObjectsDamaged
from remuda.apiserver.upkeep.duty import KeyedDuty
from remuda.kube.selectors import SelectorError

TABLE = "clusterroles.rbac.authorization.k8s.io"
_ALL = ("all",)
_APPLY = WriteOptions(field_manager="clusterrole-aggregation-controller", force=True)
log = logging.getLogger(__name__)


class AggregationDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("aggregation", registry, self._reconcile)

    async def start(self) -> None:
        try:
            await self._reconcile(_ALL)
        except ObjectsDamaged as error:
            log.warning("cannot aggregate ClusterRoles: %s", error)

    def observe(self, events: Sequence[Event]) -> None:
        if any(event.entry.table == TABLE for event in events):
            self.worker.add(_ALL)

    async def _reconcile(self, key: tuple[str, ...]) -> None:
        """All at once: there are few, and one change may concern several."""
        roles = [decode(entry.value) for entry in self.registry.store.scan(TABLE)]
        wanted = {role["metadata"]["name"]: _wanted_rules(role, roles) for role in roles}
        changed = {name: rules for name, rules in wanted.items() if rules is not None}
        await asyncio.gather(*(self._apply(name, rules) for name, rules in changed.items()))

    async def _apply(self, name: str, rules: list[Obj]) -> None:
        resource = self.registry.resources.of_table(TABLE)
        assert resource is not None
        call = self.registry.system_call("patch", resource, "", name)
        configuration = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await self.registry.patch(call, "apply", {**configuration, "rules": rules}, _APPLY)


def _wanted_rules(role: Obj, roles: Sequence[Obj]) -> list[Obj] | None:
    """None: it has the rules it should have."""
    try:
        rules = aggregated_rules(role, roles)
    except SelectorError as error:
        log.warning("ClusterRole %s aggregates nothing: %s", role["metadata"]["name"], error)
        return None
    return rules if rules != (role.get("rules") or []) else None
