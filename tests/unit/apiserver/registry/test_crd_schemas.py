from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from remuda.apiserver.registry import crd_schemas
from remuda.apiserver.registry.crd_schemas import compiled, schema_errors

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


def test_what_was_found_good_is_served_as_it_was_compiled() -> None:
    one = version(RULED)
    assert schema_errors(crd(one)) == []
    first = compiled(one)
    assert first.rules is not None
    assert compiled(version(dict(RULED), description="another copy")) is first


def test_rules_that_were_judged_in_an_earlier_life_hold_from_the_first_object_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crd_schemas, "_good", OrderedDict())
    rules = compiled(version(RULED)).rules
    assert rules is not None
    assert rules.validate({"spec": {"a": 1, "b": 1}}, None, "") == []
    (complaint,) = rules.validate({"spec": {"a": 2, "b": 1}}, None, "")
    assert complaint.path == "spec"


def test_a_start_compiles_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_nothing(*_: object) -> None:
        raise AssertionError("nobody has written an object yet")

    monkeypatch.setattr(crd_schemas, "_good", OrderedDict())
    monkeypatch.setattr(crd_schemas, "compile_rules", compile_nothing)
    assert compiled(version(RULED)).rules is not None
    assert compiled(version({"type": "object"})).rules is None


def test_a_status_subresource_is_judged_by_itself() -> None:
    odd = {"type": "object", "nullable": False, "allOf": [{"required": ["spec"]}]}
    assert schema_errors(crd(version(odd))) == []
    (complaint,) = schema_errors(crd(version(odd, subresources={"status": {}})))
    assert "at the root of the schema if the status subresource is enabled" in complaint.detail


def test_a_bad_schema_is_complained_of_every_time() -> None:
    bad = {"type": "object", "properties": {"spec": {"properties": {}}}}
    for _ in range(2):
        (complaint,) = schema_errors(crd(version(bad)))
        assert complaint.path == "spec.validation.openAPIV3Schema.properties[spec].type"


def test_versions_that_differ_are_named() -> None:
    bad = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "1 +"}]}}}
    complaints = schema_errors(crd(version(RULED), version(bad, "v2")))
    assert [c.path for c in complaints] == [
        "spec.versions[1].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    ]


def test_without_a_schema_anything_is_kept() -> None:
    assert compiled(version(None)).schema.preserve_unknown


def test_only_the_newest_are_remembered() -> None:
    for n in range(200):
        compiled(version({"type": "object", "description": str(n)}))
    assert len(crd_schemas._good) <= 64
