"""The entry to CEL: a schema's rules, compiled once, then run for every object.

`compile_rules` is what a CRD's validation and the server's start call; `RuleSet.validate` what each write calls. The
engine itself is only loaded when the first schema with rules is met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema

if TYPE_CHECKING:
    from remuda.apiserver.cel.ruleset import RuleSet


def compile_rules(schema: Schema, path: str) -> tuple[RuleSet | None, list[FieldError]]:
    """The rules on and below a resource's schema, None if it has none, and what is wrong with them.

    `path` is where the schema stands in its CRD, for complaints. A rule with a complaint is not in the set.
    """
    if not has_rules(schema):
        return None, []
    from remuda.apiserver.cel.compiler import compiled

    return compiled(schema, path)


def has_rules(schema: Schema) -> bool:
    """Looks with a list of its own rather than by recursion, so that no nesting is too deep."""
    pending, seen = [schema], set()
    while pending:
        node = pending.pop()
        if node.rules:
            return True
        if id(node) in seen:
            continue
        seen.add(id(node))
        pending += node.properties.values()
        pending += (inner for inner in (node.items, node.additional) if inner is not None)
    return False
