from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.apiserver.http import options
from remuda.apiserver.registry.calls import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from remuda.kube.errors import StatusError
from remuda.kube.web import Request


def asking(query: str, agent: str = "", content_type: str = "") -> Request:
    headers = {b"user-agent": agent.encode("latin-1"), b"content-type": content_type.encode()}
    return Request(cast(Any, None), "GET", f"/?{query}", headers)


def refusal(read: Any, *arguments: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        read(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ListOptions()),
        ("limit=5&continue=abc", ListOptions(limit=5, continue_token="abc")),
        ("limit=-5", ListOptions()),
        ("labelSelector=a%3Db&fieldSelector=x%21%3Dy", ListOptions(label_selector="a=b", field_selector="x!=y")),
        (
            "resourceVersion=5&resourceVersionMatch=Exact",
            ListOptions(resource_version="5", resource_version_match="Exact"),
        ),
        ("unknown=1&timeoutSeconds=3", ListOptions()),
    ],
)
def test_list_options_are_parsed_from_query(query: str, expected: ListOptions) -> None:
    assert options.list_options(asking(query)) == expected


@pytest.mark.parametrize("query", ["limit=x", "limit=", "limit=99999999999999999999", "timeoutSeconds=1.5"])
def test_invalid_numeric_list_option_returns_400(query: str) -> None:
    error = refusal(options.list_options, asking(query))
    assert (error.code, error.reason) == (400, "BadRequest")
    assert "strconv.ParseInt" in error.message


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            "resourceVersionMatch=Bad&resourceVersion=1",
            'resourceVersionMatch: Unsupported value: "Bad": supported values: "Exact", "NotOlderThan", ""',
        ),
        ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
    ],
)
def test_invalid_list_options_return_422(query: str, sentence: str) -> None:
    error = refusal(options.list_options, asking(query))
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == f'ListOptions.meta.k8s.io "" is invalid: {sentence}'


INITIAL = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("watch=1", WatchOptions(**INITIAL)),  # type: ignore[arg-type]
        ("watch=1&resourceVersion=0", WatchOptions(resource_version="0", **INITIAL)),  # type: ignore[arg-type]
        ("resourceVersion=5&timeoutSeconds=7", WatchOptions(resource_version="5", timeout_seconds=7)),
        ("resourceVersion=5&allowWatchBookmarks=true", WatchOptions(resource_version="5", bookmarks=True)),
        (
            "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            WatchOptions(send_initial_events=False, resource_version_match="NotOlderThan"),
        ),
    ],
)
def test_watch_options_are_parsed_from_query(query: str, expected: WatchOptions) -> None:
    assert options.watch_options(asking(query)) == expected


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless "
            "sendInitialEvents is provided",
        ),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
            "NotOlderThan, "
            'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]',
        ),
    ],
)
def test_invalid_watch_options_are_rejected(query: str, sentence: str) -> None:
    assert refusal(options.watch_options, asking(query)).message == f'ListOptions.meta.k8s.io "" is invalid: {sentence}'


def test_write_options_are_parsed_from_query_and_user_agent() -> None:
    plain = options.write_options(asking("", "kubectl/v1.32 (linux)"), "CreateOptions")
    assert plain == WriteOptions(field_manager="kubectl")
    asked = options.write_options(asking("fieldManager=me&dryRun=All&fieldValidation=Strict"), "UpdateOptions")
    assert asked == WriteOptions(field_manager="me", dry_run=True, field_validation="Strict")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("fieldManager=" + "x" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        ("fieldManager=a%0Ab", 'fieldManager: Invalid value: "a\\nb": invalid character U+000A (at position 1)'),
        ("dryRun=Some", 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        (
            "fieldValidation=Loose",
            'fieldValidation: Unsupported value: "Loose": supported values: "", "Ignore", "Strict", "Warn"',
        ),
    ],
)
def test_invalid_write_options_return_422(query: str, sentence: str) -> None:
    error = refusal(options.write_options, asking(query), "CreateOptions")
    assert error.code == 422
    assert error.message == f'CreateOptions.meta.k8s.io "" is invalid: {sentence}'


def test_patch_options_require_manager_for_apply_and_forbid_force_otherwise() -> None:
    forced = options.patch_options(asking("fieldManager=me&force=true"), "apply")
    assert forced == WriteOptions(field_manager="me", force=True)
    nameless = refusal(options.patch_options, asking("", "kubectl"), "apply")
    assert "fieldManager: Required value: is required for apply patch" in nameless.message
    merged = refusal(options.patch_options, asking("force=false"), "merge")
    assert "force: Forbidden: may not be specified for non-apply patch" in merged.message


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1", "kubectl"),
        ("", ""),
        ("/x", ""),
        ("x" * 200, "x" * 128),
        ("a\tb", "ab"),
    ],
)
def test_field_manager_is_derived_from_user_agent(agent: str, manager: str) -> None:
    assert options.manager_of_agent(agent) == manager


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("", b"", DeleteOptions()),
        (
            "propagationPolicy=Orphan&gracePeriodSeconds=0",
            b"",
            DeleteOptions(grace_period_seconds=0, propagation_policy="Orphan"),
        ),
        ("orphanDependents=false", b"", DeleteOptions(propagation_policy="Background")),
        ("dryRun=All", b"", DeleteOptions(dry_run=True)),
        # with a body the query does not count
        ("propagationPolicy=Orphan", b'{"gracePeriodSeconds":5}', DeleteOptions(grace_period_seconds=5)),
        (
            "",
            b'{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"3"}}',
            DeleteOptions(precondition_uid="u", precondition_resource_version="3"),
        ),
        ("", b'{"orphanDependents":true,"dryRun":["All"]}', DeleteOptions(propagation_policy="Orphan", dry_run=True)),
    ],
)
def test_delete_options_are_parsed_from_query_or_body(query: str, body: bytes, expected: DeleteOptions) -> None:
    assert options.delete_options(asking(query), body) == expected


def test_delete_options_are_parsed_from_yaml_body() -> None:
    request = asking("", content_type="application/yaml")
    chosen = options.delete_options(request, b"propagationPolicy: Foreground\n")
    assert chosen == DeleteOptions(propagation_policy="Foreground")


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        (b'{"orphanDependents":true,"propagationPolicy":"Orphan"}', 422, "cannot be both set"),
        (b'{"propagationPolicy":"Never"}', 422, 'supported values: "Foreground", "Background", "Orphan", "nil"'),
        (b'{"dryRun":["x"]}', 422, "dryRun: Unsupported value"),
        (b'{"gracePeriodSeconds":"x"}', 400, "cannot unmarshal string into Go struct field"),
        (b'{"gracePeriodSeconds":true}', 400, "cannot unmarshal bool"),
        (b'{"preconditions":[]}', 400, "cannot unmarshal array"),
        (b'{"kind":"Pod"}', 400, "cannot be converted to DeleteOptions"),
        (b"[]", 400, "cannot be converted to DeleteOptions"),
        (b"{", 400, "unexpected end of JSON input"),
    ],
)
def test_invalid_delete_options_are_rejected(body: bytes, code: int, part: str) -> None:
    error = refusal(options.delete_options, asking(""), body)
    assert error.code == code
    assert part in error.message
