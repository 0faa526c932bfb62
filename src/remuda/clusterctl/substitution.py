"""Substitution of variables in templates, compatible with clusterctl. Pure.

    ${VAR}                        a value is required
    ${VAR:=x} ${VAR:-x} ${VAR=x}  x if VAR is unset or empty; x may contain variables
    ${VAR^^} ${VAR,,} ${VAR^} ${VAR,}                     upper case, lower case; of the first letter only
    ${#VAR} ${VAR:2} ${VAR:2:3}                           length; substrings
    ${VAR#a*} ${VAR##a*} ${VAR%*z} ${VAR%%*z}             without a prefix; without a suffix
    ${VAR/a/b} ${VAR//a/b} ${VAR/#a/b} ${VAR/%z/b}        with a replacement
    $${VAR}                                               the literal text ${VAR}

A template that works with clusterctl works here. In addition, a default may be empty, and a plain ${VAR} uses the
default of an earlier ${VAR:=x}. Forms that clusterctl reads differently from a shell (`:?`, `:+`) are refused.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_OPENING = re.compile(r"\$\$|\$\{")
_NAME = re.compile(r"\s*(#?)([A-Za-z0-9_]+)\s*")
_DEFAULTS = (":=", ":-", "=")
_SPAN = re.compile(r":\s*(-?\d+)(?::(\d+))?")
_CASES: Mapping[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}
_KNOWN = "see `remuda generate cluster --help` for the supported forms"


class BadTemplate(ValueError):
    """Invalid template; the message names the line."""


class MissingVariables(ValueError):
    def __init__(self, names: list[str]) -> None:
        super().__init__(f"no value for {', '.join(names)}")
        self.names = names


class _Variable(NamedTuple):
    name: str
    rest: str  # the text between the name and the closing brace
    length: bool  # ${#VAR}

    @property
    def default(self) -> str | None:
        """Return the default as written; None if there is none."""
        return next((self.rest[len(sign) :] for sign in _DEFAULTS if self.rest.startswith(sign)), None)


def variables(text: str) -> dict[str, str | None]:
    """Return a template's variables with their defaults. None: no default, a value is required. Raises BadTemplate."""
    found: dict[str, str | None] = {}
    for part in _parts(text):
        if isinstance(part, _Variable):
            found.setdefault(part.name, part.default)
            for name, default in variables(part.default or "").items():
                found.setdefault(name, default)
    return found


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return the text with values. Raises MissingVariables with all missing names, and BadTemplate."""
    known = variables(text)
    if missing := sorted(name for name in needed(text, values) if name not in values and known[name] is None):
        raise MissingVariables(missing)
    return _substituted(text, values, known)


def needed(text: str, values: Mapping[str, str]) -> set[str]:
    """Return the variables whose values matter: variables inside an unused default are left out."""
    found = set()
    for part in _parts(text):
        if isinstance(part, _Variable):
            found.add(part.name)
            if part.default is not None and not values.get(part.name):
                found |= needed(part.default, values)
    return found


def _substituted(text: str, values: Mapping[str, str], defaults: Mapping[str, str | None]) -> str:
    return "".join(part if isinstance(part, str) else _value(part, values, defaults) for part in _parts(text))


def _value(part: _Variable, values: Mapping[str, str], defaults: Mapping[str, str | None]) -> str:
    value = values.get(part.name, "")
    default = part.default if part.default is not None else defaults.get(part.name)
    # An empty value counts as given for a plain ${VAR}, and as unset for a variable with a default of its own.
    if not value and default is not None and (part.name not in values or part.default is not None):
        value = _substituted(default, values, defaults)
    if part.length:
        return str(len(value))
    return value if part.default is not None else _altered(value, part)


def _altered(value: str, part: _Variable) -> str:
    rest = part.rest
    if not rest:
        return value
    if rest in _CASES:
        return _CASES[rest](value)
    if span := _SPAN.fullmatch(rest):
        tail = value[int(span[1]) :]
        return tail if span[2] is None else tail[: int(span[2])]
    if rest[0] in "#%":
        return _trimmed(value, rest)
    return _replaced(value, rest[1:])


def _trimmed(value: str, rest: str) -> str:
    longest, at_end = rest[:2] in ("##", "%%"), rest[0] == "%"
    pattern = rest[2:] if longest else rest[1:]
    lengths = range(len(value), -1, -1) if longest else range(len(value) + 1)
    for length in lengths:
        head, tail = value[: len(value) - length], value[len(value) - length :]
        if not at_end:
            tail, head = value[:length], value[length:]
        if fnmatch.fnmatchcase(tail, pattern):
            return head
    return value


def _replaced(value: str, rest: str) -> str:
    sign = rest[0] if rest.startswith(("/", "#", "%")) else ""
    old, _, new = rest[len(sign) :].partition("/")
    if not old:
        return value
    if sign == "#":
        return new + value.removeprefix(old) if value.startswith(old) else value
    if sign == "%":
        return value.removesuffix(old) + new if value.endswith(old) else value
    return value.replace(old, new, -1 if sign else 1)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _parts(text: str) -> Iterator[str | _Variable]:
    at = 0
    while opening := _OPENING.search(text, at):
        yield text[at : opening.start()]
        if opening[0] == "$$":
            yield "$"
            at = opening.end()
            if text.startswith("{", at):  # $${VAR} is text, whatever is between the braces
                yield "{"
                at += 1
            continue
        end = _closing(text, opening.end())
        yield _variable(text, opening.end(), end)
        at = end + 1
    yield text[at:]


def _closing(text: str, start: int) -> int:
    """Return the position of the brace that closes the one before `start`."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            if not depth:
                return at
            depth -= 1
        elif text[at] == "\n":
            break
    raise BadTemplate(f"line {_line(text, start)}: a closing brace is missing after {_shown(text[start - 2 :])}")


def _variable(text: str, start: int, end: int) -> _Variable:
    inner = text[start:end]
    name = _NAME.match(inner)
    found = None if name is None else _Variable(name[2], inner[name.end() :], bool(name[1]))
    if found is None or not _is_known(found):
        raise BadTemplate(f"line {_line(text, start)}: ${{{inner}}} is not supported: {_KNOWN}")
    return found


def _is_known(found: _Variable) -> bool:
    rest = found.rest
    if found.length or not rest:
        return not rest
    return found.default is not None or rest in _CASES or rest[0] in "#%/" or _SPAN.fullmatch(rest) is not None


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _shown(text: str) -> str:
    return text.splitlines()[0][:40]
