"""Aggregated ClusterRoles: their rules are those of all ClusterRoles that their selectors match.

Aggregated roles may aggregate each other: each write triggers another round, until nothing changes. A role whose
selector is invalid keeps its rules and does not affect others. `aggregated_rules` is pure. Its order is upstream's
(selector by selector, roles by name, each rule once), so that the same roles always give the same bytes and an idle
cluster writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda.apiserver.registry.calls import WriteOptions
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import ObjectsDamaged, StoreEvent
from remuda.apiserver.upkeep.duty import KeyedDuty
from remuda.kube.selectors import SelectorError, label_selector_from

Rule = dict[str, Any]

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

    def observe(self, events: Sequence[StoreEvent]) -> None:
        if any(event.entry.table == TABLE for event in events):
            self.worker.add(_ALL)

    async def _reconcile(self, key: tuple[str, ...]) -> None:
        """Reconcile all aggregated roles at once: there are few, and one change may concern several."""
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
    """Return the new rules; None if the role is up to date."""
    try:
        rules = aggregated_rules(role, roles)
    except SelectorError as error:
        log.warning("ClusterRole %s aggregates nothing: %s", role["metadata"]["name"], error)
        return None
    return rules if rules != (role.get("rules") or []) else None


def aggregated_rules(role: Mapping[str, Any], cluster_roles: Iterable[Mapping[str, Any]]) -> list[Rule] | None:
    """Return the rules that the ClusterRole should have; None if it does not aggregate. Raise SelectorError."""
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return None
    own_name = role["metadata"]["name"]
    others = sorted(
        (other for other in cluster_roles if other["metadata"]["name"] != own_name),
        key=lambda other: other["metadata"]["name"],
    )
    rules: dict[bytes, Rule] = {}
    for selector in map(label_selector_from, aggregation.get("clusterRoleSelectors") or ()):
        for other in others:
            if selector.matches(other["metadata"].get("labels") or {}):
                for rule in other.get("rules") or ():
                    rules.setdefault(_identity(rule), rule)
    return list(rules.values())


def _identity(rule: Rule) -> bytes:
    """Return a key that is equal for rules with equal lists; absent and empty lists are equal."""
    present = {key: values for key, values in rule.items() if values}
    return msgspec.json.encode(present, order="sorted")
