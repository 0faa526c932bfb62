"""Application of a schema to objects: defaulting, pruning and validation. `admit` runs all of them.

For most objects the fast path is enough. Otherwise the full steps run in upstream's order: types of built-in kinds,
nulls and defaults, pruning, schema validation, list uniqueness, embedded resources, CEL rules. Only defaulting and
pruning change the object, in place. No content of an object raises an exception; objects nested deeper than
`depth.MAX_DEPTH` are rejected as malformed.

A write is not rejected because of rules on values that it does not change, but upstream warns if such a rule fails.
Running all rules on every write would be wasteful, so the server remembers the revisions of objects that satisfy all
rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from remuda.apiserver.schema.coerce import coerce, prune
from remuda.apiserver.schema.decode import decode_error
from remuda.apiserver.schema.depth import TOO_DEEP, too_deep
from remuda.apiserver.schema.embedded import embedded_errors
from remuda.apiserver.schema.facts import identity
from remuda.apiserver.schema.fast_path import Check, compile_check
from remuda.apiserver.schema.ratchet import Correlation
from remuda.apiserver.schema.validate import Validation
from remuda.kube import errors
from remuda.kube.errors import TOO_LONG, TOO_MANY, FieldError
from remuda.kube.schema import Schema

Obj = dict[str, Any]


class RulesValidator(Protocol):
    """Compiled x-kubernetes-validations of one schema."""

    def validate(self, obj: Obj, old: Obj | None, path: str, warnings: list[str] | None = None) -> list[FieldError]: ...


class Prepared(NamedTuple):
    """Result of decoding: the pruned fields, and the error that makes the object unreadable (a 400)."""

    unknown: list[str]  # paths for `unknown field "…"`
    malformed: str
    schema_checked: bool = False  # until a change outside metadata, `validate` can find only failed rules


class Outcome(NamedTuple):
    unknown: list[str]
    malformed: str  # if not empty, decoding stopped here
    errors: list[FieldError]


_MOST_REMEMBERED = 1 << 13  # revisions per schema; a forgotten revision costs only time
_NO_PATHS: list[str] = []
_CLEAN = Prepared(_NO_PATHS, "", schema_checked=True)

# If the object has one of these errors, a rule could meet a value of the wrong type or size.
_BLOCKS_RULES = {errors.NOT_SUPPORTED, errors.REQUIRED, errors.TOO_LONG, errors.TOO_MANY, errors.TYPE_INVALID}
_RULES_SKIPPED = FieldError(
    errors.INVALID,
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class Structural:
    """Schema, compiled at its first use.

    `native`: a built-in kind. Values of a wrong type are malformed input, null means absent, and the kind's own code
    validates the values: `validate` finds no errors.
    """

    def __init__(
        self, schema: Schema, *, native: bool = False, kind: str = "", rules: RulesValidator | None = None
    ) -> None:
        self.schema = schema
        self.native = native
        self.rules = rules
        self._kind = kind
        self._check: Check | None = None
        self._blameless: dict[str, None] = {}  # revisions of objects that satisfy all rules, oldest first

    def is_fine(self, obj: Any) -> bool:
        """Set the defaults of the object. Return True if it has no unknown, malformed or invalid field
        (rules aside).
        """
        check = self._check
        if check is None:
            check = self._check = compile_check(self.schema, self.native)
        try:
            return check(obj)
        except RecursionError:
            return False  # only a cyclic schema follows an object that deep; `prepare` reports it
        except TypeError:
            return False  # an unhashable list-map key

    def admit(self, obj: Obj, old: Obj | None = None) -> Outcome:
        """Decode and validate in one call, for callers that do nothing in between."""
        if self.is_fine(obj):
            return Outcome(_NO_PATHS, "", self.rule_errors(obj, old))
        prepared = self._prepare_thoroughly(obj)
        if prepared.malformed:
            return Outcome(prepared.unknown, prepared.malformed, [])
        return Outcome(prepared.unknown, "", self.validate(obj, old))

    def prepare(self, obj: Obj) -> Prepared:
        """Decode: find malformed values, handle nulls, set defaults, prune unknown fields."""
        return _CLEAN if self.is_fine(obj) else self._prepare_thoroughly(obj)

    def _prepare_thoroughly(self, obj: Obj) -> Prepared:
        malformed = TOO_DEEP if too_deep(obj) else self.decode_error(obj)
        if malformed:
            return Prepared([], malformed)
        self.default(obj)
        return Prepared(self.prune(obj), "")

    def decode_error(self, obj: Any) -> str:
        """Return the error of Go's decoder for the first value of a wrong type in a built-in kind."""
        return decode_error(self.schema, obj, self.native, self._kind)

    def default(self, obj: Obj) -> None:
        coerce(self.schema, obj, self.native)

    def prune(self, obj: Obj) -> list[str]:
        removed = prune(self.schema, obj)
        if not self.native:
            removed.sort(key=lambda path: (not path.startswith("metadata."), path))
        return removed

    def validate(self, obj: Obj, old: Obj | None = None, warnings: list[str] | None = None) -> list[FieldError]:
        """Return all errors. For an update, omit errors in values that it does not change; add failed rules on such
        values to `warnings`.
        """
        if self.native:
            return []
        if self.is_fine(obj):
            return self.rule_errors(obj, old, warnings)
        was = Correlation(obj, old, self.schema) if old is not None else None
        found = Validation().run(self.schema, obj, was)
        found += embedded_errors(self.schema, obj)
        found += self._list_errors(obj, old)
        return self._with_rules(found, obj, old, warnings)

    def size_errors(self, obj: Obj, old: Obj | None = None) -> list[FieldError]:
        """Return the errors of lists and texts that exceed the schema's limits, before other code processes them."""
        if self.native or self.is_fine(obj):
            return []
        was = Correlation(obj, old, self.schema) if old is not None else None
        return [one for one in Validation().run(self.schema, obj, was) if one.kind in (TOO_MANY, TOO_LONG)]

    def validate_status(self, obj: Obj, old: Obj | None = None, warnings: list[str] | None = None) -> list[FieldError]:
        """Return the errors in a write to the status subresource. Only the rules check the rest of the object."""
        if self.native:
            return []
        if self.is_fine(obj):
            return self.rule_errors(obj, old, warnings)
        status = self.schema.properties.get("status")
        found: list[FieldError] = []
        if status is not None and "status" in obj:
            whole = Correlation(obj, old, self.schema) if old is not None else None
            found = Validation("status").run(status, obj["status"], whole.field("status") if whole else None)
        found += self._list_errors(obj, old)
        return self._with_rules(found, obj, old, warnings)

    def _list_errors(self, obj: Obj, old: Obj | None) -> list[FieldError]:
        found = list_errors(self.schema, obj)
        if found and old is not None and list_errors(self.schema, old):
            return []
        return found

    def _with_rules(
        self, found: list[FieldError], obj: Obj, old: Obj | None, warnings: list[str] | None
    ) -> list[FieldError]:
        if self.rules is None:
            return found
        if any(error.kind in _BLOCKS_RULES for error in found):
            return [*found, _RULES_SKIPPED]
        return found + self.rule_errors(obj, old, warnings)

    def rule_errors(self, obj: Obj, old: Obj | None = None, warnings: list[str] | None = None) -> list[FieldError]:
        """Return the errors from x-kubernetes-validations alone, for an object that is otherwise valid."""
        if self.rules is None:
            return []
        if warnings is not None and old is not None and old["metadata"]["resourceVersion"] in self._blameless:
            warnings = None
        return self.rules.validate(obj, old, "", warnings)

    def remember(self, revision: int, replaced: int | None = None) -> None:
        """Remember the revision of an object that had no errors and no warnings."""
        if self.rules is None:
            return
        if replaced is not None:
            self._blameless.pop(str(replaced), None)
        if len(self._blameless) >= _MOST_REMEMBERED:
            del self._blameless[next(iter(self._blameless))]
        self._blameless[str(revision)] = None


def list_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Check uniqueness in x-kubernetes-list-type set and map, for the whole object at once."""
    found: list[FieldError] = []
    _check_lists(schema, value, path, found)
    return found


def _check_lists(schema: Schema, value: Any, path: str, found: list[FieldError]) -> None:
    if schema.ref:
        return  # built-in kinds check their own lists
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(item, dict | list):
                continue
            known = schema.properties.get(name)
            if known is not None:
                _check_lists(known, item, f"{path}.{name}" if path else name, found)
            elif schema.additional is not None:
                _check_lists(schema.additional, item, f"{path}[{name}]", found)
    elif isinstance(value, list):
        if schema.list_type == "set":
            found.extend(errors.duplicate(f"{path}[{i}]", value[i]) for i in _repeated([identity(x) for x in value]))
        elif schema.list_type == "map":
            found.extend(_map_errors(schema.list_map_keys, value, path))
        if schema.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    _check_lists(schema.items, item, f"{path}[{index}]", found)


def _map_errors(keys: tuple[str, ...], items: list[Any], path: str) -> list[FieldError]:
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            return [errors.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    named = [{key: item[key] for key in keys if key in item} if item else {} for item in items]
    return [errors.duplicate(f"{path}[{i}]", named[i]) for i in _repeated([identity(name) for name in named])]


def _repeated(marks: list[Any]) -> list[int]:
    """Yield the second location of each value that occurs more than once."""
    times: dict[Any, int] = {}
    again: list[int] = []
    for index, mark in enumerate(marks):
        seen = times.get(mark, 0)
        if seen == 1:
            again.append(index)
        times[mark] = seen + 1
    return again
