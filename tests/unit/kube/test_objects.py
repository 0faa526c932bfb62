"""Reading objects: null is nothing, wherever a server writes it, and what is wrong is still wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.objects import Condition, Kind, Object, Part, json_name


class Inner(Part):
    number: int = 7
    maybe: str | None = None


class Status(Part):
    conditions: Sequence[Condition] = ()
    inner: Inner = Inner()


class Thing(Object):
    status: Status = Status()
    data: Mapping[str, str] = {}


THING = Kind("example.com/v1", "Thing", "things", Thing)


def encoded(**fields: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "a"}, **fields})


def test_null_condition_time_decodes_as_empty() -> None:
    never = {"type": "Ready", "status": "True", "lastTransitionTime": None, "reason": None}
    [condition] = THING.decode(encoded(status={"conditions": [never]})).status.conditions
    assert (condition.type, condition.last_transition_time, condition.reason) == ("Ready", "", "")


@pytest.mark.parametrize(
    "fields",
    [
        {"status": None},
        {"status": {"conditions": None, "inner": None}},
        {"status": {"inner": {"number": None, "maybe": None}}},
        {"data": None},
        {"data": {"key": None}},
        {"metadata": {"name": "a", "labels": None, "ownerReferences": None, "finalizers": None, "generation": None}},
    ],
)
def test_null_field_decodes_as_absent(fields: dict[str, Any]) -> None:
    assert THING.decode(encoded(**fields)) == THING.decode(encoded())


def test_nullable_field_distinguishes_null_from_empty() -> None:
    assert THING.decode(encoded(status={"inner": {"maybe": None}})).status.inner == Inner()
    assert THING.decode(encoded(status={"inner": {"maybe": ""}})).status.inner == Inner(maybe="")


@pytest.mark.parametrize(
    "wrong", [{"inner": {"number": "7"}}, {"inner": {"number": "7", "maybe": None}}, "all", [None]]
)
def test_wrongly_typed_field_raises_validation_error_with_path(wrong: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected .* - at `\$\.status"):
        THING.decode(encoded(status=wrong))


def test_malformed_json_object_raises_decode_error() -> None:
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        THING.decode(b'{"metadata":')


Json = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from(("", "x")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("a", "b")), inner, max_size=2),
    max_leaves=8,
)


@given(extra=Json)
def test_unknown_fields_are_ignored(extra: Any) -> None:
    expected = THING.decode(encoded())
    assert THING.decode(encoded(status={"unknown": extra, "inner": None}, other=extra)) == expected


@given(st.lists(st.sampled_from(("provider", "id", "cidr", "blocks")), min_size=1, max_size=4))
def test_field_names_are_converted_to_camel_case(words: list[str]) -> None:
    written = json_name("_".join(words))
    assert written.lower() == "".join(words)
    assert written.startswith(words[0])
    assert "_" not in written


def test_id_suffix_is_capitalized_in_json_name() -> None:
    assert (json_name("provider_id"), json_name("id"), json_name("pod_cidr")) == ("providerID", "id", "podCidr")
