"""Kubernetes' dialect of JSONPath, as printer columns and selectable fields use it, compiled once to a closure.

`.spec.a.b`, `['x']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `[0,2]`, `.*`, `..name`, `[?(@.type=="Ready")].status`, with or
without a leading `$` or `@` and with or without surrounding braces. A missing field gives no result, never an error.
Templates (text between braces, range/end) are a feature of kubectl, not of the server.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

Finder = Callable[[Any], list[Any]]
_Step = Callable[[Iterable[Any]], Iterator[Any]]

_MAX_RESULTS = 10_000  # limits a recursive path into a hostile object


class JSONPathError(ValueError):
    """Invalid path; the text gives the position of the error."""


def compile_jsonpath(text: str) -> Finder:
    """Return a function from a decoded object to the found values, in order. Raise JSONPathError."""
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    plain = plain_fields(body)
    if plain is not None:
        return _plain_finder(plain)
    steps = _parse(body)

    def find(root: Any) -> list[Any]:
        values: Iterable[Any] = (root,)
        for step in steps:
            values = step(values)
        found = []
        for value in values:
            found.append(value)
            if len(found) >= _MAX_RESULTS:
                break
        return found

    return find


_is_plain = re.compile(r"[$@]?(\.[A-Za-z0-9_/-]+)+").fullmatch


def plain_fields(text: str) -> tuple[str, ...] | None:
    """Return the field names of a path that consists only of fields (`.spec.a.b`), else None."""
    return tuple(text.lstrip("$@")[1:].split(".")) if _is_plain(text) else None


def _plain_finder(fields: tuple[str, ...]) -> Finder:
    def find(value: Any) -> list[Any]:
        for field in fields:
            if type(value) is not dict or field not in value:
                return []
            value = value[field]
        return [value]

    return find


def text_of(values: list[Any]) -> str:
    """Join several results as a string column shows them: JSON for containers, separated by spaces."""
    return " ".join(map(_text, values))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | bool):
        return msgspec.json.encode(value).decode()
    return "<nil>" if value is None else str(value)


_FIELD = re.compile(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?", re.ASCII)
_KEY = re.compile(r"'([^']*)'")
_FILTER = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]+", re.ASCII)


def _parse(text: str) -> list[_Step]:
    steps: list[_Step] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in " $@":
            position += 1
        elif text.startswith("..", position):
            steps.append(_descend)
            position += 2
            if position < len(text) and (text[position].isalnum() or text[position] == "_"):
                position = _take_field(text, position, steps)
        elif char == ".":
            position = _take_field(text, position + 1, steps)
        elif text.startswith("[?(", position):
            position = _take_filter(text, position, steps)
        elif char == "[":
            position = _take_brackets(text, position, steps)
        else:
            raise JSONPathError(f"unrecognized character in action: U+{ord(char):04X} {char!r}")
    return steps


def _take_field(text: str, position: int, steps: list[_Step]) -> int:
    found = _FIELD.match(text, position)
    name = found[0] if found else ""
    steps.append(_every if name == "*" else _field(name.replace("\\", "")))
    return position + len(name)


def _take_brackets(text: str, position: int, steps: list[_Step]) -> int:
    end = text.find("]", position)
    if end < 0:
        raise JSONPathError("unterminated array")
    inside = text[position + 1 : end]
    parts = inside.split(",")
    if len(parts) > 1:
        branches = [_parse(f"[{part.strip(' ')}]") for part in parts]
        steps.append(_union(branches))
    elif key := _KEY.fullmatch(inside):
        steps += _parse("." + key[1])
    else:
        steps.append(_slice_step(":" if inside == "*" else inside))
    return end + 1


def _take_filter(text: str, position: int, steps: list[_Step]) -> int:
    end = _filter_end(text, position + 3)
    inside = text[position + 3 : end]
    compared = _FILTER.fullmatch(inside)
    if compared is None:
        steps.append(_having(_parse(inside)))
    else:
        steps.append(_comparing(_parse(compared[1]), compared[2], _operand(compared[3].strip())))
    return end + 2


def _filter_end(text: str, position: int) -> int:
    """Return the position of the first `)]` outside of quotes."""
    quote = ""
    while position < len(text):
        char = text[position]
        if quote:
            quote = "" if char == quote and text[position - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char == ")":
            if text[position + 1 : position + 2] != "]":
                raise JSONPathError("unclosed array expect ]")
            return position
        position += 1
    raise JSONPathError("unterminated filter")


def _operand(text: str) -> Finder:
    if len(text) >= 2 and text[0] in "\"'" and text[-1] == text[0]:
        literal: Any = re.sub(r"\\(.)", r"\1", text[1:-1])
    elif text in ("true", "false"):
        literal = text == "true"
    elif _NUMBER.fullmatch(text) and len(text) < 40:
        literal = _number(text)
    else:
        return compile_jsonpath(text)
    return lambda _: [literal]


def _number(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise JSONPathError(f"cannot parse number {text}") from None


def _field(name: str) -> _Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if type(value) is dict and name in value:
                yield value[name]

    return step


def _children(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list else ()


def _every(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from _children(value)


def _descend(values: Iterable[Any]) -> Iterator[Any]:
    """Yield every container at any depth, outer ones first."""
    pending = list(values)[::-1]
    while pending:
        value = pending.pop()
        children = list(_children(value))
        if children:
            yield value
            pending += reversed(children)


def _union(branches: list[list[_Step]]) -> _Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        given = list(values)
        for branch in branches:
            found: Iterable[Any] = given
            for inner in branch:
                found = inner(found)
            yield from found

    return step


def _slice_step(text: str) -> _Step:
    parts = _SLICE.fullmatch(text)
    if parts is None or not text:
        raise JSONPathError(f"invalid array index {text}")
    start = _bound(parts[1])
    if parts[2] is None and parts[3] is None:
        if start is None:
            raise JSONPathError(f"invalid array index {text}")
        return _at(start)
    stop, stride = _bound((parts[2] or "")[1:]), _bound((parts[3] or "")[1:])
    if stride is not None and stride <= 0:
        raise JSONPathError("step must be > 0")
    return _between(start, stop, stride)


def _bound(text: str) -> int | None:
    if len(text) > 18 or text == "-":
        raise JSONPathError(f"array index {text} is not a number")
    return int(text) if text else None


def _at(index: int) -> _Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if type(value) is list and -len(value) <= index < len(value):
                yield value[index]

    return step


def _between(start: int | None, stop: int | None, stride: int | None) -> _Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if type(value) is list:
                yield from value[slice(start, stop, stride)]

    return step


def _having(path: list[_Step]) -> _Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if type(value) is list:
                yield from (item for item in value if _first(path, item))

    return step


def _first(path: list[_Step], item: Any) -> list[Any]:
    found: Iterable[Any] = (item,)
    for step in path:
        found = step(found)
    for value in found:
        return [value]
    return []


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _comparing(path: list[_Step], symbol: str, operand: Finder) -> _Step:
    compare = _COMPARE.get(symbol)
    if compare is None:
        raise JSONPathError(f"unrecognized filter operator {symbol}")

    def passes(item: Any) -> bool:
        left, right = _first(path, item), operand(item)
        return bool(left and right and _comparable(left[0], right[0]) and compare(left[0], right[0]))

    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if type(value) is list:
                yield from filter(passes, value)

    return step


def _comparable(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool)
    if isinstance(left, int | float):
        return isinstance(right, int | float)
    return isinstance(left, str) and isinstance(right, str)
