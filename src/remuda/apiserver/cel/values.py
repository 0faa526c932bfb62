"""Values that CEL has and JSON lacks, and operations on values: equality, order, type names, size.

JSON values are used unchanged (dict, list, str, int, float, bool, None), so a rule reads an object without copying it.

Invariants: `bool` is never an integer here, although it is one in Python. `Uint` is never an `int` in a type test.
Every value in an expression is a JSON value or an instance of a class below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.apiserver import ApiServerError

INT_MIN = -(1 << 63)
INT_MAX = (1 << 63) - 1
UINT_MAX = (1 << 64) - 1


class CelError(ApiServerError):
    """Failed evaluation of an expression; && and

    may still absorb it.
    """


class CostExceeded(ApiServerError):
    """Expression that exceeded its cost limit; no operator absorbs this error."""


NO_OVERLOAD = "no such overload"


class Uint(int):
    """Unsigned 64-bit integer: equal to the same int, but of another type."""

    __slots__ = ()


class Duration:
    """Duration in nanoseconds, within int64 as in Go."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return type(other) is Duration and other.ns == self.ns

    def __hash__(self) -> int:
        return hash(("duration", self.ns))

    def __repr__(self) -> str:
        return f"Duration({self.ns})"


class Timestamp:
    """Timestamp in nanoseconds since 1970 (years 1 to 9999), with its original offset from UTC."""

    __slots__ = ("ns", "offset")

    def __init__(self, ns: int, offset: int = 0) -> None:
        self.ns = ns
        self.offset = offset  # in seconds; only used when the timestamp is printed

    def __eq__(self, other: object) -> bool:
        return type(other) is Timestamp and other.ns == self.ns

    def __hash__(self) -> int:
        return hash(("timestamp", self.ns))

    def __repr__(self) -> str:
        return f"Timestamp({self.ns})"


class Optional:
    """Optional value; `NONE` is the only empty one."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if type(other) is not Optional or self is NONE or other is NONE:
            return self is other
        return equal(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "NONE" if self is NONE else f"Optional({self.value!r})"


NONE = Optional(None)


class Opaque:
    """Base of values that only library functions can inspect (URL, IP, quantity, ...). `type_name` is the result of
    `type()`.
    """

    __slots__ = ()
    type_name = ""

    @property
    def size(self) -> int:
        """Return the size of the value, for costs that depend on size."""
        return 1


class TypeValue:
    """Type as a value: the result of `type(x)`, and the meaning of `int`, `string`, ... as values."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return type(other) is TypeValue and other.name == self.name

    def __hash__(self) -> int:
        return hash(("type", self.name))

    def __repr__(self) -> str:
        return f"TypeValue({self.name})"


_TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
    TypeValue: "type",
}


def type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value)) or str(value.type_name)


NUMBERS = frozenset((int, Uint, float))


def equal(a: Any, b: Any) -> bool:
    """Compare two values as CEL's == does: only numbers are equal across types."""
    kind, other = type(a), type(b)
    if kind is list:
        return other is list and len(a) == len(b) and all(map(equal, a, b))
    if kind is dict:
        return other is dict and _equal_maps(a, b)
    if kind is other:
        return bool(a == b)
    return kind in NUMBERS and other in NUMBERS and bool(a == b)


_ABSENT = object()


def _equal_maps(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    for key, value in a.items():
        found = find(b, key, _ABSENT)
        if found is _ABSENT or not equal(value, found):
            return False
    return True


def find(mapping: dict[Any, Any], key: Any, default: Any) -> Any:
    """Look up a key as CEL does: 1, 1u and 1.0 are one key; true and 1 are two."""
    kind = type(key)
    if kind is str:
        return mapping.get(key, default)
    if kind is bool:
        return mapping.get(BoolKey(key), default)
    if kind in NUMBERS:
        return mapping.get(key, default)
    raise CelError(NO_OVERLOAD)


class BoolKey:
    """Bool as a map key: Python would treat True and False as 1 and 0."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is BoolKey and other.value is self.value

    def __hash__(self) -> int:
        return hash(("bool", self.value))


def to_key(value: Any) -> Any:
    """Return the form of a value that is used as a key in a map that an expression creates."""
    kind = type(value)
    if kind is bool:
        return BoolKey(value)
    if kind is str or kind in (int, Uint):
        return value
    raise CelError("unsupported key type: " + type_name(value))


def from_key(key: Any) -> Any:
    return key.value if type(key) is BoolKey else key


def compare(a: Any, b: Any) -> int:
    """Return -1, 0 or 1. Raise an error for values that have no order."""
    left, right = _orderable(a, b)
    return -1 if left < right else (1 if left > right else 0)


def _orderable(a: Any, b: Any) -> tuple[Any, Any]:
    kind, other = type(a), type(b)
    if kind in NUMBERS and other in NUMBERS:
        if a != a or b != b:
            raise CelError("NaN values cannot be ordered")
        return a, b
    if kind is other:
        if kind is str or kind is bytes or kind is bool:
            return a, b
        if kind is Timestamp or kind is Duration:
            return a.ns, b.ns
    raise CelError(NO_OVERLOAD)


# Types whose size counts as 1 in all costs.
_SIZED = frozenset((str, bytes, list, dict))


def size_of(value: Any) -> int:
    """Return the size that costs are based on: code points, bytes, items or entries; 1 for other types."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if isinstance(value, Opaque):
        return value.size
    if kind is Optional and value is not NONE:
        return size_of(value.value)
    return 1


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def checked_duration(ns: int) -> Duration:
    if INT_MIN <= ns <= INT_MAX:
        return Duration(ns)
    raise CelError("integer overflow")


_TIME_MIN = -62135596800 * 10**9
_TIME_MAX = 253402300799 * 10**9 + 999_999_999


def checked_timestamp(ns: int, offset: int = 0) -> Timestamp:
    if _TIME_MIN <= ns <= _TIME_MAX:
        return Timestamp(ns, offset)
    raise CelError("timestamp overflow")


Impl = Callable[..., Any]
