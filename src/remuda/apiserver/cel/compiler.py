"""Compilation of a schema's rules, with all errors in them.

The wording, order and cost estimates of errors are those that upstream gives when a CRD is written. The `fieldPath` of
a rule is a simple JSON path below the value that the rule is declared on: `.spec.name`, `.labels['a.b']`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from remuda.apiserver import ApiServerError
from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.check import Checked, check
from remuda.apiserver.cel.cost import CRD_ESTIMATE_LIMIT, MAX_UNITS, RULE_ESTIMATE_LIMIT
from remuda.apiserver.cel.declared import MAX_REQUEST, Declared, declare, escape
from remuda.apiserver.cel.estimate import estimate
from remuda.apiserver.cel.program import Program, build
from remuda.apiserver.cel.rules import has_rules
from remuda.apiserver.cel.ruleset import CompiledRule, RuleNode, RuleSet
from remuda.apiserver.cel.source import CelSyntaxError
from remuda.apiserver.cel.syntax import parse
from remuda.apiserver.cel.values import CelError
from remuda.kube.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from remuda.kube.schema import Rule, Schema

_REASONS = (DUPLICATE, FORBIDDEN, INVALID, REQUIRED)
_GO_ESCAPED = re.compile("[<>&\u2028\u2029]")
_LINE_BREAK = re.compile(r"[\n\r]")


def compiled(schema: Schema, path: str) -> tuple[RuleSet | None, list[FieldError]]:
    """Implement rules.compile_rules."""
    compiler = _Compiler()
    try:
        node = compiler.node(schema, _Place(path, cardinality=1), root=True)
    except RecursionError:
        return None, [invalid(path, "", "schema is nested too deeply for x-kubernetes-validations")]
    compiler.check_total(path)
    return (RuleSet(node) if node else None), compiler.shape_errors + compiler.errors


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of the compiler in a schema."""

    path: str
    declared: Declared | None = None  # from the parent's declaration
    cardinality: int | None = None  # maximum number of occurrences of the value; None: unbounded
    uncorrelatable: str = ""  # path of the list whose items have no corresponding old value


@dataclass(slots=True)
class _Compiler:
    errors: list[FieldError] = field(default_factory=list)
    shape_errors: list[FieldError] = field(default_factory=list)  # found before any rule is compiled
    total: int = 0
    expensive: list[tuple[int, str]] = field(default_factory=list)

    def node(self, schema: Schema, place: _Place, *, root: bool = False) -> RuleNode | None:
        if not has_rules(schema):
            return None
        declared = place.declared or declare(schema, resource=root or schema.embedded_resource)
        shape_errors_before = len(self.shape_errors)
        additional = items = None
        if schema.additional is not None:
            inner = _Place(f"{place.path}.additionalProperties", *self.below(schema, declared, place))
            additional = self.node(schema.additional, inner)
        properties = self.properties(schema, declared, place)
        if schema.items is not None:
            uncorrelatable = place.uncorrelatable or ("" if schema.list_type == "map" else place.path)
            of_item, cardinality, _ = self.below(schema, declared, place)
            items = self.node(schema.items, _Place(f"{place.path}.items", of_item, cardinality, uncorrelatable))
        rules = self.rules(schema, declared, place, shape_errors_before)
        return RuleNode(schema, declared, rules, properties, additional, items)

    def below(
        self, schema: Schema, declared: Declared | None, place: _Place
    ) -> tuple[Declared | None, int | None, str]:
        """Return the place of a list's items or a map's values: declaration, cardinality and correlation."""
        limit = schema.max_items if schema.type == "array" else schema.max_properties
        bounded = place.cardinality is not None and limit is not None
        cardinality = min(place.cardinality * max(limit, 0), MAX_UNITS) if bounded else None  # type: ignore[operator,type-var]
        return declared.item if declared else None, cardinality, place.uncorrelatable

    def properties(self, schema: Schema, declared: Declared | None, place: _Place) -> dict[str, RuleNode]:
        found: dict[str, RuleNode] = {}
        for name, inner in schema.properties.items():
            known = declared.fields.get(escape(name) or "") if declared else None
            below = _Place(
                f"{place.path}.properties[{name}]",
                known.declared if known else None,
                place.cardinality,
                place.uncorrelatable,
            )
            node = self.node(inner, below)
            if node is not None:
                found[name] = node
        return found

    def rules(self, schema: Schema, declared: Declared | None, place: _Place, before: int) -> tuple[CompiledRule, ...]:
        for at, rule in enumerate(schema.rules):
            self.check_shape(rule, schema, f"{place.path}.x-kubernetes-validations[{at}]")
        if len(self.shape_errors) > before or not schema.rules:
            return ()
        if declared is None:
            self.errors.append(
                invalid(
                    f"{place.path}.x-kubernetes-validations",
                    "",
                    "internal error: failed to construct type information for x-kubernetes-validations rules: "
                    "unable to convert structural schema to CEL declarations",
                )
            )
            return ()
        compiled = (
            self.rule(rule, schema, declared, place, f"{place.path}.x-kubernetes-validations[{at}]")
            for at, rule in enumerate(schema.rules)
        )
        return tuple(rule for rule in compiled if rule is not None)

    def check_shape(self, rule: Rule, schema: Schema, path: str) -> None:
        add = self.shape_errors.append
        message = rule.message.strip()
        if not rule.rule.strip():
            add(required(f"{path}.rule", "rule is not specified"))
        elif rule.message and not message:
            add(invalid(f"{path}.message", rule.message, "must be non-empty if specified"))
        elif _LINE_BREAK.search(message):
            add(invalid(f"{path}.message", rule.message, "must not contain line breaks"))
        elif _LINE_BREAK.search(rule.rule.strip()) and not message:
            add(required(f"{path}.message", "message must be specified if rule contains line breaks"))
        if rule.message_expression and not rule.message_expression.strip():
            add(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
        if rule.reason and rule.reason not in _REASONS:
            add(not_supported(f"{path}.reason", rule.reason, _REASONS))
        if rule.field_path:
            self.check_field_path(rule.field_path, schema, f"{path}.fieldPath")

    def check_field_path(self, field_path: str, schema: Schema, path: str) -> None:
        if not field_path.strip():
            self.shape_errors.append(invalid(path, field_path, "must be non-empty if specified"))
        if _LINE_BREAK.search(field_path):
            self.shape_errors.append(invalid(path, field_path, "must not contain line breaks"))
        try:
            normalized_field_path(field_path, schema)
        except InvalidPath:
            self.shape_errors.append(invalid(path, field_path, "must be a valid path"))

    def rule(self, rule: Rule, schema: Schema, declared: Declared, place: _Place, path: str) -> CompiledRule | None:
        before = len(self.errors)
        old_type = t.optional_of(declared.type) if rule.optional_old_self else declared.type
        variables = {"self": declared.type, "oldSelf": old_type}
        try:
            checked, program = _compiled(rule.rule, variables, t.BOOL, "cel expression must evaluate to a bool")
        except _Wrong as wrong:
            self.errors.append(invalid(f"{path}.rule", _ShownRule(rule), wrong.detail("", "program")))
            return None
        self.charge(estimate(checked, declared).high, declared, place, f"{path}.rule", "estimated rule cost")
        message = self.message(rule, variables, declared, path) if rule.message_expression else None
        transition = "oldSelf" in checked.names
        self.check_transition(rule, place, path, transition)
        if len(self.errors) > before:
            return None
        below = normalized_field_path(rule.field_path, schema) if rule.field_path else ""
        return CompiledRule(rule, program, message, transition, below)

    def message(self, rule: Rule, variables: dict[str, t.Type], declared: Declared, path: str) -> Program | None:
        path = f"{path}.messageExpression"
        must = "messageExpression must evaluate to a string"
        try:
            checked, program = _compiled(rule.message_expression, variables, t.STRING, must)
        except _Wrong as wrong:
            detail = wrong.detail("messageExpression ", "messageExpression")
            self.errors.append(invalid(path, _ShownRule(rule), detail))
            return None
        # A message is built once, for the first failure, so its cost is not multiplied by the number of runs.
        self.observe(estimate(checked, declared).high, path, "estimated messageExpression cost")
        return program

    def check_transition(self, rule: Rule, place: _Place, path: str, transition: bool) -> None:
        if transition and place.uncorrelatable:
            within = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelatable}"
            self.errors.append(invalid(f"{path}.rule", rule.rule, within))
        elif not transition and rule.optional_old_self is not None:
            self.errors.append(
                invalid(
                    f"{path}.optionalOldSelf", rule.optional_old_self, "may not be set if oldSelf is not used in rule"
                )
            )

    def charge(self, cost: int, declared: Declared, place: _Place, path: str, name: str) -> None:
        """Charge the cost of a rule times the number of values that it can run on."""
        often = place.cardinality
        if often is None:
            often = MAX_REQUEST // (declared.min_bytes + 1)
        self.observe(min(cost * often, MAX_UNITS), path, name)

    def observe(self, cost: int, path: str, name: str) -> None:
        if cost > RULE_ESTIMATE_LIMIT:
            self.errors.append(forbidden(path, _over_budget(name, cost, RULE_ESTIMATE_LIMIT)))
        self.total = min(self.total + cost, MAX_UNITS)
        if cost >= CRD_ESTIMATE_LIMIT // 100:
            self.expensive.append((cost, path))

    def check_total(self, path: str) -> None:
        if self.total <= CRD_ESTIMATE_LIMIT:
            return
        for _, expensive in sorted(self.expensive, key=lambda found: -found[0])[:4]:
            self.errors.append(
                forbidden(
                    expensive,
                    "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
                )
            )
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        self.errors.append(forbidden(path, _over_budget(name, self.total, CRD_ESTIMATE_LIMIT)))


class _Wrong(ApiServerError):
    """Unusable expression and the reason; `stage` is the word that upstream puts before the reason."""

    def __init__(self, stage: str, why: str) -> None:
        super().__init__(why)
        self.stage = stage

    def detail(self, prefix: str, what: str) -> str:
        match self.stage:
            case "compile":
                return f"{prefix}compilation failed: {self}"
            case "instantiate":
                return f"{what} instantiation failed: {self}"
        return str(self)


def _compiled(source: str, variables: dict[str, t.Type], wanted: t.Type, otherwise: str) -> tuple[Checked, Program]:
    try:
        checked = check(source, parse(source), variables)
    except CelSyntaxError as wrong:
        raise _Wrong("compile", str(wrong)) from None
    if checked.result != wanted:
        raise _Wrong("result", otherwise)
    try:
        return checked, build(checked)
    except CelError as wrong:
        raise _Wrong("instantiate", str(wrong)) from None


class _ShownRule:
    """Whole rule as the bad value of an error, written as Go writes JSON."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __str__(self) -> str:
        rule = self.rule
        text = json.dumps(
            {
                "Rule": rule.rule,
                "Message": rule.message,
                "MessageExpression": rule.message_expression,
                "Reason": None if rule.reason == INVALID else rule.reason,
                "FieldPath": rule.field_path,
                "OptionalOldSelf": rule.optional_old_self,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )
        return _GO_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _over_budget(name: str, cost: int, limit: int) -> str:
    times = cost / limit
    factor = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    return (
        f"{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )


class InvalidPath(ValueError):
    """Malformed path, or a path that leads to no field of the schema."""


_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]", re.S)
_ESCAPE = re.compile(r"\\(.)", re.S)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def normalized_field_path(path: str, schema: Schema) -> str:
    """Return the path as field errors write it, without the leading dot."""
    at = 0
    written = ""
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise InvalidPath(f"expected [ or . but got: {path[at:]}")
        name = step[1] if step[1] is not None else _ESCAPE.sub(_unescaped, step[2])
        schema, part = _entered(schema, name)
        written += part if part.startswith("[") or not written else f".{part}"
        at = step.end()
    return written


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPED:
        raise InvalidPath(f"invalid escape char {match[0]}")
    return _ESCAPED[match[1]]


def _entered(schema: Schema, name: str) -> tuple[Schema, str]:
    if schema.properties:
        if name not in schema.properties:
            raise InvalidPath("does not refer to a valid field")
        return schema.properties[name], name
    if schema.additional is not None:
        return schema.additional, f"[{name}]"
    raise InvalidPath("does not refer to a valid field")
