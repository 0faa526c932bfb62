from __future__ import annotations

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from remuda.access import definitions as access
from remuda.apiserver.registry import crd_schemas
from remuda.apiserver.registry.crd_schemas import compiled, is_large, schema_errors
from remuda.capi import definitions as core
from remuda.kube.cost import LIMITS
from remuda.providers import setup as providers
from remuda.provisioning import setup as provisioning
from tests.unit.apiserver.engine import CRDS, Engine, definition, refusal

RULED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.a <= self.b"}],
        }
    },
}


def version(schema: dict[str, Any] | None, name: str = "v1", **more: Any) -> dict[str, Any]:
    given = {} if schema is None else {"schema": {"openAPIV3Schema": schema}}
    return {"name": name, "served": True, "storage": name == "v1", **given, **more}


def crd(*versions: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"versions": list(versions)}}


def test_validated_crd_schema_is_compiled_once_and_cached() -> None:
    one = version(RULED)
    assert schema_errors(crd(one)) == []
    first = compiled(one)
    assert first.rules is not None
    assert compiled(version(dict(RULED), description="another copy")) is first


def test_crd_rules_are_enforced_after_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crd_schemas, "_good", OrderedDict())
    rules = compiled(version(RULED)).rules
    assert rules is not None
    assert rules.validate({"spec": {"a": 1, "b": 1}}, None, "") == []
    (complaint,) = rules.validate({"spec": {"a": 2, "b": 1}}, None, "")
    assert complaint.path == "spec"


def test_startup_does_not_compile_crd_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(*_: object) -> None:
        raise AssertionError("nobody has written an object yet")

    monkeypatch.setattr(crd_schemas, "_good", OrderedDict())
    monkeypatch.setattr(crd_schemas, "compile_rules", compile_nothing)
    assert compiled(version(RULED)).rules is not None
    assert compiled(version({"type": "object"})).rules is None


def test_crd_schema_check_depends_on_status_subresource() -> None:
    odd = {"type": "object", "nullable": False, "allOf": [{"required": ["spec"]}]}
    assert schema_errors(crd(version(odd))) == []
    (complaint,) = schema_errors(crd(version(odd, subresources={"status": {}})))
    assert "at the root of the schema if the status subresource is enabled" in complaint.detail


def test_invalid_crd_schema_is_reported_every_time() -> None:
    bad = {"type": "object", "properties": {"spec": {"properties": {}}}}
    for _ in range(2):
        (complaint,) = schema_errors(crd(version(bad)))
        assert complaint.path == "spec.validation.openAPIV3Schema.properties[spec].type"


def test_crd_schema_error_path_names_the_version() -> None:
    bad = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "1 +"}]}}}
    complaints = schema_errors(crd(version(RULED), version(bad, "v2")))
    assert [c.path for c in complaints] == [
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    ]


def test_crd_version_without_schema_preserves_unknown_fields() -> None:
    assert compiled(version(None)).schema.preserve_unknown


def test_compiled_crd_schema_cache_is_bounded() -> None:
    for n in range(200):
        compiled(version({"type": "object", "description": str(n)}))
    assert len(crd_schemas._good) <= 64


def properties(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{n}": {"type": "string", **more} for n in range(count)}}


@pytest.mark.parametrize(
    ("versions", "complaint"),
    [
        ([version(properties(50_000))], "spec.versions: Too many: 50002: must have at most 20000 schema nodes"),
        (
            [version({"type": "object", "x-kubernetes-validations": [{"rule": "self.a == self.b"}] * 3000})],
            "spec.versions: Too many: 3000: must have at most 1000 x-kubernetes-validations rules",
        ),
        (
            [version({"type": "object", "x-kubernetes-validations": [{"rule": "true || " * 20_000 + "true"}]})],
            "spec.versions: Too many: 160004: must have at most 100000 characters in CEL expressions",
        ),
        (
            [version({**properties(9000), "x-kubernetes-validations": [{"rule": "self == self"}] * 900})],
            "Too many: 8101800: must have at most 2000000 schema nodes times rules",
        ),
        ([version({"type": "string", "anyOf": [{"pattern": "a"}] * 20_000})], "must have at most 20000 schema nodes"),
        ([version(properties(1), f"v{n}") for n in range(1, 102)], "Too many: 101: must have at most 100 items"),
        ([version(properties(12_000), "v1"), version(properties(12_001), "v2")], "at most 20000 schema nodes"),
    ],
)
def test_crd_above_size_limit_is_rejected_before_compilation(versions: list[dict[str, Any]], complaint: str) -> None:
    started = time.process_time()
    (found,) = schema_errors(crd(*versions))
    assert time.process_time() - started < 0.5
    assert complaint in str(found)


def test_crd_is_large_by_schema_nodes_or_rules() -> None:
    assert not is_large(crd(version(properties(100))))
    assert is_large(crd(version(properties(2000))))
    assert is_large(crd(version({"type": "object", "x-kubernetes-validations": [{"rule": "true"}] * 101})))


@pytest.mark.parametrize("text", [{"type": "string"}, {}])
async def test_large_crd_is_validated_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: dict[str, Any]
) -> None:
    judged_in: list[int] = []
    parse = crd_schemas.parse_crd_schema

    def recorded(*arguments: Any, **named: Any) -> Any:
        judged_in.append(threading.get_ident())
        return parse(*arguments, **named)

    monkeypatch.setattr(crd_schemas, "parse_crd_schema", recorded)
    monkeypatch.setattr(crd_schemas, "_good", OrderedDict())
    large = definition()
    large["spec"]["versions"] = [version({"type": "object", "properties": {f"p{n}": text for n in range(2000)}})]
    engine = await Engine.open(tmp_path)
    try:
        if text:
            await engine.client.create(CRDS, "", large)
        else:
            error = await refusal(engine.client.create(CRDS, "", large))
            assert error.code == 422
            assert "p0].type: Required value" in error.message
    finally:
        await engine.close()
    assert judged_in
    assert threading.get_ident() not in judged_in


def test_crd_limits_are_far_above_built_in_crds() -> None:
    for one in [*core.definitions(), *providers.definitions(), *provisioning.definitions(), *access.definitions()]:
        size = crd_schemas._measure([v["schema"]["openAPIV3Schema"] for v in one["spec"]["versions"]])
        assert size.nodes * 10 < LIMITS.schema_nodes, one["metadata"]["name"]
        assert size.rules * 10 < LIMITS.rules
        assert size.characters * 10 < LIMITS.expression_characters
