from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.http.decode import ObjectReader, read_patch, repeated_fields
from remuda.apiserver.http.yaml_body import YamlError, decode_yaml, encode_yaml
from remuda.kube.errors import StatusError

from .fakes import PODS, WIDGETS

JSON, YAML = "application/json", "application/yaml"


def read(body: bytes, media: str = JSON, resource: Any = PODS, subresource: str = "", validation: Any = "Warn") -> Any:
    return ObjectReader().read(body, media, resource, subresource, validation)


def refusal(body: bytes, **more: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        read(body, **more)
    return caught.value


def test_missing_api_version_and_kind_default_from_the_path() -> None:
    assert read(b"{}")[0] == {"apiVersion": "v1", "kind": "Pod"}
    assert read(b"{}", subresource="eviction")[0] == {"apiVersion": "policy/v1", "kind": "Eviction"}
    assert read(b"{}", resource=WIDGETS, subresource="scale")[0] == {"apiVersion": "autoscaling/v1", "kind": "Scale"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b"",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "
            "json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            b'{"a":',
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "
            'json parse error: unexpected end of JSON input ({"a":)',
        ),
        (
            b"nope",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; "
            "json parse error: invalid character 'o' in literal null (expecting 'u') (6e6f7065)",
        ),
        (
            b'{"apiVersion":"v2","kind":"Pod"}',
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        (
            b'{"apiVersion":"v1","kind":"Secret"}',
            'Secret in version "v1" cannot be handled as a Pod: '
            "converting (v1.Secret) to (core.Pod): unknown conversion",
        ),
    ],
)
def test_undecodable_body_error_matches_upstream(body: bytes, message: str) -> None:
    error = refusal(body)
    assert (error.code, error.reason, error.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{a}", "invalid character 'a' looking for beginning of object key string"),
        (b'{"a":x}', "invalid character 'x' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b'{"a":[1 2]}', "invalid character '2' after array element"),
        (b"{}x", "invalid character 'x' after top-level value"),
        (b'{"a', "unexpected end of JSON input"),
        (b'{"a":"\xff"}', "invalid UTF-8 in a string"),
        (b'{"a":[{"b":"}{\\""', "unexpected end of JSON input"),
    ],
)
def test_malformed_json_error_matches_go(body: bytes, words: str) -> None:
    assert f"json parse error: {words} (" in refusal(body).message


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"5", b'{"kind":5}', b'{"a":NaN}', b'{"a":Infinity}'])
def test_non_object_body_is_rejected_with_400(body: bytes) -> None:
    assert refusal(body).code == 400


def test_null_body_is_an_empty_object_for_built_in_kinds() -> None:
    assert read(b"null")[0] == {"apiVersion": "v1", "kind": "Pod"}
    assert "Object 'Kind' is missing in 'null'" in refusal(b"null", resource=WIDGETS).message


def test_custom_resource_body_requires_api_version_and_kind() -> None:
    assert "Object 'Kind' is missing" in refusal(b'{"apiVersion":"example.com/v1"}', resource=WIDGETS).message
    wrong = refusal(b'{"apiVersion":"example.com/v2","kind":"Widget"}', resource=WIDGETS)
    assert wrong.message.startswith("the API version in the data (example.com/v2) does not match")
    other = refusal(b'{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"}}', resource=WIDGETS)
    assert (other.code, other.reason) == (422, "Invalid")
    assert 'kind: Invalid value: "Gadget": must be Widget' in other.message


@pytest.mark.parametrize("media", [JSON, YAML])
def test_body_nesting_depth_is_bounded(media: str) -> None:
    for depth in (1_000, 100_000):
        body = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
        error = refusal(body, media=media)
        assert error.code == 400
        assert "exceeded max depth" in error.message
    fine = b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"
    assert read(fine, media=media)[0]["kind"] == "Pod"


def test_duplicate_fields_follow_field_validation() -> None:
    body = b'{"kind":"Pod","spec":{"x":1,"x":2,"l":[{"y":1},{"y":1,"y":1}]},"spec":{}}'
    complaints = ['duplicate field "spec.x"', 'duplicate field "spec.l[1].y"', 'duplicate field "spec"']
    assert read(body, validation="Warn")[1] == complaints
    assert read(body, validation="Ignore")[1] == []
    strict = refusal(body, validation="Strict").message
    assert strict == ('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ' + ", ".join(complaints))


def test_formatted_body_without_duplicate_fields_has_no_warnings() -> None:
    assert repeated_fields(b'{ "a": {"b": 1},\n "c": [{"b": 1}] }', {"a": {"b": 1}, "c": [{"b": 1}]}) == []


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcé", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), OBJECTS, max_size=4), st.sampled_from([None, 2]))
def test_duplicate_field_detection_has_no_false_results(value: dict[str, Any], indent: int | None) -> None:
    body = json.dumps(value, indent=indent).encode()
    assert repeated_fields(body, value) == []
    doubled = b'{"Q":1,' + body.lstrip()[1:].rstrip()[:-1] + (b"," if value else b"") + b'"Q":1}'
    assert repeated_fields(doubled, {**value, "Q": 1}) == ['duplicate field "Q"']


@given(st.binary(max_size=60))
def test_arbitrary_body_decodes_or_returns_400(body: bytes) -> None:
    for media in (JSON, YAML):
        try:
            value, _ = read(body, media=media)
        except StatusError as error:
            assert error.code == 400  # noqa: PT017
        else:
            assert isinstance(value, dict)


# -- YAML --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2020-01-02", {"a": "2020-01-02"}),
        ("a: 2020-01-02T03:04:05Z", {"a": "2020-01-02T03:04:05Z"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 012", {"a": 10}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1.5", {"a": 1.5}),
        ("a: '5'", {"a": "5"}),
        ("a: yes", {"a": True}),
        ("a: ~", {"a": None}),
        ("1: a\nno: b", {"1": "a", "false": "b"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: &x {k: 1}\nb: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1, "l": 2}}),
        ("# nothing\n", None),
    ],
)
def test_yaml_values_are_decoded(text: str, value: Any) -> None:
    assert decode_yaml(text.encode()) == (value, [])


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: b: c",
        "a: !!python/object:os.system x",
        "a: .inf",
        "a: .nan",
        "? [1]\n: x",
        "a: *nope",
        "a: 1\n---\nb: 2",
    ],
)
def test_invalid_yaml_is_rejected(text: str) -> None:
    with pytest.raises(YamlError):
        decode_yaml(text.encode())


def test_yaml_alias_expansion_is_bounded() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        decode_yaml("\n".join(lines).encode())
    with pytest.raises(YamlError):
        decode_yaml(b"a: &a [*a]")


def test_yaml_alias_expansion_of_long_text_is_bounded() -> None:
    """A body of a megabyte would be an object of nine gigabytes."""
    with pytest.raises(YamlError, match="excessive aliasing"):
        decode_yaml(b'a: &x "' + b"y" * 1_000_000 + b'"\nb: [' + b"*x," * 9_000 + b"]")


@pytest.mark.parametrize("value", ["!!bool x", "!!timestamp x", "!!int x", "!!float ''"])
def test_yaml_value_not_matching_its_tag_is_rejected(value: str) -> None:
    with pytest.raises(YamlError):
        decode_yaml(f"a: {value}".encode())


def test_duplicate_yaml_keys_follow_field_validation() -> None:
    body = b"kind: Pod\nspec:\n  x: 1\n  x: 2\n"
    assert read(body, media=YAML)[1] == ['line 4: key "x" already set in map']
    assert "strict decoding error" in refusal(body, media=YAML, validation="Strict").message


def test_encoded_yaml_is_sorted_and_reads_back() -> None:
    value = {"b": "2020-01-02", "a": ["x: y", "", "0"], "c": {"é": None, "n": 1.5}}
    assert encode_yaml(value).startswith(b"a:\n")
    assert decode_yaml(encode_yaml(value))[0] == value


# -- patches -----------------------------------------------------------------------------------------------------


def test_patch_bodies_are_decoded_by_kind() -> None:
    assert read_patch(b'[{"op":"remove","path":"/a"}]', "json", "Warn") == ([{"op": "remove", "path": "/a"}], [])
    assert read_patch(b'{"a":null}', "merge", "Warn") == ({"a": None}, [])
    assert read_patch(b"a: 1\n", "apply", "Warn") == ({"a": 1}, [])
    assert read_patch(b'{"a":1}', "apply", "Warn") == ({"a": 1}, [])


@pytest.mark.parametrize(("body", "kind"), [(b"{", "json"), (b"{", "merge"), (b"- a", "apply"), (b"[", "apply")])
def test_malformed_patch_body_returns_400(body: bytes, kind: Any) -> None:
    with pytest.raises(StatusError) as caught:
        read_patch(body, kind, "Warn")
    assert caught.value.code == 400
    assert caught.value.message.startswith("error decoding")


def test_duplicate_fields_in_patches_are_reported() -> None:
    assert read_patch(b'{"a":1,"a":2}', "merge", "Warn")[1] == ['duplicate field "a"']
    assert read_patch(b'{"a":1,"a":2}', "merge", "Ignore")[1] == []
    assert read_patch(b"a: 1\na: 2\n", "apply", "Strict")[1] == ['line 2: key "a" already set in map']


def test_unknown_json_patch_members_are_reported() -> None:
    _, complaints = read_patch(b'[{"op":"remove","path":"/a","why":1,"op":"test"}]', "json", "Warn")
    assert complaints == ['json patch duplicate field "[0].op"', 'json patch unknown field "[0].why"']


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b'{"spec":{"containers":[' + b"{}," * 900_000 + b"{}]}}", JSON),
        (b'{"spec":{' + b'"a":1,' * 480_000 + b'"a":1}}', JSON),
        (b"[" + b"[]," * 900_000 + b"[]]", JSON),
        (b"{spec: [" + b"1," * 1_400_000 + b"]}", YAML),
        (b"spec: &a [" + b"1," * 9000 + b"1]\nb: [*a, *a, *a, *a, *a, *a]", YAML),
    ],
)
def test_body_with_too_many_values_is_rejected_quickly_with_413(body: bytes, media: str) -> None:
    started = time.process_time()
    error = refusal(body, media=media)
    assert time.process_time() - started < 0.5
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")
    assert "The allowed maximum number of values in an object is 50000" in error.message


def test_patch_with_too_many_values_is_refused_with_413() -> None:
    for kind in ("json", "merge", "strategic", "apply"):
        with pytest.raises(StatusError) as caught:
            read_patch(b'{"data":[' + b"1," * 1_000_000 + b"1]}", kind, "Warn")  # type: ignore[arg-type]
        assert caught.value.code == 413


def test_secret_of_one_mebibyte_is_read() -> None:
    body = json.dumps({"data": {f"part{n}": "QUFB" * 35_000 for n in range(10)}}).encode()
    assert len(body) > 1024 * 1024
    assert len(read(body)[0]["data"]) == 10
