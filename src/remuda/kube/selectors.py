"""Label and field selectors, parsed once and matched many times.

A selector compiles to the least work per object: a plain dict comparison for equalities, a tuple of predicates for the
rest. Parse errors carry the real server's wording. Selectors are immutable; both parsers are linear in the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from remuda.kube import errors, names
from remuda.kube.cost import LIMITS, Budget, RequestLimits
from remuda.kube.requirements import Operator, Requirement, SelectorError, int64, parse_requirements, requirement

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "FieldRequirement",
    "FieldSelector",
    "LabelSelector",
    "Requirement",
    "SelectorError",
    "escape_field_value",
    "label_selector_from",
    "label_selector_from_labels",
    "parse_field_selector",
    "parse_label_selector",
    "requirement_size_errors",
    "validate_label_selector",
]

Labels = Mapping[str, str]
_Predicate = Callable[[Labels], bool]


class LabelSelector:
    """Label selector: all requirements must hold. Without requirements it matches everything; `NOTHING` is the
    opposite.
    """

    __slots__ = ("_equal", "_others", "_text", "nothing", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = (), *, nothing: bool = False) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self.nothing = nothing
        self._text = ",".join(map(str, self.requirements))
        exact = [(r.key, r.values[0]) for r in self.requirements if _is_exact(r)]
        self._equal = tuple(exact)
        self._others = tuple(_predicate(r) for r in self.requirements if not _is_exact(r))

    @property
    def empty(self) -> bool:
        """Return whether the selector matches everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Labels) -> bool:
        if self.nothing:
            return False
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        for holds in self._others:  # noqa: SIM110 - `all` with a generator costs a frame per object
            if not holds(labels):
                return False
        return True

    def exact(self, key: str) -> str | None:
        """Return the only value that the label may have, if the selector requires one."""
        for one in self.requirements:
            if one.key == key:
                return one.values[0] if _is_exact(one) else None
        return None

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"LabelSelector({'nothing' if self.nothing else self._text})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSelector):
            return NotImplemented
        return self.requirements == other.requirements and self.nothing == other.nothing

    def __hash__(self) -> int:
        return hash((self.requirements, self.nothing))


def _is_exact(requirement: Requirement) -> bool:
    return requirement.operator in ("=", "==", "in") and len(requirement.values) == 1


def _predicate(requirement: Requirement) -> _Predicate:
    key = requirement.key
    match requirement.operator:
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
        case "gt" | "lt":
            return _comparison(key, requirement.operator == "gt", int(requirement.values[0]))
        case "!=" | "notin":
            refused = frozenset(requirement.values)
            return lambda labels: labels.get(key) not in refused
        case _:
            wanted = frozenset(requirement.values)
            return lambda labels: labels.get(key) in wanted


def _comparison(key: str, greater: bool, bound: int) -> _Predicate:
    def holds(labels: Labels) -> bool:
        number = int64(labels.get(key, ""))
        return number is not None and (number > bound if greater else number < bound)

    return holds


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)


def parse_label_selector(text: str, budget: Budget | None = None) -> LabelSelector:
    """Parse `app=web,tier in (a,b),!old,size>3`. Raise SelectorError, or the budget's 400 (a new budget if none)."""
    return LabelSelector(parse_requirements(text, budget)) if text else EVERYTHING


_FROM_API: dict[str, Operator] = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def label_selector_from(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Convert a `metav1.LabelSelector`: absent selects nothing, empty selects everything. Raise SelectorError."""
    if selector is None:
        return NOTHING
    found = [requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        given = expression.get("operator", "")
        operator = _FROM_API.get(given)
        if operator is None:
            raise SelectorError(f'"{given}" is not a valid label selector operator')
        found.append(requirement(expression.get("key", ""), operator, tuple(expression.get("values") or ())))
    return LabelSelector(found) if found else EVERYTHING


def label_selector_from_labels(labels: Labels) -> LabelSelector:
    """Return a selector for these labels (Services, ReplicationControllers). They are not validated."""
    return LabelSelector(Requirement(key, "=", (value,)) for key, value in labels.items())


def validate_label_selector(selector: Mapping[str, Any] | None, path: str) -> list[errors.FieldError]:
    """Return the errors in a `metav1.LabelSelector` inside an object."""
    if selector is None:
        return []
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    large = requirement_size_errors(expressions, f"{path}.matchExpressions")
    if len(labels) > LIMITS.requirements:
        large.append(errors.too_many(f"{path}.matchLabels", len(labels), LIMITS.requirements))
    if large:
        return large
    found = names.validate_labels(labels, f"{path}.matchLabels")
    for index, expression in enumerate(expressions):
        found += _expression_errors(expression, f"{path}.matchExpressions[{index}]")
    return found


def requirement_size_errors(
    requirements: Sequence[Mapping[str, Any]], path: str, limits: RequestLimits = LIMITS
) -> list[errors.FieldError]:
    """Return an error if there are too many requirements, or too many values in them: each is validated, and matched
    with every object.
    """
    if len(requirements) > limits.requirements:
        return [errors.too_many(path, len(requirements), limits.requirements)]
    values = sum(len(requirement.get("values") or ()) for requirement in requirements)
    return (
        [errors.too_many(f"{path}.values", values, limits.selector_values)] if values > limits.selector_values else []
    )


def _expression_errors(expression: Mapping[str, Any], path: str) -> list[errors.FieldError]:
    operator, key, values = (
        expression.get("operator") or "",
        expression.get("key") or "",
        expression.get("values") or (),
    )
    found = []
    if operator in ("In", "NotIn") and not values:
        found.append(errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        found.append(errors.forbidden(f"{path}.values", why))
    elif operator not in _FROM_API:
        found.append(errors.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    found += [errors.invalid(f"{path}.key", key, complaint) for complaint in names.qualified_name(key)]
    for index, value in enumerate(values):
        found += [errors.invalid(f"{path}.values[{index}]", value, text) for text in names.label_value(value)]
    return found


class FieldRequirement(NamedTuple):
    field: str
    operator: Literal["=", "!="]
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{escape_field_value(self.value)}"


class FieldSelector:
    """Field selector: all requirements must hold; an absent field counts as the empty string."""

    __slots__ = ("_equal", "_unequal", "requirements")

    def __init__(self, requirements: Iterable[FieldRequirement] = ()) -> None:
        self.requirements = tuple(requirements)
        self._equal = tuple((r.field, r.value) for r in self.requirements if r.operator == "=")
        self._unequal = tuple((r.field, r.value) for r in self.requirements if r.operator == "!=")

    @property
    def empty(self) -> bool:
        return not self.requirements

    def matches(self, fields: Mapping[str, str]) -> bool:
        for field, value in self._equal:
            if fields.get(field, "") != value:
                return False
        for field, value in self._unequal:  # noqa: SIM110 - `all` with a generator costs a frame per object
            if fields.get(field, "") == value:
                return False
        return True

    def exact(self, field: str) -> str | None:
        """Return the only value that the field may have, if the selector requires one."""
        for name, value in self._equal:
            if name == field:
                return value
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"FieldSelector({self})"

    def __eq__(self, other: object) -> bool:
        return self.requirements == other.requirements if isinstance(other, FieldSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.requirements)


_TERM = re.compile(r"(?:[^\\,]|\\.)*", re.DOTALL)
_TERM_PARTS = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def escape_field_value(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def parse_field_selector(text: str, budget: Budget | None = None) -> FieldSelector:
    """Parse `metadata.name=a,status.phase!=Failed`; a backslash escapes `,`, `=` and itself.

    Raise SelectorError, or the budget's 400 (a new budget if none is given).
    """
    budget = budget or Budget()
    budget.charge_selector(text)
    found = []
    for term in sorted(_split_terms(text)):
        if not term:
            continue
        budget.charge_requirement()
        parts = _TERM_PARTS.fullmatch(term)
        if parts is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        operator: Literal["=", "!="] = "!=" if parts["operator"] == "!=" else "="
        found.append(FieldRequirement(parts["field"], operator, _unescape(parts["value"])))
    return FieldSelector(found)


def _split_terms(text: str) -> list[str]:
    terms = []
    position = 0
    while True:
        found = _TERM.match(text, position)
        end = found.end() if found else position
        if end < len(text) and text[end] != ",":  # a backslash at the very end
            end = len(text)
        terms.append(text[position:end])
        if end >= len(text):
            return terms
        position = end + 1


def _unescape(value: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] is None:
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(match[0])}")
        if not match[1] or match[1] not in "\\,=":
            raise SelectorError(f"invalid field selector: invalid escape sequence: {match[0]}")
        return match[1]

    return _ESCAPED.sub(plain, value)
