"""Protobuf bodies: each shape of field by hand, and bytes that are none of them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.kinds.protobuf import MAGIC, Malformed, Unfit, decode

# ---- writing -------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def body(api_version: str, kind: str, content: bytes) -> bytes:
    return MAGIC + block(1, block(1, api_version) + block(2, kind)) + block(2, content)


def read(api_version: str, kind: str, content: bytes) -> Any:
    decoded = decode(body(api_version, kind, content))
    assert (decoded.pop("apiVersion"), decoded.pop("kind")) == (api_version, kind)
    return decoded


def refusal(data: bytes) -> str:
    with pytest.raises((Malformed, Unfit)) as caught:
        decode(data)
    return str(caught.value)


# ---- what each field becomes ---------------------------------------------------------------------------------------


def test_protobuf_strings_and_maps_are_decoded() -> None:
    entry = block(2, block(1, "k") + block(2, "wörd"))
    config_map = read("v1", "ConfigMap", block(1, block(1, "name")) + entry + block(2, block(1, "empty")))
    assert config_map == {"metadata": {"name": "name"}, "data": {"k": "wörd", "empty": ""}}


def test_protobuf_bytes_are_decoded_to_base64() -> None:
    secret = read("v1", "Secret", block(2, block(1, "k") + block(2, b"\x00\xff")) + number(5, 1) + number(5, 0))
    assert secret == {"data": {"k": base64.b64encode(b"\x00\xff").decode()}, "immutable": False}


@pytest.mark.parametrize("value", [0, 1, 300, 2**31 - 1, -1, -(2**63), 2**63 - 1])
def test_protobuf_integers_are_decoded(value: int) -> None:
    assert read("v1", "ConfigMap", block(1, number(7, value)))["metadata"] == {"generation": value}


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", None),
        (number(1, 1), "1970-01-01T00:00:01Z"),
        (number(1, 1_700_000_000) + number(2, 123_456_789), "2023-11-14T22:13:20Z"),
        (number(1, -1), "1969-12-31T23:59:59Z"),
    ],
)
def test_protobuf_time_is_decoded_to_rfc3339_seconds(content: bytes, shown: str | None) -> None:
    assert read("v1", "ConfigMap", block(1, block(8, content)))["metadata"] == {"creationTimestamp": shown}


def test_protobuf_micro_time_is_decoded_with_microseconds() -> None:
    renewed = block(4, number(1, 1_700_000_000) + number(2, 123_456_789))
    lease = read("coordination.k8s.io/v1", "Lease", block(2, block(1, "me") + number(2, 15) + renewed))
    assert lease["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.123456Z",
    }


def test_protobuf_int_or_string_and_repeated_fields_are_decoded() -> None:
    by_number = block(1, number(3, 80) + block(4, number(1, 0) + number(2, 8080)))
    by_name = block(1, block(2, "TCP") + block(4, number(1, 1) + block(3, "web")))
    service = read("v1", "Service", block(2, by_number + by_name + block(1, block(4, b""))))
    assert service["spec"]["ports"] == [
        {"port": 80, "targetPort": 8080},
        {"protocol": "TCP", "targetPort": "web"},
        {"targetPort": 0},
    ]


def test_protobuf_packed_and_unpacked_integer_lists_are_decoded() -> None:
    packed = block(4, varint(1) + varint(300)) + number(4, 7)
    pod = read("v1", "Pod", block(2, block(14, packed)))
    assert pod["spec"]["securityContext"] == {"supplementalGroups": [1, 300, 7]}


def test_protobuf_quantity_is_decoded() -> None:
    limits = block(1, block(1, "cpu") + block(2, block(1, "500m")))
    container = block(2, block(1, "c") + block(8, limits))
    assert read("v1", "Pod", block(2, container))["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}}


def test_protobuf_inline_fields_appear_in_the_parent_object() -> None:
    selector = block(1, block(1, "map")) + block(2, "key")
    env = block(7, block(1, "A") + block(3, block(3, selector)))
    container = read("v1", "Pod", block(2, block(2, env)))["spec"]["containers"][0]
    assert container["env"] == [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "key"}}}]


def test_protobuf_wrapped_lists_are_decoded() -> None:
    extra = block(5, block(1, "scopes") + block(2, block(1, "a") + block(1, "b")))
    review = read("authorization.k8s.io/v1", "SubjectAccessReview", block(2, block(3, "jane") + extra))
    assert review["spec"] == {"user": "jane", "extra": {"scopes": ["a", "b"]}}


def test_protobuf_embedded_json_is_decoded() -> None:
    fields = block(7, block(1, '{"f:data":{}}'))
    entry = block(17, block(1, "lab") + fields)
    assert read("v1", "ConfigMap", block(1, entry))["metadata"]["managedFields"] == [
        {"manager": "lab", "fieldsV1": {"f:data": {}}}
    ]


def test_protobuf_embedded_json_with_invalid_utf_8_is_rejected() -> None:
    """It was answered with a 500."""
    entry = block(17, block(7, block(1, b'{"f:\xff":{}}')))
    assert "utf-8" in refusal(body("v1", "ConfigMap", block(1, entry)))


def schema(content: bytes) -> Any:
    version = block(7, block(1, "v1") + block(4, block(1, content)))
    definition = read("apiextensions.k8s.io/v1", "CustomResourceDefinition", block(2, version))
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_protobuf_json_schema_props_are_decoded() -> None:
    text = block(5, "string")
    assert schema(double(9, 2.5) + double(11, -1)) == {"maximum": 2.5, "minimum": -1.0}
    assert schema(block(8, block(1, '{"a":[1]}'))) == {"default": {"a": [1]}}
    assert schema(block(24, block(1, text))) == {"items": {"type": "string"}}
    assert schema(block(24, block(2, text) + block(2, text))) == {"items": [{"type": "string"}] * 2}
    assert schema(block(30, number(1, 1) + block(2, text))) == {"additionalProperties": {"type": "string"}}
    assert schema(block(30, number(1, 1))) == {"additionalProperties": True}
    assert schema(block(30, b"")) == {"additionalProperties": False}
    assert schema(block(29, block(1, "x") + block(2, text))) == {"properties": {"x": {"type": "string"}}}


def test_protobuf_delete_options_are_decoded_in_any_group_version() -> None:
    options = block(2, block(1, "uid")) + block(4, "Orphan") + number(1, 0) + block(5, "All")
    assert read("apps/v1", "DeleteOptions", options) == {
        "preconditions": {"uid": "uid"},
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


def test_protobuf_unknown_fields_are_skipped() -> None:
    strange = number(900, 1) + block(901, b"x") + double(902, 1.0) + varint(903 << 3 | 5) + b"1234"
    assert read("v1", "ConfigMap", strange + block(1, block(1, "n"))) == {"metadata": {"name": "n"}}


def test_protobuf_envelope_type_meta_defaults_from_the_path() -> None:
    content = block(1, block(1, "n"))
    for api_version, kind in (("", ""), ("v1", ""), ("", "ConfigMap")):
        decoded = decode(body(api_version, kind, content), "v1", "ConfigMap")
        assert decoded == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}
    assert decode(body("v1", "Secret", b""), "v1", "ConfigMap")["kind"] == "Secret"


def test_protobuf_invalid_utf_8_text_is_replaced_like_go() -> None:
    entry = block(2, block(1, "k") + block(2, b"a\xff\xe4\xbdb"))
    assert read("v1", "ConfigMap", entry)["data"] == {"k": "a\ufffd\ufffd\ufffdb"}


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_protobuf_unknown_kind_is_rejected() -> None:
    assert refusal(body("v1", "Poem", b"")) == 'no kind "Poem" is registered for version "v1"'
    refusal(body("../../etc/v1", "ConfigMap", b""))
    refusal(body("v1", "ObjectMeta", b""))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (MAGIC, "empty body"),
        (body("v1", "ConfigMap", b"")[:-1], "unexpected EOF"),
    ],
)
def test_protobuf_body_without_valid_envelope_is_malformed(data: bytes, problem: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode(data, "v1", "ConfigMap")
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    "api_version", ["\0/v1", "a" * 300 + "/v1", "v1" * 200, "core/../v1", "/core/v1", "core/v1/../v1"]
)
def test_protobuf_invalid_api_version_is_rejected(api_version: str) -> None:
    """The words of the body became part of a path, and of an error that was answered with a 500."""
    assert refusal(body(api_version, "ConfigMap", b"")).startswith("no kind")


def test_protobuf_truncated_content_raises_unfit_with_kind() -> None:
    with pytest.raises(Unfit) as caught:
        decode(body("v1", "ConfigMap", b"\x0a\x7f"), "v1", "Secret")
    assert (caught.value.api_version, caught.value.kind, str(caught.value)) == ("v1", "ConfigMap", "unexpected EOF")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        MAGIC[:3],
        MAGIC,
        MAGIC + number(1, 5),
        MAGIC + number(1, 2**40),
        MAGIC + block(1, number(1, 2**40)),
        MAGIC + block(1, block(1, b"\xff")),
        body("v1", "ConfigMap", b"\x08"),
        body("v1", "ConfigMap", b"\x80" * 11),
        body("v1", "ConfigMap", b"\x0b"),
        body("v1", "ConfigMap", varint(1 << 3 | 2) + varint(2**60)),
        body("v1", "ConfigMap", number(1, 5)),
        body("v1", "ConfigMap", number(2, 5)),
        body("v1", "ConfigMap", block(2, number(1, 2**40))),
        body("v1", "ConfigMap", block(1, number(1, 2**40))),
        body("v1", "ConfigMap", block(1, block(7, b"x"))),
        body("v1", "ConfigMap", block(1, number(8, 5))),
        body("v1", "ConfigMap", block(1, block(8, number(1, 2**62)))),
        body("v1", "ConfigMap", block(1, block(8, block(1, b"")))),
        body("v1", "ConfigMap", block(1, block(17, number(7, 3)))),
        body("v1", "ConfigMap", block(1, block(17, block(7, number(1, 2**40))))),
        body("v1", "ConfigMap", block(1, block(17, block(7, block(1, "{"))))),
        body("v1", "ConfigMap", block(1, block(17, block(7, block(1, "[" * 500 + "]" * 500))))),
        body("v1", "ConfigMap", block(1, block(17, block(7, block(1, "[" * 100_000 + "]" * 100_000))))),
        body("v1", "Service", block(2, block(1, number(4, 1)))),
        body("v1", "Service", block(2, block(1, block(4, block(1, b""))))),
    ],
)
def test_malformed_protobuf_is_rejected(data: bytes) -> None:
    refusal(data)


def test_protobuf_too_deeply_nested_schema_is_rejected() -> None:
    content = b""
    for _ in range(3_000):
        content = block(24, block(1, content))
    version = block(7, block(4, block(1, content)))
    refusal(body("apiextensions.k8s.io/v1", "CustomResourceDefinition", block(2, version)))


KINDS = [("v1", "Pod"), ("v1", "Secret"), ("apps/v1", "Deployment"), ("v1", "Event"), ("v1", "DeleteOptions")]
KINDS += [("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("coordination.k8s.io/v1", "Lease")]
FIELDS = st.integers(1, 40)
MESSAGES = st.recursive(
    st.binary(max_size=12) | st.text(max_size=6).map(str.encode),
    lambda inner: st.lists(
        st.builds(block, FIELDS, inner)
        | st.builds(number, FIELDS, st.integers(0, 2**64))
        | st.builds(double, FIELDS, st.floats()),
        max_size=4,
    ).map(b"".join),
    max_leaves=12,
)


def outcome(data: bytes) -> str:
    """Anything but an object or one of the two refusals fails the test."""
    try:
        return str(decode(data)["kind"])
    except (Malformed, Unfit):
        return "refused"


@given(st.sampled_from(KINDS), MESSAGES)
@example(("v1", "Pod"), block(2, number(5, 2**63)))
def test_arbitrary_protobuf_content_decodes_or_is_rejected(kind: tuple[str, str], content: bytes) -> None:
    assert outcome(body(*kind, content)) in (kind[1], "refused")


@given(st.binary(max_size=40))
def test_arbitrary_protobuf_envelope_decodes_or_is_rejected(data: bytes) -> None:
    assert outcome(MAGIC + data)
