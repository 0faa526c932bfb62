"""Schemas made to cost: patterns, CEL rules, and objects that make the most of them."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest

from tests.faults.abuse.conftest import Bounded
from tests.faults.abuse.victim import Victim
from tests.lab import Reply
from tests.lab.limits import LIMIT_SECONDS

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def define(victim: Victim, spec: dict[str, Any]) -> tuple[Reply, str]:
    """The answer to a definition with this schema of spec, and where its objects go."""
    plural = f"t{secrets.token_hex(4)}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title()}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.abuse.example"},
        "spec": {"group": "abuse.example", "scope": "Cluster", "names": names, "versions": [version]},
    }
    return victim.http("POST", DEFINITIONS, body), f"/apis/abuse.example/v1/{plural}"


def create(victim: Victim, path: str, spec: Any, at_most: float = 2.0) -> Reply:
    """Retried while the definition is on its way to being served. `at_most`: seconds, of `Victim.needs_at_most`."""
    plural = path.rpartition("/")[2]
    body = {
        "apiVersion": "abuse.example/v1",
        "kind": plural[:-1].title(),
        "metadata": {"name": f"x{secrets.token_hex(4)}"},
        "spec": spec,
    }
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        with victim.needs_at_most(at_most):
            reply = victim.http("POST", path, body)
        if reply.code != 404 or time.monotonic() > deadline:
            return reply
        time.sleep(0.02)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(.*)*$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_backtracking_patterns_validate_in_bounded_time(victim: Victim, pattern: str) -> None:
    made, path = define(victim, {"type": "string", "pattern": pattern})
    assert made.code == 201, made
    reply = create(victim, path, "a" * 50_000 + "!\n")
    assert reply.code in (201, 422), reply


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{2000}", "((a{100}){100}){100}", r"(?=x)", r"\1"])
def test_invalid_or_oversized_patterns_are_rejected(victim: Victim, bounded: Bounded, pattern: str) -> None:
    with bounded(40):
        made, _ = define(victim, {"type": "string", "pattern": pattern})
    assert made.code == 422, made
    assert made.body["reason"] == "Invalid"


def test_large_pattern_on_large_text_stays_bounded(victim: Victim, bounded: Bounded) -> None:
    with bounded(60):
        made, path = define(victim, {"type": "string", "pattern": r"^(\pL{0,100}\pN{0,100}){0,9}$"})
        assert made.code in (201, 422), made
        if made.code == 201:
            create(victim, path, "ä" * 1_000_000 + "!", at_most=5)


@pytest.mark.parametrize(
    "rule",
    [
        "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d != ''))))",
        "self.map(a, self.map(b, a + b)).size() > 0",
    ],
)
def test_cel_rules_over_estimated_cost_are_rejected(victim: Victim, rule: str) -> None:
    spec = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": rule}]}
    made, _ = define(victim, spec)
    assert made.code == 422, made
    assert "exceeds budget" in made.body["message"]


def test_cel_rules_over_runtime_cost_stay_bounded(victim: Victim) -> None:
    """Estimated within bounds, and cut off when the object makes them cost more than one request may."""
    item = {"type": "string", "maxLength": 10}
    rule = {"rule": "self.all(a, self.all(b, a == b || a != b))"}
    properties = {
        f"list{n}": {"type": "array", "maxItems": 600, "items": item, "x-kubernetes-validations": [rule]}
        for n in range(10)
    }
    made, path = define(victim, {"type": "object", "properties": properties})
    assert made.code == 201, made
    reply = create(victim, path, {f"list{n}": ["a" * 10] * 600 for n in range(10)}, at_most=30)
    assert reply.code in (201, 422), reply


@pytest.mark.parametrize(
    "rule", ["(" * 5000 + "true" + ")" * 5000, "!" * 50_000 + "true", "true && " * 20_000 + "true", "[" * 3000]
)
def test_hostile_cel_syntax_is_handled_in_bounded_time(victim: Victim, rule: str) -> None:
    with victim.needs_at_most(5):
        made, _ = define(victim, {"type": "object", "x-kubernetes-validations": [{"rule": rule}]})
    assert made.code in (201, 422), made


def test_deeply_nested_schema_is_handled_in_bounded_memory(victim: Victim, bounded: Bounded) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    with bounded(40):
        made, _ = define(victim, schema)
        assert made.code in (201, 400, 422), made
        assert made.body["kind"] in ("Status", "CustomResourceDefinition")


def test_wide_schema_is_handled_in_bounded_memory(victim: Victim, bounded: Bounded) -> None:
    with bounded(80):
        properties = {f"p{n}": {"type": "string", "pattern": f"^{n}+$"} for n in range(5000)}
        made, path = define(victim, {"type": "object", "properties": properties})
        assert made.code in (201, 422), made
        victim.http("DELETE", f"{DEFINITIONS}/{path.rpartition('/')[2]}.abuse.example")
