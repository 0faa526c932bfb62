"""Public interface of CEL: compile a schema's rules once, then run them for every object.

The validation of a CRD and the start of the server call `compile_rules`; each write calls `RuleSet.validate`. The
engine is imported with the first schema that has rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema

if TYPE_CHECKING:
    from remuda.apiserver.cel.ruleset import RuleSet


def compile_rules(schema: Schema, path: str) -> tuple[RuleSet | None, list[FieldError]]:
    """Return the rules on and below a resource's schema (None if there are none), and the errors in them.

    `path` is the path of the schema in its CRD, for error messages. The returned set omits rules that have errors.
    """
    if not has_rules(schema):
        return None, []
    from remuda.apiserver.cel.compiler import compiled

    return compiled(schema, path)


def has_rules(schema: Schema) -> bool:
    """Return whether a schema has rules. Uses a stack instead of recursion, so that no schema is too deep."""
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
