"""CEL's types, and the rules of assignability between them.

A `Type` is immutable and compared by structure. `declared` is the schema node that a type came from, if there is one;
comparison ignores it. `Unifier` decides assignability and records the types that type parameters stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.apiserver.cel.declared import Declared


class Type:
    __slots__ = ("declared", "kind", "name", "params")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = (), declared: Declared | None = None) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.declared = declared

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Type)
            and self.kind == other.kind
            and self.name == other.name
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.params))

    def __str__(self) -> str:
        shown = _SHOWN.get(self.kind, self.name)
        return f"{shown}({', '.join(map(str, self.params))})" if self.params else shown

    def __repr__(self) -> str:
        return f"<{self}>"


# Names of types in error messages, where they differ from the names as values.
_SHOWN = {"error": "!error!", "null": "null", "timestamp": "timestamp", "duration": "duration"}

DYN = Type("dyn", "dyn")
ERROR = Type("error", "*error*")
NULL = Type("null", "null_type")
BOOL = Type("bool", "bool")
INT = Type("int", "int")
UINT = Type("uint", "uint")
DOUBLE = Type("double", "double")
STRING = Type("string", "string")
BYTES = Type("bytes", "bytes")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
DURATION = Type("duration", "google.protobuf.Duration")
TYPE = Type("type", "type")

SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
# These types accept null although they are not declared nullable.
_NULLABLE = frozenset(("opaque", "object", "duration", "timestamp"))


def list_of(item: Type, declared: Declared | None = None) -> Type:
    return Type("list", "list", (item,), declared)


def map_of(key: Type, value: Type, declared: Declared | None = None) -> Type:
    return Type("map", "map", (key, value), declared)


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(named: Type) -> Type:
    return Type("type", "type", (named,))


def opaque(name: str) -> Type:
    return Type("opaque", name)


def param(name: str) -> Type:
    return Type("param", name)


def is_optional(given: Type) -> bool:
    return given.kind == "opaque" and given.name == "optional_type"


def unwrapped(given: Type) -> tuple[Type, bool]:
    return (given.params[0], True) if is_optional(given) else (given, False)


def is_dynamic(given: Type) -> bool:
    return given.kind in ("dyn", "error")


def contains_dynamic(given: Type) -> bool:
    return given.kind in ("dyn", "error", "param") or any(map(contains_dynamic, given.params))


def equivalent(a: Type, b: Type) -> bool:
    """Return whether two types have the same structure; any two type parameters count as equal."""
    if a.kind == "param" and b.kind == "param":
        return True
    if a.kind != b.kind or a.name != b.name or len(a.params) != len(b.params):
        return False
    return all(map(equivalent, a.params, b.params))


class Unifier:
    """Unifier of types: records the type that each type parameter stands for. A failed attempt changes nothing."""

    def __init__(self) -> None:
        self.known: dict[str, Type] = {}
        self.made = 0

    def fresh(self) -> Type:
        self.made += 1
        return param(f"_var{self.made - 1}")

    def instantiate(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Return the same types with fresh type parameters."""
        renamed: dict[str, Type] = {}
        return tuple(self._renamed(given, renamed) for given in types)

    def _renamed(self, given: Type, renamed: dict[str, Type]) -> Type:
        if given.kind == "param":
            if given.name not in renamed:
                renamed[given.name] = self.fresh()
            return renamed[given.name]
        if not given.params:
            return given
        return Type(given.kind, given.name, tuple(self._renamed(p, renamed) for p in given.params), given.declared)

    def resolve(self, given: Type, *, final: bool = False) -> Type:
        """Replace parameters by the types that they stand for. With `final`, unbound parameters become dyn."""
        if given.kind == "param":
            meaning = self.known.get(given.name)
            if meaning is not None:
                return self.resolve(meaning, final=final)
            return DYN if final else given
        if not given.params:
            return given
        params = tuple(self.resolve(p, final=final) for p in given.params)
        same = all(a is b for a, b in zip(params, given.params, strict=True))
        return given if same else Type(given.kind, given.name, params, given.declared)

    def assignable(self, given: Type, wanted: Type) -> bool:
        return self.all_assignable((given,), (wanted,))

    def all_assignable(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        before = self.known.copy()
        if self._all_fit(given, wanted):
            return True
        self.known = before
        return False

    def _all_fit(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        return len(given) == len(wanted) and all(map(self._fits, given, wanted))

    def _fits(self, a: Type, b: Type) -> bool:
        if b.kind == "param":
            fits, had_meaning = self._stands_for(a, b)
            if fits or had_meaning:
                return fits
        if a.kind == "param":
            return self._stands_for(b, a)[0]
        if is_dynamic(a) or is_dynamic(b):
            return True
        if a.kind == "null":
            return b.kind == "null" or b.kind in _NULLABLE
        if b.kind == "null":
            return a.kind in _NULLABLE
        if a.kind == "type":
            return b.kind == "type"
        return a.kind == b.kind and a.name == b.name and self._all_fit(a.params, b.params)

    def _stands_for(self, meaning: Type, parameter: Type) -> tuple[bool, bool]:
        """Return whether the parameter can stand for this type, and whether it was bound before."""
        if meaning == parameter:
            return True, True
        known = self.known.get(parameter.name)
        if known is not None:
            if meaning == known:
                return True, True
            if not self._fits(meaning, known):
                return False, True
            wider = more_general(meaning, known)
            if not self._occurs(parameter, wider):
                self.known[parameter.name] = wider
            return True, True
        if self._occurs(parameter, meaning):
            return False, False
        self.known[parameter.name] = meaning
        return True, False

    def _occurs(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return True
        if within.kind == "param":
            meaning = self.known.get(within.name)
            return meaning is not None and self._occurs(parameter, meaning)
        return any(self._occurs(parameter, inner) for inner in within.params)


def more_general(a: Type, b: Type) -> Type:
    return a if _no_more_specific(a, b) else b


def _no_more_specific(a: Type, b: Type) -> bool:
    if a.kind in ("dyn", "param"):
        return True
    if b.kind in ("dyn", "param") or a.kind != b.kind or a.name != b.name:
        return False
    if a.kind == "type":
        return True
    return len(a.params) == len(b.params) and all(map(_no_more_specific, a.params, b.params))
