"""How bad values are shown, and what a status says."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
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
def test_bad_values_are_rendered_as_kube_apiserver_does(value: Any, shown: str) -> None:
    assert errors.render_value(value) == shown


def test_duplicate_field_errors_are_listed_once_in_message() -> None:
    twice = errors.invalid_object("", "Pod", "a", [errors.required("x")] * 2 + [errors.required("")])
    assert twice.message == 'Pod "a" is invalid: [x: Required value, <nil>: Required value]'
    assert [cause["field"] for cause in twice.details["causes"]] == ["x", "x", "<nil>"]


def test_empty_details_are_distinguished_from_missing_details() -> None:
    assert "details" not in errors.StatusError(400, "BadRequest", "m").status()
    assert errors.StatusError(422, "Invalid", "m", details={}).status()["details"] == {}


def refusal(*complaints: errors.FieldError) -> tuple[str, int]:
    refused = errors.invalid_object("apps", "Deployment", "web", complaints)
    return refused.message, len(refused.details["causes"])


def test_single_field_error_is_rendered_without_list() -> None:
    message = 'Deployment.apps "web" is invalid: spec.selector: Required value'
    assert refusal(errors.required("spec.selector")) == (message, 1)


def test_excess_field_errors_are_counted_instead_of_listed() -> None:
    message, causes = refusal(*(errors.required(f"spec.items[{n}]") for n in range(10_000)))
    assert causes == 128
    assert message.endswith("spec.items[127]: Required value, and 9872 more]")


def test_large_bad_values_shorten_the_error_list() -> None:
    large = ["x" * 1000] * 3000
    message, causes = refusal(*(errors.invalid(f"spec.items[{n}]", large, "too much") for n in range(100)))
    assert causes < 100
    assert len(message) < 1024 * 1024
    assert message.endswith(f"and {100 - causes} more]")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (errors.not_found("", "pods", "a"), errors.NotFound),
        (errors.no_such_path(), errors.NotFound),
        (errors.already_exists("", "pods", "a"), errors.AlreadyExists),
        (errors.conflict("", "pods", "a"), errors.Conflict),
        (errors.apply_conflict("conflicts", []), errors.Conflict),
        (errors.gone("too old", continue_token="next"), errors.Gone),
        (errors.forbidden_request("", "pods", "a", "no"), errors.Forbidden),
        (errors.bad_request("no"), errors.StatusError),
        (errors.unauthorized(), errors.Unauthorized),
        (errors.invalid_object("", "Pod", "a", []), errors.StatusError),
        (errors.too_many_requests("busy"), errors.StatusError),
        (errors.internal("broken"), errors.StatusError),
        (errors.Unreachable("no answer"), errors.Unreachable),
        (errors.Unreachable("no answer", code=504), errors.Unreachable),
    ],
)
def test_constructor_yields_subclass_of_its_code_and_reason(
    error: errors.StatusError, wanted: type[errors.StatusError]
) -> None:
    assert type(error) is wanted


@pytest.mark.parametrize(
    ("code", "reason", "wanted"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (403, "Forbidden", errors.Forbidden),
        (401, "Unauthorized", errors.Unauthorized),
        (422, "Invalid", errors.StatusError),
        (500, "InternalError", errors.StatusError),
        (599, "", errors.StatusError),
    ],
)
def test_decoded_status_yields_same_class_as_constructed_error(
    code: int, reason: str, wanted: type[errors.StatusError]
) -> None:
    constructed = errors.StatusError(code, reason, "m", details={"name": "a"})
    over_http = errors.status_error(code, msgspec.json.encode(constructed.status()))
    in_a_watch = errors.status_error(0, msgspec.json.encode(constructed.status()))
    assert [type(one) for one in (constructed, over_http, in_a_watch)] == [wanted] * 3
    assert over_http.status() == constructed.status()


def test_response_without_status_yields_subclass_of_its_code() -> None:
    assert type(errors.status_error(404, b"<html>no such page</html>")) is errors.NotFound
    assert type(errors.status_error(409, b"")) is errors.Conflict
    assert type(errors.status_error(502, b"bad gateway")) is errors.StatusError


@pytest.mark.parametrize(
    "error",
    [
        errors.not_found("apps", "deployments", "web"),
        errors.gone("too old", continue_token="next"),
        errors.bad_request("no"),
        errors.Unreachable("no answer", sent=False),
        errors.UnreadableWatch("no JSON"),
    ],
)
def test_copies_of_an_error_keep_class_and_status(error: errors.StatusError) -> None:
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert again.__dict__ == error.__dict__
        assert str(again) == str(error)


def test_ignore_not_found_drops_only_not_found() -> None:
    with errors.ignore_not_found():
        raise errors.not_found("", "pods", "a")
    for other in (errors.conflict("", "pods", "a"), errors.gone("too old"), ValueError("no")):
        with pytest.raises(type(other)), errors.ignore_not_found():
            raise other
