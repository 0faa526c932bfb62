"""The cost budget of one request: what exceeds it is refused before it is worked on, and in the server's words."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.cost import DEFINITION_LIMITS, FREE_BYTES, LIMITS, Budget, RequestLimits
from remuda.kube.errors import StatusError

SMALL = RequestLimits(values=20, items=8)


def refusal(body: bytes, limits: RequestLimits = LIMITS) -> str:
    """The message of the refusal; empty if the body is within the limits."""
    budget = Budget(limits)
    try:
        if budget.charge_text(body):
            budget.charge_object(json.loads(body))
    except StatusError as error:
        return f"{error.code} {error.reason}: {error.message}"
    return ""


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 1_000_000 + b"{}]",
        b"[" + b"1," * 1_400_000 + b"1]",
        b'{"a":[' + b'"x","y",' * 300_000 + b'"z"]}',
        b'{"a":' + b"[" * 250 + b"1," * 1_000_000,
        b"[" + (b"[" * 200 + b"]" * 200 + b",") * 7000 + b"1]",
    ],
)
def test_body_with_too_many_values_is_rejected_before_decoding(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(StatusError) as caught:
        Budget().charge_text(body)
    assert time.process_time() - started < 0.5
    assert caught.value.code == 413
    assert caught.value.message == (
        f"Request entity too large: The allowed maximum number of values in an object is {LIMITS.values}"
    )


@pytest.mark.parametrize("filling", [",", "[{", '\\"', "\\\\", '\\",[', "\\\\,"])
def test_body_with_json_punctuation_inside_strings_is_accepted(filling: str) -> None:
    text = filling * (2_000_000 // len(filling))
    assert refusal(b'{"metadata":{"name":"a"},"data":{"csv":"' + text.encode() + b'"}}') == ""


def test_list_elements_and_object_members_are_limited() -> None:
    many = LIMITS.items + 1
    elements, members = list(range(many)), {f"k{n:09}": 1 for n in range(many)}
    assert refusal(json.dumps({"a": elements[1:]}).encode()) == ""
    said = f"The allowed maximum number of elements in a list is {LIMITS.items}, got {many}"
    assert said in refusal(json.dumps({"a": {"b": elements}}).encode())
    said = f"The allowed maximum number of members in an object is {LIMITS.items}, got {many}"
    assert said in refusal(json.dumps([members]).encode())


def test_object_count_limit_exempts_managed_fields_and_json_patch() -> None:
    many = LIMITS.objects + 1
    assert refusal(json.dumps({"a": [[]] * (many - 3)}).encode()) == ""
    said = f"The allowed maximum number of objects and lists in an object is {LIMITS.objects}"
    assert said in refusal(json.dumps({"a": [{}] * many}).encode())
    assert said in refusal(json.dumps({"a": [[]] * (many // 2), "b": {"c": [{}] * (many // 2)}}).encode())
    fields = {f"f:{n}": {} for n in range(many)}
    assert refusal(json.dumps({"metadata": {"managedFields": [{"fieldsV1": fields}]}}).encode()) == ""
    assert refusal(json.dumps([{"op": "test", "path": "/a"}] * many).encode()) == ""
    assert refusal(json.dumps({"a": [{}] * many}).encode(), DEFINITION_LIMITS) == ""


_VALUES = st.recursive(st.none() | st.text(max_size=3), lambda v: st.lists(v) | st.dictionaries(st.text(max_size=2), v))


def values_of(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return len(inner) + sum(map(values_of, inner))


@settings(max_examples=50)
@given(st.lists(_VALUES, max_size=8))
def test_text_charge_never_rejects_bodies_within_value_limit(value: list[Any]) -> None:
    body = json.dumps(value).encode() + b" " * FREE_BYTES
    limits = RequestLimits(values=20, items=0)  # so that every body is looked at
    try:
        Budget(limits).charge_text(body)
    except StatusError:
        assert values_of(value) > limits.values


def test_small_body_is_not_inspected() -> None:
    budget = Budget()
    assert not budget.charge_text(b"[" + b"1," * (FREE_BYTES // 2 - 1) + b"1]"[1:])
    budget.charge_result({}, stored=0)
    assert budget.received > 0


def test_patched_object_is_charged_if_stored_object_is_large() -> None:
    budget = Budget(SMALL)
    budget.charge_result({"a": list(range(100))}, stored=10)
    with pytest.raises(StatusError, match="elements in a list is 8, got 100"):
        budget.charge_result({"a": list(range(100))}, stored=FREE_BYTES + 1)


def test_managed_fields_are_not_charged_to_a_patch() -> None:
    Budget(SMALL).charge_result({"metadata": {"managedFields": list(range(100))}}, stored=FREE_BYTES + 1)
