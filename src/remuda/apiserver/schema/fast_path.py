"""Fast path: one pass that sets the defaults of an object and returns whether the object is entirely valid.

Most objects are valid, so this pass determines the cost of a write. `True` means that pruning would remove nothing and
validation would find no error; the object then has its defaults, and the nulls that its schema does not allow are
removed. `False` means nothing: the full validation in `validate.py` finds the reason. So this module handles no error
messages, paths or counts.

A check is compiled once per schema node and kept on the node, so shared types compile once and cycles end. A scalar
without constraints compiles to its Python type, which its parent compares without a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from remuda.apiserver.schema import facts
from remuda.apiserver.schema.coerce import clone
from remuda.apiserver.schema.decode import integer_range
from remuda.apiserver.schema.embedded import resource_errors
from remuda.apiserver.schema.formats import matcher, string_format
from remuda.apiserver.schema.validate import Validation, fits_type
from remuda.apiserver.schema.wire import MICRO_TIME, is_bytes, is_micro_time, is_time
from remuda.kube.patterns import BadPattern
from remuda.kube.schema import UNSET, Schema

Check = Callable[[Any], bool]
_Filler = Callable[[], None]

_PLAIN: dict[str, type] = {"string": str, "boolean": bool}
_INT_OR_STRING_CLAUSES = ({"type": "integer"}, {"type": "string"})


def compile_check(schema: Schema, native: bool = False) -> Check:
    """Return the check of a whole object. Compile every node reachable from it, each only once."""
    waiting: list[_Filler] = []
    found = _compile(schema, native, waiting)
    while waiting:
        waiting.pop()()
    return found if not isinstance(found, type) else _of_type(found)


def _compile(schema: Schema, native: bool, waiting: list[_Filler]) -> Check | type:
    native = native or bool(schema.ref)
    slot = facts.QUICK_NATIVE if native else facts.QUICK_CUSTOM
    known: Check | type | None = schema.__dict__.get(slot)
    if known is None:
        known = _build(schema, native, waiting)
        schema.__dict__[slot] = known
    return known


def _build(schema: Schema, native: bool, waiting: list[_Filler]) -> Check | type:
    if schema.int_or_string:
        check: Check | type = _int_or_string(native)
    elif schema.type == "object" or schema.properties or schema.additional is not None:
        check = _object(schema, native, waiting)
    elif schema.type == "array":
        check = _array(schema, native, waiting)
    elif schema.type in ("integer", "number"):
        check = _number(schema, native)
    elif schema.type:
        check = _text(schema, native) if schema.type == "string" else _PLAIN[schema.type]
    else:
        check = _anything(schema)
    if not native:
        check = _with_extras(check, _extras(schema))
        if schema.nullable and not schema.enum:
            return _nullable(check)
    elif schema.overlay is not None:
        check = _with_extras(check, [_passes(schema.overlay)])
    return check


def _of_type(kind: type) -> Check:
    return lambda value: type(value) is kind


def _nullable(check: Check | type) -> Check:
    inner = _of_type(check) if isinstance(check, type) else check
    return lambda value: value is None or inner(value)


def _with_extras(check: Check | type, extras: list[Check]) -> Check | type:
    if not extras:
        return check
    inner = _of_type(check) if isinstance(check, type) else check
    if len(extras) == 1:
        only = extras[0]
        return lambda value: inner(value) and only(value)
    return lambda value: inner(value) and all(extra(value) for extra in extras)


def _passes(schema: Schema) -> Check:
    return lambda value: not Validation().run(schema, value)


def _extras(schema: Schema) -> list[Check]:
    """Return the rare checks, which the full validation or its functions perform."""
    extras: list[Check] = []
    if schema.enum and schema.type != "string":
        extras.append(_passes(Schema(enum=schema.enum)))
    if schema.embedded_resource:
        extras.append(lambda value: not resource_errors(value, ""))
    any_of = () if schema.int_or_string and schema.any_of == _INT_OR_STRING_CLAUSES else schema.any_of
    if any_of or schema.one_of or schema.all_of or schema.not_ is not None:
        extras.append(_passes(Schema(any_of=any_of, one_of=schema.one_of, all_of=schema.all_of, not_=schema.not_)))
    if schema.int_or_string and _has_scalar_limits(schema):
        extras.append(_passes(schema))
    if schema.overlay is not None:
        extras.append(_passes(schema.overlay))
    return extras


def _has_scalar_limits(schema: Schema) -> bool:
    limits = (schema.minimum, schema.maximum, schema.multiple_of, schema.min_length, schema.max_length)
    return bool(schema.pattern or schema.format) or any(limit is not None for limit in limits)


def _anything(schema: Schema) -> Check:
    """Return the check of a node without a type. Only `preserve_unknown` permits fields; full validation checks the
    limits.
    """
    if schema.preserve_unknown and schema.items is None and not _has_scalar_limits(schema) and not schema.required:
        return lambda value: value is not None
    plain = not _has_scalar_limits(schema)
    return lambda value: plain and value is not None and type(value) not in (dict, list)


def _int_or_string(native: bool) -> Check:
    low, high = integer_range("int32" if native else "int64")
    return lambda value: type(value) is str or (type(value) is int and low <= value <= high)


def _number(schema: Schema, native: bool) -> Check:
    if schema.type == "number":
        kinds: tuple[type, ...] = (int, float)
        low: float = facts.INT64_MIN
        high: float = facts.INT64_MAX
        if schema.format == "float" and not native:
            low, high = -facts.FLOAT32_MAX, facts.FLOAT32_MAX
    else:
        kinds = (int,)
        low, high = integer_range(schema.format)
    if native:
        return lambda value: type(value) in kinds and (type(value) is float or low <= value <= high)
    limits = (schema.minimum, schema.maximum, schema.multiple_of)
    if any(limit is not None and not fits_type(schema, limit) for limit in limits):
        return lambda value: False  # full validation reports the error
    if schema.minimum is not None and not schema.exclusive_minimum:
        low = max(low, schema.minimum)
    if schema.maximum is not None and not schema.exclusive_maximum:
        high = min(high, schema.maximum)
    if schema.exclusive_minimum or schema.exclusive_maximum or schema.multiple_of is not None:
        exactly = _passes(
            Schema(
                minimum=schema.minimum,
                maximum=schema.maximum,
                multiple_of=schema.multiple_of,
                exclusive_minimum=schema.exclusive_minimum,
                exclusive_maximum=schema.exclusive_maximum,
            )
        )
        return lambda value: type(value) in kinds and low <= value <= high and exactly(value)
    if kinds == (int,):
        return lambda value: type(value) is int and low <= value <= high
    unbounded = schema.minimum is None and schema.maximum is None and schema.format != "float"
    return lambda value: type(value) in kinds and ((unbounded and type(value) is float) or low <= value <= high)


def _text(schema: Schema, native: bool) -> Check | type:
    if native:
        moment = is_micro_time if schema.ref == MICRO_TIME else is_time
        special = {"date-time": moment, "byte": is_bytes}.get(schema.format)
        return str if special is None else _text_passing(special)
    shortest, longest = schema.min_length or 0, schema.max_length
    tests: list[Check] = []
    if schema.enum:
        tests.append(frozenset(choice for choice in schema.enum if isinstance(choice, str)).__contains__)
    if schema.pattern:
        tests.append(_pattern(schema.pattern))
    if (format_ := string_format(schema.format)) is not None:
        tests.append(format_)
    if not tests:
        return str if not shortest and longest is None else _text_of_length(shortest, longest)
    test = tests[0] if len(tests) == 1 else _all_of(tests)
    if longest is not None:
        return lambda value: type(value) is str and shortest <= len(value) <= longest and test(value)
    if shortest:
        return lambda value: type(value) is str and len(value) >= shortest and test(value)
    return _text_passing(test)


def _text_of_length(shortest: int, longest: int | None) -> Check:
    if longest is None:
        return lambda value: type(value) is str and len(value) >= shortest
    return lambda value: type(value) is str and shortest <= len(value) <= longest


def _text_passing(test: Check) -> Check:
    return lambda value: type(value) is str and test(value)


def _all_of(tests: list[Check]) -> Check:
    return lambda value: all(test(value) for test in tests)


def _pattern(pattern: str) -> Check:
    try:
        return matcher(pattern)
    except BadPattern:
        return lambda value: False


def _array(schema: Schema, native: bool, waiting: list[_Filler]) -> Check:
    if schema.items is None:
        keep = schema.preserve_unknown
        return lambda value: type(value) is list and (keep or not any(type(x) in (dict, list) for x in value))
    sized = [] if native else _list_limits(schema)
    slot: list[Callable[[Iterable[Any]], bool]] = []

    def fill() -> None:
        item = _compile(schema.items or Schema(), native, waiting)
        slot.append(_every(item))

    waiting.append(fill)
    if schema.preserve_unknown and not native:
        # The items keep their unknown fields as well, which no item's own check permits.
        sized.append(lambda value: not any(type(x) in (dict, list) for x in value))

    most = math.inf if native or schema.max_items is None else schema.max_items

    def check(value: Any) -> bool:
        # checked before the items, so that an oversized list costs nothing
        if type(value) is not list or len(value) > most:
            return False
        if value and not slot[0](value):
            return False
        return all(limit(value) for limit in sized) if sized else True

    return check


def _every(item: Check | type) -> Callable[[Iterable[Any]], bool]:
    if isinstance(item, type):
        allowed = frozenset([item])
        return lambda values: allowed.issuperset(map(type, values))
    test = item
    return lambda values: all(map(test, values))


def _list_limits(schema: Schema) -> list[Check]:
    limits: list[Check] = []
    fewest, most = schema.min_items or 0, schema.max_items
    if fewest or most is not None:
        limits.append(lambda value: fewest <= len(value) and (most is None or len(value) <= most))
    if schema.list_type == "map":
        limits.append(_unique_keys(schema.list_map_keys))
    elif schema.list_type == "set" or schema.unique_items:
        limits.append(lambda value: len(value) < 2 or facts.is_unique(value))
    return limits


def _unique_keys(keys: tuple[str, ...]) -> Check:
    """Return whether keys are unique. Python treats 1 and true as equal; then full validation decides."""
    if len(keys) == 1:
        key = keys[0]
        return lambda value: len(value) < 2 or len({item.get(key) for item in value}) == len(value)
    return lambda value: len(value) < 2 or len({tuple([item.get(k) for k in keys]) for item in value}) == len(value)


def _object(schema: Schema, native: bool, waiting: list[_Filler]) -> Check:
    if schema.properties or schema.additional is None:
        return _struct(schema, native, waiting)
    return _map(schema, native, waiting)


def _map(schema: Schema, native: bool, waiting: list[_Filler]) -> Check:
    limits = [] if native else _object_limits(schema)
    keeps_nulls = native or not facts.describes(schema.additional) or (schema.additional or Schema()).nullable
    slot: list[Callable[[Iterable[Any]], bool]] = []

    def fill() -> None:
        slot.append(_every(_compile(schema.additional or Schema(), native, waiting)))

    waiting.append(fill)
    most = math.inf if native or schema.max_properties is None else schema.max_properties

    def check(value: Any) -> bool:
        if type(value) is not dict or len(value) > most:
            return False
        if value and not slot[0](value.values()):
            if keeps_nulls or None not in value.values():
                return False
            _drop_nulls(value, value.keys())
            return check(value)
        return all(limit(value) for limit in limits) if limits else True

    if schema.additional_forbidden:
        limits.append(lambda value: not value)
    return check


def _struct(schema: Schema, native: bool, waiting: list[_Filler]) -> Check:
    plain: dict[str, type] = {}
    checks: dict[str, Check] = {}
    plain_type, check_of = plain.get, checks.get
    properties = schema.properties
    defaults = _defaults(schema, native)
    required = () if native else schema.required
    limits = [] if native else _object_limits(schema)
    keep = schema.preserve_unknown
    additional = schema.additional
    droppable = frozenset(name for name, known in properties.items() if native or not known.nullable)

    def fill() -> None:
        for name, known in properties.items():
            found = _compile(known, native, waiting)
            if isinstance(found, type):
                plain[name] = found
            else:
                checks[name] = found

    waiting.append(fill)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, default, replaces_empty in defaults:
            if name not in value or (replaces_empty and value[name] == ""):
                value[name] = clone(default)
        for name, item in value.items():
            if plain_type(name) is type(item):
                continue
            test = check_of(name)
            if test is not None and test(item):
                continue
            if item is None and name in droppable:
                _drop_nulls(value, droppable)
                return check(value)
            if test is None and keep and name not in plain and additional is None:
                continue
            return False
        for name in required:
            if name not in value:
                return False
        return all(limit(value) for limit in limits) if limits else True

    return check


def _drop_nulls(value: dict[str, Any], droppable: Any) -> None:
    for name in [name for name, item in value.items() if item is None and name in droppable]:
        del value[name]


def _defaults(schema: Schema, native: bool) -> tuple[tuple[str, Any, bool], ...]:
    return tuple(
        (name, known.default, native and isinstance(known.default, str))
        for name, known in schema.properties.items()
        if known.default is not UNSET
    )


def _object_limits(schema: Schema) -> list[Check]:
    fewest, most = schema.min_properties or 0, schema.max_properties
    if not fewest and most is None:
        return []
    return [lambda value: fewest <= len(value) and (most is None or len(value) <= most)]
