"""Short ways to write schemas with rules."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.cel.rules import compile_rules
from remuda.apiserver.cel.ruleset import RuleSet
from remuda.kube.schema import Rule, Schema

INT = Schema(type="integer")
TEXT = Schema(type="string", max_length=63)


def rules(*given: str | Rule) -> tuple[Rule, ...]:
    return tuple(Rule(rule=rule) if isinstance(rule, str) else rule for rule in given)


def obj(properties: dict[str, Schema], *given: str | Rule, **more: Any) -> Schema:
    return Schema(type="object", properties=properties, rules=rules(*given), **more)


def array(items: Schema, *given: str | Rule, **more: Any) -> Schema:
    more.setdefault("max_items", 16)
    return Schema(type="array", items=items, rules=rules(*given), **more)


def by_key(items: Schema, *given: str | Rule, key: str = "name", **more: Any) -> Schema:
    return array(items, *given, list_type="map", list_map_keys=(key,), **more)


def ruleset(schema: Schema) -> RuleSet:
    compiled, errors = compile_rules(schema, "schema")
    assert not errors, [str(error) for error in errors]
    assert compiled is not None
    return compiled


def refusals(schema: Schema, value: Any, old: Any = None) -> list[str]:
    """What the rules say, the same whether unchanged values are skipped or forgiven."""
    compiled = ruleset(schema)
    skipped = [str(error) for error in compiled.validate(value, old)]
    forgiven = [str(error) for error in compiled.validate(value, old, warnings=[])]
    assert skipped == forgiven
    return skipped


def complaints(schema: Schema) -> list[str]:
    return [str(error) for error in compile_rules(schema, "schema")[1]]
