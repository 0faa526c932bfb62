from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.auth.aggregation import aggregated_rules
from remuda.kube.selectors import SelectorError

from .fakes import rule


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def aggregate(name: str, *selectors: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**role(name, **labels), "aggregationRule": {"clusterRoleSelectors": list(selectors)}}


def test_a_plain_role_is_left_alone() -> None:
    assert aggregated_rules(role("a"), []) is None


def test_rules_come_by_selector_then_name_each_once() -> None:
    pods, jobs, nodes = rule("get", "pods"), rule("get", "jobs"), rule("get", "nodes")
    roles = [
        role("z", pods, jobs, x="1"),
        role("b", pods, x="1"),
        role("c", nodes, y="1"),
        role("d", rule("get", "secrets")),
    ]
    every = aggregate("all", {"matchLabels": {"y": "1"}}, {"matchLabels": {"x": "1"}})
    assert aggregated_rules(every, [*roles, every]) == [nodes, pods, jobs]


def test_a_role_does_not_collect_itself() -> None:
    mine = {**aggregate("all", {}), "rules": [rule("get", "pods")]}
    assert aggregated_rules(mine, [mine]) == []


def test_absent_and_empty_lists_are_the_same_rule() -> None:
    one, same = rule("get", "pods"), {**rule("get", "pods"), "resourceNames": []}
    assert aggregated_rules(aggregate("all", {}), [role("a", one), role("b", same)]) == [one]


def test_the_chain_of_view_edit_and_admin() -> None:
    view = aggregate("view", {"matchLabels": {"to-view": "true"}}, **{"to-edit": "true"})
    edit = aggregate("edit", {"matchLabels": {"to-edit": "true"}}, **{"to-admin": "true"})
    base = role("base", rule("get", "pods"), **{"to-view": "true"})
    roles = {r["metadata"]["name"]: r for r in (view, edit, base)}
    for _ in range(2):  # as upkeep does: until nothing changes
        for one in (edit, view):
            roles[one["metadata"]["name"]]["rules"] = aggregated_rules(one, roles.values())
    assert edit["rules"] == view["rules"] == base["rules"]


def test_a_bad_selector_is_said() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    with pytest.raises(SelectorError):
        aggregated_rules(aggregate("all", bad), [])


def test_null_lists() -> None:
    empty = {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": None}}
    assert aggregated_rules(empty, [{"metadata": {"name": "b", "labels": None}, "rules": None}]) == []
