"""How bad values are shown, and what a status says."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube import errors


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", '"plain"'),
        ("ä", '"ä"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\n\x01", r'"\a\n\x01"'),
        ("\u202e", r'"\u202e"'),
        (5, "5"),
        (True, "true"),
        (None, "null"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_values_are_shown_as_the_real_server_shows_them(value: Any, shown: str) -> None:
    assert errors.render_value(value) == shown


def test_a_complaint_made_twice_is_said_once() -> None:
    twice = errors.invalid_object("", "Pod", "a", [errors.required("x")] * 2 + [errors.required("")])
    assert twice.message == 'Pod "a" is invalid: [x: Required value, <nil>: Required value]'
    assert [cause["field"] for cause in twice.details["causes"]] == ["x", "x", "<nil>"]


def test_empty_details_are_not_no_details() -> None:
    assert "details" not in errors.StatusError(400, "BadRequest", "m").status()
    assert errors.StatusError(422, "Invalid", "m", details={}).status()["details"] == {}


def refusal(*complaints: errors.FieldError) -> tuple[str, int]:
    refused = errors.invalid_object("apps", "Deployment", "web", complaints)
    return refused.message, len(refused.details["causes"])


def test_one_complaint_is_a_sentence() -> None:
    message = 'Deployment.apps "web" is invalid: spec.selector: Required value'
    assert refusal(errors.required("spec.selector")) == (message, 1)


def test_ten_thousand_are_counted_not_listed() -> None:
    message, causes = refusal(*(errors.required(f"spec.items[{n}]") for n in range(10_000)))
    assert causes == 128
    assert message.endswith("spec.items[127]: Required value, and 9872 more]")


def test_large_values_end_the_list_sooner() -> None:
    large = ["x" * 1000] * 3000
    message, causes = refusal(*(errors.invalid(f"spec.items[{n}]", large, "too much") for n in range(100)))
    assert causes < 20
    assert len(message) < 1024 * 1024
    assert message.endswith(f"and {100 - causes} more]")
