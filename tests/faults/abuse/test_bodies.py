"""Bodies made to hurt whoever decodes them: each refused with the Status a user expects, in time and in memory."""

from __future__ import annotations

import pytest

from tests.faults.abuse.conftest import Bounded
from tests.faults.abuse.victim import CONFIGMAPS, Victim

YAML = {"Content-Type": "application/yaml"}
SOON = 3.0  # seconds of the server, as `Victim.needs_at_most` counts them


def refused(victim: Victim, body: bytes, headers: dict[str, str] | None = None) -> dict[str, object]:
    with victim.needs_at_most(SOON):
        reply = victim.http("POST", CONFIGMAPS, body, headers)
    assert reply.code in (400, 413, 422), reply
    assert reply.body["kind"] == "Status"
    assert reply.body["status"] == "Failure"
    assert reply.body["reason"] in ("BadRequest", "Invalid", "RequestEntityTooLarge")
    return dict(reply.body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"metadata":',
        b'{"metadata":{"name":"x"}}garbage',
        b"\xff\xfe{}",
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{"name":"a\\ud800"}}',
        b'{"metadata":{"name":1e999}}',
        b'{"metadata":' + b"9" * 100_000 + b"}",
        b'{"metadata":{"name":"x"},"data":{"a":NaN}}',
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"' + b"x" * 1_000_000 + b'"}}',
    ],
)
def test_malformed_object_body_is_rejected(victim: Victim, body: bytes) -> None:
    refused(victim, body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deeply_nested_json_is_rejected(victim: Victim, bounded: Bounded, opening: bytes) -> None:
    depth = 2_900_000 // len(opening)
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[opening]
    with bounded(40):
        refused(victim, opening * depth)
        most = 2_900_000 // (len(opening) + len(closing))
        refused(victim, b'{"metadata":{"name":"deep"},"x":' + opening * most + b"1" + closing * most + b"}")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"{a: " * 500_000,
        b"- " * 500_000,
        b"? " * 500_000,
        b"\n".join(b" " * depth + b"a:" for depth in range(2000)),
        b"a: &a [" + b"*a," * 10 + b"]",
        b"&a a: *b",
        b"!!python/object/apply:os.system [id]",
        b"a: !!binary x\n" + b"%YAML 9.9",
        b"a: 'unclosed",
        b"\x00\x01\x02",
        b"? [complex, key]\n: value",
    ],
)
def test_hostile_yaml_is_rejected(victim: Victim, bounded: Bounded, body: bytes) -> None:
    with bounded(60):
        refused(victim, body, YAML)


def test_yaml_alias_bomb_is_rejected(victim: Victim, bounded: Bounded) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    merged = ["m0: &m0 {x: y}"]
    merged += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    with bounded(60):
        said = refused(victim, "\n".join(lines).encode(), YAML)
        assert "excessive aliasing" in str(said["message"])
        refused(victim, "\n".join(merged).encode(), YAML)


def test_body_with_too_many_fields_returns_413(victim: Victim, bounded: Bounded) -> None:
    """Within the limit of bytes, and above that of values."""
    fields = b",".join(b'"k%d":""' % n for n in range(200_000))
    with bounded(150):
        with victim.needs_at_most(1):
            reply = victim.http("POST", CONFIGMAPS, b'{"metadata":{"name":"wide"},"data":{' + fields + b"}}")
        assert reply.code == 413, reply


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        ("application/json-patch+json", b'[{"op":"copy","from":"","path":"/data/a"}]' * 1, 422),
        ("application/json-patch+json", b"[" + b'{"op":"test","path":"/a","value":1},' * 20_000 + b"{}]", 413),
        ("application/json-patch+json", b'{"not":"a list"}', 400),
        ("application/merge-patch+json", b'{"data":' * 5000 + b"1" + b"}" * 5000, 400),
        ("application/strategic-merge-patch+json", b'{"data":' * 5000 + b"1" + b"}" * 5000, 400),
        ("application/apply-patch+yaml", b"a: [" * 5000, 400),
        ("application/unknown-patch", b"{}", 415),
    ],
)
def test_hostile_patch_is_rejected_with_status(victim: Victim, kind: str, patch: bytes, code: int) -> None:
    made = victim.http("POST", CONFIGMAPS, {"metadata": {"generateName": "patched-"}, "data": {"k": "v"}})
    path = f"{CONFIGMAPS}/{made.body['metadata']['name']}?fieldManager=abuse"
    with victim.needs_at_most(SOON):
        reply = victim.http("PATCH", path, patch, {"Content-Type": kind})
    assert reply.code == code, reply
    assert reply.body["kind"] == "Status"


def test_json_patch_copy_bomb_is_rejected(victim: Victim, bounded: Bounded) -> None:
    """Each operation doubles the object: refused long before it is large."""
    made = victim.http("POST", CONFIGMAPS, {"metadata": {"generateName": "bomb-"}, "data": {"k": "v" * 1000}})
    operations = [b'{"op":"copy","from":"/data","path":"/data/d%d"}' % n for n in range(40)]
    path = f"{CONFIGMAPS}/{made.body['metadata']['name']}"
    with bounded(60):
        with victim.needs_at_most(SOON):
            reply = victim.http(
                "PATCH", path, b"[" + b",".join(operations) + b"]", {"Content-Type": "application/json-patch+json"}
            )
        assert reply.code in (400, 413, 422), reply


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=" + "a%3Db," * 3000 + "a",
        "labelSelector=" + "(" * 10_000,
        "labelSelector=a+in+(" + "x," * 10_000 + "x)",
        "fieldSelector=" + "metadata.name%3Dx," * 2000,
        "fieldSelector=spec.unknown%3Dx",
        "limit=99999999999999999999999",
        "continue=" + "A" * 50_000,
        "resourceVersion=-5",
        "resourceVersion=" + "9" * 5000,
        "timeoutSeconds=never&watch=1",
        "&".join(f"a{n}=1" for n in range(1500)),
    ],
)
def test_hostile_query_is_answered_without_server_error(victim: Victim, query: str) -> None:
    with victim.needs_at_most(SOON + 3):  # the server waits three seconds for a future revision
        reply = victim.http("GET", f"{CONFIGMAPS}?{query}")
    assert reply.code < 500 or reply.body["reason"] == "Timeout", reply
