"""The schemas inside definitions: judged when one is written, compiled once, and served as compiled.

Judging and compiling the schemas of a large definition takes tens of milliseconds. The newest that were found good are
kept, so that a definition is compiled once on its way from the write to being served, and a change of its labels costs
nothing. What is in the store was judged before: it is only read, and its rules are compiled for the first object that
they are asked about, so that a start pays for no kind that nobody uses.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from remuda.apiserver.cel.rules import compile_rules, has_rules
from remuda.apiserver.resource import Obj
from remuda.apiserver.schema.parse import parse_crd_schema, read_crd_schema
from remuda.apiserver.schema.walk import RulesValidator
from remuda.kube.errors import FieldError
from remuda.kube.schema import Schema

_FREE_FORM: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KEPT = 64


class Compiled(NamedTuple):
    schema: Schema
    rules: RulesValidator | None


class _Uncompiled:
    """The rules of a schema that has been judged before, until they are needed."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    @cached_property
    def _rules(self) -> RulesValidator | None:
        return compile_rules(self._schema, "")[0]

    def validate(self, obj: Obj, old: Obj | None, path: str, warnings: list[str] | None = None) -> list[FieldError]:
        return [] if self._rules is None else self._rules.validate(obj, old, path, warnings)


# By the schema's JSON, and whether there is a status subresource: then a little more is asked of the root.
_good: OrderedDict[tuple[bytes, bool], Compiled] = OrderedDict()


def compiled(version: dict[str, Any]) -> Compiled:
    """The schema and rules of a version that has been judged before."""
    given = (version.get("schema") or {}).get("openAPIV3Schema") or _FREE_FORM
    key = (msgspec.json.encode(given), _has_status(version))
    known = _good.get(key)
    if known is None:
        schema = read_crd_schema(given)
        known = Compiled(schema, _Uncompiled(schema) if has_rules(schema) else None)
        _keep(key, known)
    return known


def _has_status(version: dict[str, Any]) -> bool:
    return "status" in (version.get("subresources") or {})


def schema_errors(crd: Obj) -> list[FieldError]:
    """What is wrong with the schemas and CEL rules of a definition, version by version."""
    errors: list[FieldError] = []
    versions = crd.get("spec", {}).get("versions", [])
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    if len(schemas) > 1 and all(schema == schemas[0] for schema in schemas):
        versions, schemas = versions[:1], schemas[:1]  # upstream checks what all versions share once, and says so
    for i, (version, given) in enumerate(zip(versions, schemas, strict=True)):
        if given is None:
            continue  # reported as required by the kind's own validation
        shared = len(schemas) == 1
        path = "spec.validation.openAPIV3Schema" if shared else f"spec.versions[{i}].schema.openAPIV3Schema"
        errors += _judge(given, path, _has_status(version))
    return errors


def _judge(given: dict[str, Any], path: str, has_status: bool) -> list[FieldError]:
    key = (msgspec.json.encode(given), has_status)
    if key in _good:
        return []
    schema, errors = parse_crd_schema(given, path=path, has_status=has_status)
    if errors:
        return errors
    rules, errors = compile_rules(schema, path)
    if not errors:
        _keep(key, Compiled(schema, rules))
    return errors


def _keep(key: tuple[bytes, bool], good: Compiled) -> None:
    _good[key] = good
    if len(_good) > _KEPT:
        _good.popitem(last=False)
