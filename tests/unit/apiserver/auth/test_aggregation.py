from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.upkeep.aggregation import aggregated_rules
from remuda.kube.selectors import SelectorError

from .fakes import rule


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def aggregate(name: str, *selectors: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**role(name, **labels), "aggregationRule": {"clusterRoleSelectors": list(selectors)}}


def test_role_without_aggregation_rule_is_unchanged() -> None:
    assert aggregated_rules(role("a"), []) is None


def test_aggregated_rules_are_deduplicated_and_ordered_by_selector_then_name() -> None:
    pods, jobs, nodes = rule("get", "pods"), rule("get", "jobs"), rule("get", "nodes")
    roles = [
        role("z", pods, jobs, x="1"),
        role("b", pods, x="1"),
        role("c", nodes, y="1"),
        role("d", rule("get", "secrets")),
    ]
    every = aggregate("all", {"matchLabels": {"y": "1"}}, {"matchLabels": {"x": "1"}})
    assert aggregated_rules(every, [*roles, every]) == [nodes, pods, jobs]


def test_aggregated_role_does_not_include_itself() -> None:
    mine = {**aggregate("all", {}), "rules": [rule("get", "pods")]}
    assert aggregated_rules(mine, [mine]) == []


def test_rules_with_absent_and_empty_lists_are_equal() -> None:
    one, same = rule("get", "pods"), {**rule("get", "pods"), "resourceNames": []}
    assert aggregated_rules(aggregate("all", {}), [role("a", one), role("b", same)]) == [one]


def test_aggregation_propagates_through_view_and_edit() -> None:
    view = aggregate("view", {"matchLabels": {"to-view": "true"}}, **{"to-edit": "true"})
    edit = aggregate("edit", {"matchLabels": {"to-edit": "true"}}, **{"to-admin": "true"})
    base = role("base", rule("get", "pods"), **{"to-view": "true"})
    roles = {r["metadata"]["name"]: r for r in (view, edit, base)}
    for _ in range(2):  # as upkeep does: until nothing changes
        for one in (edit, view):
            roles[one["metadata"]["name"]]["rules"] = aggregated_rules(one, roles.values())
    assert edit["rules"] == view["rules"] == base["rules"]


def test_invalid_aggregation_selector_raises_selector_error() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    with pytest.raises(SelectorError):
        aggregated_rules(aggregate("all", bad), [])


def test_null_selectors_and_rules_aggregate_to_empty_list() -> None:
    empty = {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": None}}
    assert aggregated_rules(empty, [{"metadata": {"name": "b", "labels": None}, "rules": None}]) == []
