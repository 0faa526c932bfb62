"""Messages of schema validation, word for word as kube-apiserver prints them.

An error names its location twice: in the field path of the cause, and inside the message relative to the root of the
schema. Errors of oneOf, anyOf, allOf and not, and numbers out of range, have no field: the server prints `<nil>`.
Messages print values and name types as Go does, where people may grep for them. The values are decoded JSON: dict,
list, str, bool, int, float or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.kube import errors
from remuda.kube.errors import FieldError
from remuda.kube.go_text import quoted

NO_FIELD = "<nil>"


class Complaints:
    """Builder of field errors below one root: "" for a whole object, `status` for a status alone."""

    __slots__ = ("root",)

    def __init__(self, root: str = "") -> None:
        self.root = root

    def _field(self, place: str) -> str:
        name = place.removeprefix(".")
        if not name:
            return self.root or NO_FIELD
        return f"{self.root}.{name}" if self.root else name

    def _invalid(self, place: str, bad: Any, sentence: str) -> FieldError:
        return FieldError(errors.INVALID, self._field(place), _as_printed(bad), f"{place} in body {sentence}")

    def composite(self, sentence: str) -> FieldError:
        return FieldError(errors.INVALID, self.root or NO_FIELD, "", sentence)

    def wrong_type(self, place: str, wanted: str, given: str) -> FieldError:
        detail = f"{place} in body must be of type {wanted}: {quoted(given)}"
        return FieldError(errors.TYPE_INVALID, self._field(place), given, detail)

    def required(self, place: str) -> FieldError:
        return errors.required(self._field(place))

    def not_in_enum(self, place: str, bad: Any, allowed: Sequence[Any]) -> FieldError:
        words = (v if isinstance(v, str) else json_text(v) for v in allowed)
        detail = "supported values: " + ", ".join(quoted(word) for word in words)
        return FieldError(errors.NOT_SUPPORTED, self._field(place), _as_printed(bad), detail)

    def too_long(self, place: str, limit: int) -> FieldError:
        return errors.too_long(self._field(place), limit)

    def too_short(self, place: str, bad: str, limit: int) -> FieldError:
        return self._invalid(place, bad, f"should be at least {limit} chars long")

    def no_match(self, place: str, bad: str, pattern: str) -> FieldError:
        return self._invalid(place, bad, f"should match '{pattern}'")

    def bad_format(self, place: str, bad: str, format_: str) -> FieldError:
        return self.wrong_type(place, format_, bad)

    def too_many(self, place: str, count: int, limit: int) -> FieldError:
        return errors.too_many(self._field(place), count, limit)

    def too_few_items(self, place: str, count: int, limit: int) -> FieldError:
        return self._invalid(place, count, f"should have at least {limit} items")

    def too_few_properties(self, place: str, count: int, limit: int) -> FieldError:
        return self._invalid(place, count, f"should have at least {limit} properties")

    def duplicates(self, place: str) -> FieldError:
        return self._invalid(place, "", "shouldn't contain duplicates")

    def forbidden_property(self, place: str, key: str) -> FieldError:
        detail = f"{place}.{key} in body is a forbidden property"
        return FieldError(errors.INVALID, self._field(place), key, detail)

    def above(self, place: str, bad: float, limit: float, exclusive: bool) -> FieldError:
        return self._invalid(place, bad, f"should be less than {'' if exclusive else 'or equal to '}{number(limit)}")

    def below(self, place: str, bad: float, limit: float, exclusive: bool) -> FieldError:
        return self._invalid(place, bad, f"should be greater than {'' if exclusive else 'or equal to '}{number(limit)}")

    def bad_factor(self, place: str, factor: float) -> FieldError:
        detail = f"factor MultipleOf declared for {place} must be positive: {number(factor)}"
        return FieldError(errors.INVALID, self._field(place), _as_printed(factor), detail)

    def not_multiple(self, place: str, bad: float, factor: float) -> FieldError:
        return self._invalid(place, bad, f"should be a multiple of {number(factor)}")

    def out_of_range(self, place: str, what: str, kind: str, format_: str) -> FieldError:
        form = f"with format {format_}" if format_ else "(default format)"
        return self.composite(f"{what} value must be of type {kind} {form} in {place}")

    def none_of_any(self, place: str) -> FieldError:
        return self.composite(f"{quoted(place)} must validate at least one schema (anyOf)")

    def not_one(self, place: str, valid: int) -> FieldError:
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        return self.composite(f"{quoted(place)} must validate one and only one schema (oneOf). {found}")

    def not_all(self, place: str, valid: int) -> FieldError:
        none = "" if valid else ". None validated"
        return self.composite(f"{quoted(place)} must validate all the schemas (allOf){none}")

    def forbidden_match(self, place: str) -> FieldError:
        return self.composite(f"{quoted(place)} must not validate the schema (not)")


def _as_printed(bad: Any) -> Any:
    """Return an integer for a float without a fraction, as Go prints it."""
    return int(bad) if isinstance(bad, float) and abs(bad) < 1e21 and bad.is_integer() else bad


def number(value: int | float) -> str:
    """Print a number as Go's %v prints an int64 or float64."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, exponent_mark, exponent = text.partition("e")
    if not exponent_mark:
        return text
    return f"{mantissa.removesuffix('.0')}e{exponent}"


def json_text(value: Any) -> str:
    """Encode a value as Go's encoding/json does: sorted keys, no spaces."""
    return msgspec.json.encode(value, order="sorted").decode()


def schema_type(value: Any) -> str:
    """Return the JSON schema type of a value."""
    return _SCHEMA_TYPES[type(value)]


_SCHEMA_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
