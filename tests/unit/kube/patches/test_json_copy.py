from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.patches.json_copy import same_json


@pytest.mark.parametrize("wrapped", [lambda value: value, lambda value: {"a": [{"b": value}]}])
@pytest.mark.parametrize(
    ("left", "right"), [(1, 1.0), (1, True), (0, False), (1.0, True), ("1", 1), ([], {}), (0, None)]
)
def test_same_json_distinguishes_types_of_equal_values(left: Any, right: Any, wrapped: Any) -> None:
    assert not same_json(wrapped(left), wrapped(right))
    assert same_json(wrapped(left), wrapped(left))


def test_same_json_ignores_member_order_but_not_list_order() -> None:
    assert same_json({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1})
    assert not same_json({"a": [1, 2]}, {"a": [2, 1]})
    assert not same_json({"a": 1}, {"a": 1, "b": 1})
