"""Full validation: reports every error in a value, in upstream's order and wording.

It runs only if the fast path (`fast_path.py`) found the object not entirely valid, so it favours fidelity over speed.
Each node yields its errors and a *match count*: the number of checks that passed. anyOf and oneOf use it to choose the
alternative whose errors are shown. The raw clauses of anyOf, oneOf, allOf and not are converted once per node into
schemas that only check values. With an old object, errors in unchanged subtrees are dropped where upstream drops them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from remuda.apiserver.schema import facts
from remuda.apiserver.schema.complaints import Complaints, schema_type
from remuda.apiserver.schema.formats import matcher, string_format
from remuda.apiserver.schema.ratchet import Correlation
from remuda.apiserver.schema.read import read_schema
from remuda.kube.errors import FieldError
from remuda.kube.patterns import BadPattern
from remuda.kube.schema import Schema

ERROR_LIMIT = 128  # per object; one bad list may have thousands of errors

_GO_FORMAT = {"integer": "int64", "number": "float64"}
_TYPE_META = ("apiVersion", "kind")
_MANY = 100  # values of a list or a map

_T = TypeVar("_T")


class Validation:
    """Validation of one value."""

    __slots__ = ("_counts", "say")

    def __init__(self, root: str = "") -> None:
        self.say = Complaints(root)
        self._counts = False  # whether match counts are needed: only inside a junctor

    def run(self, schema: Schema, value: Any, correlation: Correlation | None = None) -> list[FieldError]:
        found: list[FieldError] = []
        self._checks(schema, value, "", correlation, found)
        if found and correlation is not None and self.say.root and correlation.unchanged():
            return []  # the status did not change; a whole object always has changed metadata
        return found[:ERROR_LIMIT]

    def node(self, schema: Schema, value: Any, place: str, was: Correlation | None, found: list[FieldError]) -> int:
        mine: list[FieldError] = []
        count = self._checks(schema, value, place, was, mine)
        if mine and (was is None or not was.unchanged()):
            add(found, mine)
        return count

    def _checks(self, schema: Schema, value: Any, place: str, was: Correlation | None, found: list[FieldError]) -> int:
        count = self._type(schema, value, place, found)
        if value is not None:
            count += 3  # as upstream counts: the junctors, their place in the chain, and the end of the chain
            count += self._junctors(schema, value, place, found)
            mine: list[FieldError] = []
            count += self._kind(schema, value, place, was, mine)
            add(found, mine)
        elif schema.enum:
            found.append(self.say.not_in_enum(place, value, schema.enum))
        if schema.overlay is not None:
            self.node(schema.overlay, value, place, was, found)
        return count

    def _kind(self, schema: Schema, value: Any, place: str, was: Correlation | None, found: list[FieldError]) -> int:
        count = 1  # enum
        if isinstance(value, str):
            count += self._string(schema, value, place, found)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            count += 2
            self._number(schema, as_go_reads(value), place, found)
        elif isinstance(value, list):
            count += 2 + self._items(schema, value, place, was, found)
        if schema.enum and not _in_enum(value, schema.enum):
            found.append(self.say.not_in_enum(place, value, schema.enum))
        if isinstance(value, dict):
            count += 1 + self._fields(schema, value, place, was, found)
        return count

    def _type(self, schema: Schema, value: Any, place: str, found: list[FieldError]) -> int:
        types, format_ = facts.types_of(schema), facts.enforced_format(schema)
        if value is None:
            if types and not schema.nullable:
                found.append(self.say.wrong_type(place, ",".join(types), "null"))
                return 0
            return 1
        if not types and not format_:
            return 0
        wanted, given = _type_mismatch(types, format_, value)
        if wanted:
            found.append(self.say.wrong_type(place, wanted, given))
            return 1
        return 2

    def _string(self, schema: Schema, value: str, place: str, found: list[FieldError]) -> int:
        if schema.max_length is not None and len(value) > schema.max_length:
            found.append(self.say.too_long(place, schema.max_length))
        elif schema.min_length is not None and len(value) < schema.min_length:
            found.append(self.say.too_short(place, value, schema.min_length))
        elif schema.pattern and not _matches(schema.pattern, value):
            found.append(self.say.no_match(place, value, schema.pattern))
        if not facts.enforced_format(schema):
            return 1
        check = string_format(schema.format)
        if check is not None and not check(value):
            found.append(self.say.bad_format(place, value, schema.format))
        return 2 if check is not None else 1

    def _number(self, schema: Schema, value: int | float, place: str, found: list[FieldError]) -> None:
        self._fit(schema, "Checked", value, place, found)
        if schema.multiple_of is not None:
            factor = self._limit(schema, "MultipleOf", schema.multiple_of, value, place, found)
            if factor <= 0:
                found.append(self.say.bad_factor(place, factor))
            elif not _is_multiple(value, factor):
                found.append(self.say.not_multiple(place, value, factor))
        if schema.minimum is not None:
            low = self._limit(schema, "Minimum boundary", schema.minimum, value, place, found)
            if value <= low if schema.exclusive_minimum else value < low:
                found.append(self.say.below(place, value, low, schema.exclusive_minimum))
        if schema.maximum is not None:
            high = self._limit(schema, "Maximum boundary", schema.maximum, value, place, found)
            if value >= high if schema.exclusive_maximum else value > high:
                found.append(self.say.above(place, value, high, schema.exclusive_maximum))

    def _fit(self, schema: Schema, what: str, number: int | float, place: str, found: list[FieldError]) -> bool:
        fits = schema.int_or_string or fits_type(schema, number)
        if not fits:
            found.append(self.say.out_of_range(place, what, schema.type, facts.enforced_format(schema)))
        return fits

    def _limit(
        self, schema: Schema, what: str, limit: int | float, value: int | float, place: str, found: list[FieldError]
    ) -> int | float:
        """Return a limit as upstream compares it: truncated for integers, unless it does not fit the type."""
        fits = self._fit(schema, what, limit, place, found)
        return math.trunc(limit) if fits and isinstance(value, int) else limit

    def _items(
        self, schema: Schema, value: list[Any], place: str, was: Correlation | None, found: list[FieldError]
    ) -> int:
        count = 0
        if schema.items is not None:
            is_fine = self._quick_check(schema.items, len(value))
            for index, item in enumerate(_first(value, schema.max_items)):
                if is_fine is not None and is_fine(item):
                    continue
                old = was.item(index) if was is not None else None
                count += self.node(schema.items, item, f"{place}[{index}]", old, found)
                if len(found) > ERROR_LIMIT:
                    break
        if schema.min_items is not None and len(value) < schema.min_items:
            found.append(self.say.too_few_items(place, len(value), schema.min_items))
        if schema.max_items is not None and len(value) > schema.max_items:
            found.append(self.say.too_many(place, len(value), schema.max_items))
        if schema.unique_items and not facts.is_unique(value):
            found.append(self.say.duplicates(place))
        return count

    def _fields(
        self, schema: Schema, value: dict[str, Any], place: str, was: Correlation | None, found: list[FieldError]
    ) -> int:
        if schema.min_properties is not None and len(value) < schema.min_properties:
            found.append(self.say.too_few_properties(place, len(value), schema.min_properties))
        if schema.max_properties is not None and len(value) > schema.max_properties:
            found.append(self.say.too_many(place, len(value), schema.max_properties))
        count = 0
        is_fine = self._quick_check(schema.additional, len(value)) if schema.additional is not None else None
        for name, item in _first(value.items(), schema.max_properties):
            known = schema.properties.get(name)
            if known is not None:
                # apiVersion and kind of both objects are already equal here.
                old = None if was is None or (not place and name in _TYPE_META) else was.field(name)
                count += self.node(known, item, f"{place}.{name}" if place else name, old, found)
            elif schema.additional_forbidden:
                found.append(self.say.forbidden_property(place, name))
            elif schema.additional is not None:
                if is_fine is not None and is_fine(item):
                    continue
                old = was.field(name) if was is not None else None
                count += self.node(schema.additional, item, f"{place}.{name}", old, found)
            if len(found) > ERROR_LIMIT:
                break
        found.extend(self.say.required(f"{place}.{name}") for name in schema.required if name not in value)
        return count

    def _junctors(self, schema: Schema, value: Any, place: str, found: list[FieldError]) -> int:
        """Validate junctors. Only the node as a whole is compared with its old value, not the values inside
        a junctor.
        """
        if not (schema.any_of or schema.one_of or schema.all_of or schema.not_ is not None):
            return 0
        branches = alternatives(schema)
        count = self._any_of(branches.any_of, value, place, found) if branches.any_of else 0
        count += self._one_of(branches.one_of, value, place, found) if branches.one_of else 0
        count += self._all_of(branches.all_of, value, place, found) if branches.all_of else 0
        if branches.not_ is not None and not self._attempt(branches.not_, value, place)[0]:
            add(found, [self.say.forbidden_match(place)])
        return count

    def _quick_check(self, schema: Schema, count: int) -> Callable[[Any], bool] | None:
        """Return the compiled check, which accepts valid values in a fifth of the time, if there are many values and it
        exists. Usually the error is in another part of the object.
        """
        if self._counts or count < _MANY:
            return None
        found = schema.__dict__.get(facts.QUICK_NATIVE if schema.ref else facts.QUICK_CUSTOM)
        return None if isinstance(found, type) else found

    def _attempt(self, schema: Schema, value: Any, place: str) -> tuple[list[FieldError], int]:
        mine: list[FieldError] = []
        before, self._counts = self._counts, True
        try:
            return mine, self._checks(schema, value, place, None, mine)
        finally:
            self._counts = before

    def _any_of(self, branches: tuple[Schema, ...], value: Any, place: str, found: list[FieldError]) -> int:
        best: tuple[list[FieldError], int] | None = None
        for branch in branches:
            attempt = self._attempt(branch, value, place)
            if not attempt[0]:
                return attempt[1]
            if best is None or attempt[1] > best[1]:
                best = attempt
        add(found, [self.say.none_of_any(place), *(best[0] if best else ())])
        return best[1] if best else 0

    def _one_of(self, branches: tuple[Schema, ...], value: Any, place: str, found: list[FieldError]) -> int:
        attempts = [self._attempt(branch, value, place) for branch in branches]
        valid = [count for complaints, count in attempts if not complaints]
        if len(valid) == 1:
            return valid[0]
        add(found, [self.say.not_one(place, len(valid))])
        if valid:
            return 0
        complaints, count = max(attempts, key=lambda attempt: attempt[1])
        add(found, complaints)
        return count

    def _all_of(self, branches: tuple[Schema, ...], value: Any, place: str, found: list[FieldError]) -> int:
        attempts = [self._attempt(branch, value, place) for branch in branches]
        for complaints, _ in attempts:
            add(found, complaints)
        valid = sum(1 for complaints, _ in attempts if not complaints)
        if valid != len(attempts):
            add(found, [self.say.not_all(place, valid)])
        return sum(count for _, count in attempts)


class Alternatives(NamedTuple):
    any_of: tuple[Schema, ...]
    one_of: tuple[Schema, ...]
    all_of: tuple[Schema, ...]
    not_: Schema | None


def alternatives(schema: Schema) -> Alternatives:
    """Return the alternatives. They are stored on the node, so that they live as long as the node."""
    known: Alternatives | None = schema.__dict__.get("_alternatives")
    if known is None:
        known = Alternatives(
            tuple(read_schema(clause) for clause in schema.any_of),
            tuple(read_schema(clause) for clause in schema.one_of),
            tuple(read_schema(clause) for clause in schema.all_of),
            read_schema(schema.not_) if schema.not_ is not None else None,
        )
        schema.__dict__["_alternatives"] = known
    return known


def add(found: list[FieldError], more: list[FieldError]) -> None:
    """Add errors. Alternatives often produce the same error, so duplicates are dropped."""
    if not found:
        found.extend(more)
        return
    for error in more:
        if error not in found:
            found.append(error)


def as_go_reads(value: Any) -> Any:
    """Return a float for an integer beyond 64 bits, as Go reads it."""
    if type(value) is not int or facts.INT64_MIN <= value <= facts.INT64_MAX:
        return value
    return float(value) if abs(value) < 1 << 1023 else math.inf if value > 0 else -math.inf


def _first(values: Collection[_T], most: int | None) -> Iterable[_T]:
    """Return the values to validate. If there are more than twice the allowed number, return only the allowed number.
    The object is rejected in any case, and each value costs 5 to 30 µs.
    """
    return values if most is None or len(values) <= 2 * most else islice(values, most)


def _type_mismatch(types: tuple[str, ...], format_: str, value: Any) -> tuple[str, str]:
    """Return the expected type and the given one, or two empty strings if the value fits."""
    value = as_go_reads(value)
    given = schema_type(value)
    fits = (
        given in types
        or (given == "number" and "integer" in types and facts.is_integral(value))
        or (given == "integer" and "number" in types)
    )
    if fits:
        return "", ""
    if format_ and given not in ("string", "array"):
        go_format = _GO_FORMAT.get(given, "")
        return ("", "") if go_format == format_ else (format_, go_format)
    if not types:
        return "", ""
    return ",".join(types), given


def fits_type(schema: Schema, value: int | float) -> bool:
    if schema.type == "integer":
        if isinstance(value, float) and not facts.is_integral(value):
            return False
        if schema.format == "int32":
            return facts.INT32_MIN <= value <= facts.INT32_MAX
        return facts.INT64_MIN <= value <= facts.INT64_MAX
    if schema.type == "number" and schema.format == "float":
        return abs(value) <= facts.FLOAT32_MAX
    return True


def _is_multiple(value: int | float, factor: int | float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    ratio = value / factor if factor >= 1 else (1 / factor) * value
    return abs(ratio) <= facts.EXACT_IN_A_FLOAT and abs(ratio - round(ratio)) <= 1e-9 * max(1.0, abs(ratio))


def _matches(pattern: str, value: str) -> bool:
    try:
        return matcher(pattern)(value)
    except BadPattern:
        return False


def _in_enum(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Return whether the value is in the enum. Numbers compare by value (1 is 1.0), others strictly; null is never in
    an enum.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        mine = facts.identity(value)
        return any(facts.identity(choice) == mine for choice in allowed)
    return any(type(choice) in (int, float) and choice == value for choice in allowed)
