"""Requirements of a label selector, validated one by one, and the parser of their grammar.

`app=web,tier in (a,b),!old,size>3`. Errors have kube-apiserver's wording. The parser is linear in its input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from remuda.kube import errors, names
from remuda.kube.cost import Budget
from remuda.kube.errors import StatusError

Operator = Literal["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]

_BINARY = ("in", "notin", "=", "==", "!=", "gt", "lt")
_SYMBOLS = {"gt": ">", "lt": "<"}


class SelectorError(StatusError):
    """Invalid selector; the message is that of a bad request."""

    def __init__(self, complaint: str) -> None:
        super().__init__(400, "BadRequest", complaint)


class Requirement(NamedTuple):
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(sorted(self.values))})"
            case _:
                return f"{self.key}{_SYMBOLS.get(self.operator, self.operator)}{self.values[0]}"


_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch


def int64(text: str) -> int | None:
    # The length check keeps a label of thousands of digits from costing anything.
    if len(text) > 63 or not text.isascii() or not _is_integer(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_requirements(text: str, budget: Budget | None = None) -> list[Requirement]:
    """Parse the requirements, in the order written. Raise SelectorError, or the budget's 400 (a new budget if none is
    given).
    """
    budget = budget or Budget()
    budget.charge_selector(text)
    return _Parser(text, budget).requirements()


def requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """Return a checked requirement: key, number of values and each value. Raise SelectorError."""
    found = [errors.invalid("key", key, "; ".join(bad))] if (bad := names.qualified_name(key)) else []
    found += _count_errors(operator, values)
    for index, value in enumerate(values):
        if bad := names.label_value(value):
            found.append(errors.invalid(f"values[{index}][{key}]", value, "; ".join(bad)))
    if found:
        sentences = [str(error) for error in found]
        raise SelectorError(sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]")
    return Requirement(key, operator, tuple(values))


def _count_errors(operator: Operator, values: Sequence[str]) -> list[errors.FieldError]:
    def wrong(why: str) -> list[errors.FieldError]:
        return [errors.invalid("values", list(values), why)]

    match operator:
        case "in" | "notin":
            return [] if values else wrong("for 'in', 'notin' operators, values set can't be empty")
        case "=" | "==" | "!=":
            return [] if len(values) == 1 else wrong("exact-match compatibility requires one single value")
        case "exists" | "!":
            return wrong("values set must be empty for exists and does not exist") if values else []
        case _:
            found = [] if len(values) == 1 else wrong("for 'Gt', 'Lt' operators, exactly one value is required")
            not_integer = "for 'Gt', 'Lt' operators, the value must be an integer"
            bad = [(i, value) for i, value in enumerate(values) if int64(value) is None]
            return found + [errors.invalid(f"values[{i}]", value, not_integer) for i, value in bad]


_OPERATORS: dict[str, Operator] = {
    "in": "in",
    "=": "=",
    "==": "==",
    ">": "gt",
    "<": "lt",
    "notin": "notin",
    "!=": "!=",
}
_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<symbol>==|!=|[=!(),><])|(?P<word>[^ \t\r\n=!(),><\x00]+)|(?P<end>\Z|\x00))")


class _Parser:
    """Parser over words and symbols; `in` and `notin` are words except where an operator is expected."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._budget = budget
        self._tokens = _tokens(text)
        self._at = 0

    def _take(self) -> tuple[str, str]:
        token = self._tokens[min(self._at, len(self._tokens) - 1)]
        self._at += 1
        return token

    def _peek(self) -> tuple[str, str]:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            kind, text = self._peek()
            if kind == "end":
                return found
            if kind != "word" and text != "!":
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if self._separator() == "end":
                return found

    def _separator(self) -> str:
        kind, text = self._take()
        if kind == "end":
            return kind
        if text != ",":
            raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
        kind, text = self._peek()
        if kind != "word" and text != "!":
            raise SelectorError(f"found '{text}', expected: identifier after ','")
        return ","

    def _requirement(self) -> Requirement:
        kind, key = self._take()
        negated = kind != "word" and key == "!"
        if negated:
            kind, key = self._take()
        if kind != "word":
            raise SelectorError(f"found '{key}', expected: identifier")
        if bad := names.qualified_name(key):
            raise SelectorError(str(errors.invalid("", key, "; ".join(bad))))
        self._budget.charge_requirement()
        following_kind, following = self._peek()
        if negated or following_kind == "end" or (following_kind == "symbol" and following == ","):
            return requirement(key, "!" if negated else "exists", ())
        operator = self._operator()
        values = self._value_set() if operator in ("in", "notin") else self._exact_value()
        self._budget.charge_values(len(values))
        return requirement(key, operator, sorted(values))

    def _operator(self) -> Operator:
        _, text = self._take()
        operator = _OPERATORS.get(text)
        if operator is None:
            raise SelectorError(f"found '{text}', expected: {', '.join(_BINARY)}")
        return operator

    def _exact_value(self) -> set[str]:
        kind, text = self._peek()
        if kind == "end" or text == ",":
            return {""}
        kind, text = self._take()
        if kind != "word":
            raise SelectorError(f"found '{text}', expected: identifier")
        return {text}

    def _value_set(self) -> set[str]:
        _, text = self._take()
        if text != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        kind, text = self._peek()
        if kind == "symbol" and text == ")":
            self._take()
            return {""}
        if kind != "word" and text != ",":
            raise SelectorError(f"found '{text}', expected: ',', ')' or identifier")
        values = self._values()
        self._take()  # the closing parenthesis that ended the values
        return values

    def _values(self) -> set[str]:
        """Parse words between commas, up to the parenthesis; nothing between two commas is the empty value."""
        found: set[str] = set()
        while True:
            kind, text = self._take()
            _, following = self._peek()
            if kind == "word":
                found.add(text)
                if following == ")":
                    return found
                if following != ",":
                    raise SelectorError(f"found '{following}', expected: ',' or ')'")
            elif text == ",":
                if not found or following in (")", ","):
                    found.add("")
                if following == ")":
                    return found
            else:
                raise SelectorError(f"found '{text}', expected: ',', or identifier")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while True:
        token = _TOKEN.match(text, position)
        if token is None or token.lastgroup == "end":
            return [*found, ("end", "")]
        kind = token.lastgroup or "end"
        found.append((kind, token[kind]))
        position = token.end()
