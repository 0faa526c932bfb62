"""Random schemas and values: agreement with an independent validator, and between our two walkers."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.schema.coerce import clone, prune
from remuda.apiserver.schema.embedded import embedded_errors
from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.apiserver.schema.validate import Validation
from remuda.apiserver.schema.walk import Structural, list_errors
from tests.unit.apiserver.schema.helpers import PATH, an_object

NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "1", "é"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 1.5, 2.0, 2**31])


def limits(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=options)


COUNTS = st.integers(0, 3)
TEXT_LIMITS = limits(
    minLength=COUNTS, maxLength=COUNTS, pattern=st.sampled_from(["^a", "b$", "[0-9]"]), enum=st.just(["a", "ab", "1"])
)
NUMBER_LIMITS = limits(
    minimum=st.integers(-1, 2), maximum=st.integers(-1, 2), multipleOf=st.integers(1, 2), enum=st.just([1, 2])
)
SCALARS = st.one_of(
    TEXT_LIMITS.map(lambda more: {"type": "string", **more}),
    NUMBER_LIMITS.map(lambda more: {"type": "integer", **more}),
    NUMBER_LIMITS.map(lambda more: {"type": "number", **more}),
    st.just({"type": "boolean"}),
)
CLAUSES = st.lists(limits(required=st.lists(NAMES, min_size=1, max_size=2, unique=True)), min_size=1, max_size=2)


def containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    counted = limits(minItems=COUNTS, maxItems=COUNTS)
    arrays = st.builds(lambda items, more: {"type": "array", "items": items, **more}, inner, counted)
    sized = limits(minProperties=COUNTS, maxProperties=COUNTS)
    maps = st.builds(lambda values, more: {"type": "object", "additionalProperties": values, **more}, inner, sized)
    needs = limits(required=st.lists(NAMES, max_size=2, unique=True), oneOf=CLAUSES, anyOf=CLAUSES, allOf=CLAUSES)
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    structs = st.builds(lambda props, more: {"type": "object", "properties": props, **more}, fields, needs)
    return st.one_of(arrays, maps, structs)


SCHEMAS = st.recursive(SCALARS, containers, max_leaves=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=10,
)


@st.composite
def values_for(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Mostly of the right shape, so that more than types is tried."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    kind = schema["type"]
    if kind == "array":
        return draw(st.lists(values_for(schema["items"]), max_size=3))
    if kind == "object" and "properties" in schema:
        fields = schema["properties"]
        wanted = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
        return {name: draw(values_for(fields[name])) for name in wanted}
    if kind == "object":
        return draw(st.dictionaries(NAMES, values_for(schema["additionalProperties"]), max_size=3))
    return draw({"string": TEXTS, "boolean": st.booleans()}.get(kind, NUMBERS))


CASES = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), values_for(schema)))


def of_spec(props: dict[str, Any]) -> Structural:
    schema, errors = parse_crd_schema({"type": "object", "properties": {"spec": props}}, path=PATH)
    assert errors == []
    return Structural(schema)


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_validator_agrees_with_jsonschema(case: tuple[dict[str, Any], Any]) -> None:
    props, value = case
    validator = of_spec(props)
    obj = an_object(value)
    validator.prepare(obj)
    if "spec" not in obj:
        return  # a null at the top is dropped, which the other does not know of
    theirs = jsonschema_rs.validator_for(props).is_valid(obj["spec"])
    assert (validator.validate(obj) == []) == theirs


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_fast_path_never_accepts_an_invalid_object(case: tuple[dict[str, Any], Any]) -> None:
    props, value = case
    validator = of_spec(props)
    obj = an_object(value)
    if not validator.is_fine(obj):
        return
    settled = clone(obj)
    assert prune(validator.schema, settled) == []
    assert Validation().run(validator.schema, settled) == []
    assert list_errors(validator.schema, settled) == []
    assert embedded_errors(validator.schema, settled) == []
    validator.default(settled)
    assert settled == obj


@settings(max_examples=80, deadline=None)
@given(CASES)
def test_prepare_is_idempotent(case: tuple[dict[str, Any], Any]) -> None:
    props, value = case
    validator = of_spec(props)
    obj = an_object(value)
    validator.prepare(obj)
    again = copy.deepcopy(obj)
    assert validator.prepare(again).unknown == []
    assert again == obj
    assert (validator.validate(obj) == []) == validator.is_fine(obj)


@settings(max_examples=80, deadline=None)
@given(CASES)
def test_no_op_update_always_validates(case: tuple[dict[str, Any], Any]) -> None:
    props, value = case
    validator = of_spec(props)
    obj = an_object(value)
    validator.prepare(obj)
    assert validator.validate(clone(obj), obj) == []


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_arbitrary_crd_schema_does_not_crash_the_parser(props: Any) -> None:
    parse_crd_schema({"type": "object", "properties": {"spec": props}}, path=PATH)
