"""Aggregated ClusterRoles: their rules are those of all ClusterRoles their selectors match.

A pure function; upkeep decides when to call it and writes the result. The order is upstream's (selector by selector,
roles by name, each rule once), so that the same roles always give the same bytes and an idle cluster writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.kube.selectors import label_selector_from

Rule = dict[str, Any]


def aggregated_rules(role: Mapping[str, Any], cluster_roles: Iterable[Mapping[str, Any]]) -> list[Rule] | None:
    """The rules the ClusterRole should have; None when it does not aggregate. Raises SelectorError."""
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
    """Equal for rules that mean the same list by list; an absent and an empty list are the same."""
    present = {key: values for key, values in rule.items() if values}
    return msgspec.json.encode(present, order="sorted")
