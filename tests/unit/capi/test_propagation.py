from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import propagation
from remuda.kube.client import Target
from remuda.runtime.draft import Draft

Json = dict[str, Any]


def entry(manager: str, labels: tuple[str, ...] = (), annotations: tuple[str, ...] = (), subresource: str = "") -> Json:
    fields = {
        part: {".": {}, **{f"f:{key}": {} for key in keys}}
        for part, keys in (("f:labels", labels), ("f:annotations", annotations))
        if keys
    }
    return {
        "manager": manager,
        "operation": "Update",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": fields, "f:spec": {"f:x": {}}},
        **({"subresource": subresource} if subresource else {}),
    }


def draft(labels: Json | None, *entries: Json, annotations: Json | None = None) -> Draft:
    metadata: Json = {"name": "a", "namespace": "ns", "resourceVersion": "7", "managedFields": list(entries)}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return Draft(Target("g/v1", "things"), msgspec.json.encode({"metadata": metadata}))


def test_sets_what_is_given_and_keeps_what_is_others() -> None:
    changed = draft({"theirs": "1"}, entry("them", ("theirs",)))
    propagation.hand_down(changed, {"ours": "2"}, {"note": "3"}, ("us",))
    assert changed.metadata["labels"] == {"theirs": "1", "ours": "2"}
    assert changed.metadata["annotations"] == {"note": "3"}


def test_removes_what_it_had_set_itself() -> None:
    changed = draft(
        {"ours": "1", "theirs": "1", "both/x": "1"},
        entry("us", ("ours",)),
        entry("also-us", ("both/x",), ("gone",)),
        entry("them", ("theirs",)),
        annotations={"gone": "x"},
    )
    propagation.hand_down(changed, {}, {}, ("us", "also-us"))
    assert changed.metadata["labels"] == {"theirs": "1"}
    assert changed.metadata["annotations"] == {}


def test_keeps_what_it_is_told_to() -> None:
    changed = draft({"a": "1", "b": "1"}, entry("us", ("a", "b")))
    propagation.hand_down(changed, {}, {}, ("us",), keep={"a"})
    assert changed.metadata["labels"] == {"a": "1"}


def test_what_was_set_in_a_status_is_not_metadata_of_ours() -> None:
    changed = draft({"a": "1"}, entry("us", ("a",), subresource="status"))
    propagation.hand_down(changed, {}, {}, ("us",))
    assert changed.metadata["labels"] == {"a": "1"}


def test_nothing_to_do_is_no_patch() -> None:
    changed = draft({"a": "1"}, entry("us", ("a",)))
    propagation.hand_down(changed, {"a": "1"}, {}, ("us",))
    assert changed.patches() == ({}, {})


def test_an_object_nobody_labelled() -> None:
    changed = draft(None)
    propagation.hand_down(changed, {}, {}, ("us",))
    assert changed.patches() == ({}, {})


labels = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"))


@given(first=labels, second=labels, theirs=st.dictionaries(st.sampled_from("xyz"), st.just("t")))
def test_the_second_replaces_the_first_and_nothing_else(first: Json, second: Json, theirs: Json) -> None:
    changed = draft({**theirs, **first}, entry("us", tuple(first)), entry("them", tuple(theirs)))
    propagation.hand_down(changed, second, {}, ("us",))
    assert changed.metadata.get("labels", {}) == {**theirs, **second}
