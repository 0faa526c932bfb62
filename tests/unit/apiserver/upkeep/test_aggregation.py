"""Aggregated ClusterRoles have the rules of those their selectors match, at any depth, and settle."""

from __future__ import annotations

from typing import Any

from tests.unit.apiserver.engine import CLUSTER_ROLES, Engine


def rule(resource: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}


def role(name: str, *rules: dict[str, Any], label: str = "", collects: str = "") -> dict[str, Any]:
    body: dict[str, Any] = {"metadata": {"name": name, "labels": {label: "true"} if label else {}}}
    if rules:
        body["rules"] = list(rules)
    if collects:
        body["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {collects: "true"}}]}
    return body


async def add(engine: Engine, *roles: dict[str, Any]) -> None:
    for body in roles:
        await engine.create(CLUSTER_ROLES, "", body)


async def wait_for(engine: Engine, name: str, *resources: str) -> None:
    def reached() -> bool:
        rules = (engine.find(CLUSTER_ROLES, "", name) or {}).get("rules") or []
        return [one["resources"] for one in rules] == [[resource] for resource in resources]

    await engine.eventually(reached)


async def test_aggregated_role_collects_rules_of_matching_roles(engine: Engine) -> None:
    await add(engine, role("b", rule("pods"), label="to-x"), role("a", rule("secrets"), label="to-x"))
    await add(engine, role("other", rule("nodes")), role("x", collects="to-x"))
    await wait_for(engine, "x", "secrets", "pods")


async def test_aggregated_rules_follow_role_changes(engine: Engine) -> None:
    await add(engine, role("x", collects="to-x"), role("a", rule("pods"), label="to-x"))
    await wait_for(engine, "x", "pods")
    await add(engine, role("b", rule("nodes"), label="to-x"))
    await wait_for(engine, "x", "pods", "nodes")
    await engine.patch(CLUSTER_ROLES, "", "a", {"rules": [rule("events")]})
    await wait_for(engine, "x", "events", "nodes")
    await engine.patch(CLUSTER_ROLES, "", "a", {"metadata": {"labels": None}})
    await wait_for(engine, "x", "nodes")
    await engine.delete(CLUSTER_ROLES, "", "b")
    await wait_for(engine, "x")


async def test_manual_rules_in_aggregated_role_are_overwritten(engine: Engine) -> None:
    await add(engine, role("a", rule("pods"), label="to-x"), role("x", collects="to-x"))
    await wait_for(engine, "x", "pods")
    await engine.patch(CLUSTER_ROLES, "", "x", {"rules": [rule("secrets")]})
    await wait_for(engine, "x", "pods")


async def test_aggregated_roles_can_be_aggregated(engine: Engine) -> None:
    await add(engine, role("c", collects="to-c"), role("b", collects="to-b", label="to-c"))
    await add(engine, role("a", rule("pods"), label="to-b"))
    await wait_for(engine, "c", "pods")
    await engine.delete(CLUSTER_ROLES, "", "a")
    await wait_for(engine, "c")


async def test_mutually_aggregating_roles_converge(engine: Engine) -> None:
    await add(engine, role("x", collects="both", label="both"), role("y", collects="both", label="both"))
    await add(engine, role("a", rule("pods"), label="both"))
    await wait_for(engine, "x", "pods")
    await wait_for(engine, "y", "pods")
    await engine.settled()


async def test_startup_updates_aggregated_roles(idle_engine: Engine) -> None:
    await add(idle_engine, role("a", rule("pods"), label="to-x"), role("x", collects="to-x"))
    await idle_engine.restart()
    found = idle_engine.find(CLUSTER_ROLES, "", "x")
    assert found is not None
    assert found["rules"] == [rule("pods")]


async def test_aggregated_rules_are_owned_by_aggregation_controller(engine: Engine) -> None:
    await add(engine, role("a", rule("pods"), label="to-x"), role("x", collects="to-x"))
    await wait_for(engine, "x", "pods")
    entries = (engine.find(CLUSTER_ROLES, "", "x") or {})["metadata"]["managedFields"]
    owners = {entry["manager"]: (entry["operation"], entry["fieldsV1"]) for entry in entries}
    assert owners["clusterrole-aggregation-controller"] == ("Apply", {"f:rules": {}})


async def test_up_to_date_aggregated_roles_are_not_rewritten(engine: Engine) -> None:
    await add(engine, role("a", rule("pods"), label="to-x"), role("x", collects="to-x"))
    await wait_for(engine, "x", "pods")
    await engine.settled()
    before = engine.store.revision
    await engine.restart()
    await engine.settled()
    assert engine.store.revision == before
