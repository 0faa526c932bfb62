"""Evaluation of compiled rules on an object: which rules run, on which values, and how failures are reported.

Only values that have rules on or below them are visited. Rules that use `oldSelf` run where a corresponding old value
exists. A failure on a value that the write does not change is no error. All rules of an object share one budget.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.apiserver import ApiServerError
from remuda.apiserver.cel.cost import OBJECT_BUDGET
from remuda.apiserver.cel.declared import Declared
from remuda.apiserver.cel.list_types import key_of
from remuda.apiserver.cel.program import Program
from remuda.apiserver.cel.values import NO_OVERLOAD, NONE, CelError, CostExceeded, Optional
from remuda.kube.errors import DUPLICATE, FORBIDDEN, INVALID, OMITTED, REQUIRED, FieldError
from remuda.kube.go_text import quoted
from remuda.kube.schema import Rule, Schema

_MAX_MESSAGE = 5 * 1024  # upstream's limit for the result of a messageExpression
_NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_TOO_EXPENSIVE = "operation cancelled: actual cost limit exceeded"

# A location in an object during the walk: (parent, step); () is the object itself.
Trail = tuple[Any, ...]


def written(trail: Trail, path: str) -> str:
    steps: list[str] = []
    while trail:
        trail, step = trail
        steps.append(step)
    for step in reversed(steps):
        path = f"{path}{step}" if step.startswith("[") or not path else f"{path}.{step}"
    return path


class CompiledRule(NamedTuple):
    rule: Rule
    program: Program
    message: Program | None
    transition: bool  # uses oldSelf
    field_path: str

    @property
    def name(self) -> str:
        """Return the name of the rule in errors about running it."""
        return self.rule.message.strip() or self.rule.rule.strip()


class RuleNode:
    """Rules on one schema node, and the nodes below it that have rules."""

    __slots__ = ("additional", "convert", "has_transition", "items", "list_keys", "properties", "rules", "type")

    def __init__(
        self,
        schema: Schema,
        declared: Declared | None,
        rules: tuple[CompiledRule, ...],
        properties: dict[str, RuleNode],
        additional: RuleNode | None,
        items: RuleNode | None,
    ) -> None:
        self.type = schema.type
        self.convert = declared.convert if declared else None
        self.rules = rules
        self.properties = properties
        self.additional = additional
        self.items = items
        self.list_keys = schema.list_map_keys if schema.list_type == "map" else ()
        below = [*properties.values(), *(node for node in (additional, items) if node)]
        self.has_transition: bool = any(rule.transition for rule in rules) or any(node.has_transition for node in below)


class RuleSet:
    """All rules of one schema. Stateless, so it may be shared."""

    __slots__ = ("_root",)

    def __init__(self, root: RuleNode) -> None:
        self._root = root

    def validate(
        self, obj: Any, old: Any = None, path: str = "", warnings: list[str] | None = None
    ) -> list[FieldError]:
        """Return the errors that the rules find in an object; `old` is the object that it replaces, None on create.

        Failures on unchanged values are not errors. With `warnings`, the rules on unchanged values run nevertheless and
        their failures are added there, as upstream does. Without it, these rules do not run.
        """
        run = _Run(path, warnings)
        try:
            run.visit(self._root, obj, old, (), at_root=True)
        except _OutOfBudget:
            pass
        return run.errors


class _OutOfBudget(ApiServerError):
    """Raised when the budget is used up: no further rule runs."""


class _Run:
    """Validation of one object."""

    __slots__ = ("budget", "errors", "path", "spent", "warnings")

    def __init__(self, path: str, warnings: list[str] | None) -> None:
        self.path = path
        self.warnings = warnings
        self.errors: list[FieldError] = []
        self.budget = OBJECT_BUDGET
        self.spent = [0]  # cost of the latest expression

    def visit(
        self, node: RuleNode, value: Any, old: Any, trail: Trail, *, unchanged: bool = False, at_root: bool = False
    ) -> None:
        """Visit a value. `unchanged`: the nearest value above that has an old value did not change; used for values
        without one.
        """
        if value is None:
            return
        if old is not None:
            unchanged = value == old
        if unchanged and self.warnings is None and not node.has_transition:
            return
        if node.rules:
            self.apply(node, value, old, trail, unchanged)
        if type(value) is dict:
            self.visit_fields(node, value, old if type(old) is dict else None, trail, unchanged, at_root)
        elif node.items is not None and type(value) is list:
            self.visit_items(node, node.items, value, old if type(old) is list else None, trail, unchanged)

    def visit_fields(
        self,
        node: RuleNode,
        value: dict[str, Any],
        old: dict[str, Any] | None,
        trail: Trail,
        unchanged: bool,
        at_root: bool,
    ) -> None:
        if node.additional is not None:
            for key, inner in value.items():
                before = old.get(key) if old is not None else None
                self.visit(node.additional, inner, before, (trail, f"[{key}]"), unchanged=unchanged)
        for name, below in node.properties.items():
            found = value.get(name)
            if found is not None:
                before = old.get(name) if old is not None else None
                # Both are always those of the stored version, so they cannot show a change.
                same = unchanged and not (at_root and name in ("apiVersion", "kind"))
                self.visit(below, found, before, (trail, name), unchanged=same)

    def visit_items(
        self, node: RuleNode, below: RuleNode, value: list[Any], old: list[Any] | None, trail: Trail, unchanged: bool
    ) -> None:
        keys = node.list_keys
        known = {key_of(item, keys): item for item in old} if old and keys else {}
        for at, item in enumerate(value):
            before = known.get(key_of(item, keys)) if known else None
            self.visit(below, item, before, (trail, f"[{at}]"), unchanged=unchanged)

    def apply(self, node: RuleNode, value: Any, old: Any, trail: Trail, unchanged: bool) -> None:
        if self.budget <= 0:
            self.give_up(node, trail, _NO_BUDGET)
        convert = node.convert
        try:
            seen = value if convert is None else convert(value)
            before = old if convert is None or old is None else convert(old)
        except CelError as failure:
            self.fail(node, trail, f"{failure} evaluating rule: {node.rules[0].name}")
            return
        for rule in node.rules:
            if rule.transition:
                if rule.rule.optional_old_self:
                    self.run(node, rule, value, seen, NONE if before is None else Optional(before), trail, False)
                elif before is not None:
                    self.run(node, rule, value, seen, before, trail, False)
            elif not unchanged or self.warnings is not None:
                self.run(node, rule, value, seen, None, trail, unchanged)

    def run(
        self, node: RuleNode, rule: CompiledRule, value: Any, seen: Any, before: Any, trail: Trail, forgiven: bool
    ) -> None:
        try:
            holds = rule.program.run(seen, before, self.spent)
        except CelError as failure:
            self.spend(node, trail)
            self.fail(node, trail, _evaluation_failed(str(failure), rule.name))
            return
        except CostExceeded:
            self.spend(node, trail)
            self.give_up(
                node,
                trail,
                f"'{_TOO_EXPENSIVE}': no further validation rules will be run due to call cost exceeds limit for rule: "
                f"{rule.name}",
            )
            return
        self.spend(node, trail)
        if holds is not True:
            self.refuse(node, rule, value, seen, before, trail, forgiven)

    def spend(self, node: RuleNode, trail: Trail) -> None:
        cost = self.spent[0]
        if cost > self.budget:
            self.give_up(node, trail, _NO_BUDGET)
        self.budget -= cost

    def fail(self, node: RuleNode, trail: Trail, detail: str) -> None:
        self.errors.append(FieldError(INVALID, written(trail, self.path), node.type, detail))

    def give_up(self, node: RuleNode, trail: Trail, detail: str) -> None:
        self.fail(node, trail, detail)
        raise _OutOfBudget

    def refuse(
        self, node: RuleNode, rule: CompiledRule, value: Any, seen: Any, before: Any, trail: Trail, forgiven: bool
    ) -> None:
        path = written(trail, self.path)
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        detail = self.detail(node, rule, seen, before, path)
        error = _refusal(rule.rule.reason, path, OMITTED if node.type in ("object", "array") else value, detail)
        if not forgiven:
            self.errors.append(error)
        elif self.warnings is not None:
            self.warnings.append(str(error))

    def detail(self, node: RuleNode, rule: CompiledRule, seen: Any, before: Any, path: str) -> str:
        made = self.made_message(node, rule.message, rule, seen, before, path) if rule.message is not None else ""
        if made:
            return made
        return rule.rule.message.strip() or f"failed rule: {rule.rule.rule.strip()}"

    def made_message(
        self, node: RuleNode, program: Program, rule: CompiledRule, seen: Any, before: Any, path: str
    ) -> str:
        """Return the text that the messageExpression evaluates to; "" if it gives nothing usable."""
        try:
            text = program.run(seen, before, self.spent)
        except CelError:
            text = None
        except CostExceeded:
            self.give_up_message(
                node,
                path,
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
                f"{quoted(rule.rule.message_expression)}",
            )
        if self.spent[0] > self.budget:
            self.give_up_message(
                node,
                path,
                "messageExpression evaluation failed due to running out of cost budget, "
                "no further validation rules will be run",
            )
        self.budget -= self.spent[0]
        trimmed = text.strip() if isinstance(text, str) else ""
        return "" if len(trimmed.encode()) > _MAX_MESSAGE or "\n" in trimmed else trimmed

    def give_up_message(self, node: RuleNode, path: str, detail: str) -> None:
        self.errors.append(FieldError(INVALID, path, node.type, detail))
        raise _OutOfBudget


def _evaluation_failed(failure: str, name: str) -> str:
    if failure.startswith(NO_OVERLOAD):
        return (
            f"'{failure}': call arguments did not match a supported operator, function or macro signature for rule: "
            f"{name}"
        )
    return f"{failure} evaluating rule: {name}"


def _refusal(reason: str, path: str, value: Any, detail: str) -> FieldError:
    if reason in (FORBIDDEN, REQUIRED):
        return FieldError(reason, path, "", detail)
    if reason == DUPLICATE:
        return FieldError(DUPLICATE, path, value, "")
    return FieldError(INVALID, path, value, detail)
