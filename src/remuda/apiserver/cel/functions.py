"""Declaration of CEL functions: signature, implementation, and the cost of a call if it depends on the arguments.

Library modules fill one `Library` each; `library.FUNCTIONS` joins them. A signature reads as in CEL's own
documentation, `string.charAt(int): string` for a method and `url(string): kubernetes.URL` for a function; single
capital letters are type parameters. Overload ids matter where the cost depends on which overload is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remuda.apiserver.cel import types as t
from remuda.apiserver.cel.types import Type
from remuda.apiserver.cel.values import Impl

# (arguments, result) -> cost of one call; the receiver is the first argument.
CostOf = Callable[[tuple[Any, ...], Any], int]


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    function: str
    id: str
    member: bool
    args: tuple[Type, ...]  # including a method's receiver, which comes first
    result: Type
    impl: Impl
    cost: CostOf | None  # None: every call costs 1
    pure: bool  # a call with constant arguments may be evaluated at compile time
    generic: bool  # has type parameters


class Library:
    def __init__(self) -> None:
        self.overloads: list[Overload] = []

    def function(
        self, signature: str, impl: Impl, *, id: str = "", cost: CostOf | None = None, pure: bool = False
    ) -> None:
        match = _FUNCTION.fullmatch(signature)
        assert match, signature
        self._add(match["name"], False, _types(match["args"]), match["result"], impl, id, cost, pure)

    def method(self, signature: str, impl: Impl, *, id: str = "", cost: CostOf | None = None) -> None:
        match = _METHOD.fullmatch(signature)
        assert match, signature
        args = (parse_type(match["on"]), *_types(match["args"]))
        self._add(match["name"], True, args, match["result"], impl, id, cost, False)

    def _add(
        self,
        name: str,
        member: bool,
        args: tuple[Type, ...],
        result: str,
        impl: Impl,
        id: str,
        cost: CostOf | None,
        pure: bool,
    ) -> None:
        made = parse_type(result)
        generic = any(map(_has_params, (made, *args)))
        self.overloads.append(
            Overload(name, id or f"{name}/{len(args)}", member, args, made, impl, cost, pure, generic)
        )


def _has_params(given: Type) -> bool:
    return given.kind == "param" or any(map(_has_params, given.params))


_FUNCTION = re.compile(r"(?P<name>[\w.@!?:*/%+\-<>=&|\[\]]+)\((?P<args>.*)\): (?P<result>.*)")
_METHOD = re.compile(r"(?P<on>[\w.]+(?:\(.*\))?)\.(?P<name>@?\w+)\((?P<args>.*)\): (?P<result>.*)")

_NAMED = {
    "dyn": t.DYN,
    "bool": t.BOOL,
    "int": t.INT,
    "uint": t.UINT,
    "double": t.DOUBLE,
    "string": t.STRING,
    "bytes": t.BYTES,
    "timestamp": t.TIMESTAMP,
    "duration": t.DURATION,
    "null": t.NULL,
}


def parse_type(text: str) -> Type:
    name, _, inner = text.partition("(")
    params = _types(inner.removesuffix(")")) if inner else ()
    if name == "list":
        return t.list_of(params[0])
    if name == "map":
        return t.map_of(params[0], params[1])
    if name == "type":
        return t.type_of(params[0])
    if name == "optional":
        return t.optional_of(params[0])
    if len(name) == 1 and name.isupper():
        return t.param(name)
    return _NAMED.get(name) or t.opaque(name)


def _types(text: str) -> tuple[Type, ...]:
    parts: list[str] = []
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return tuple(parse_type(part.strip()) for part in parts if part.strip())


_VALUE_CLASSES: dict[str, str] = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


def accepts(wanted: Type, value_type: str) -> bool:
    """Return whether a value of the named type may be passed where `wanted` is declared, ignoring type parameters."""
    if wanted.kind in ("dyn", "param"):
        return True
    return value_type == _VALUE_CLASSES.get(wanted.kind, wanted.name)
