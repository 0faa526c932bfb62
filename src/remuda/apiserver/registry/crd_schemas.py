"""Schemas of definitions: checked at each write, compiled once, and served in compiled form.

Checking and compiling the schemas of a large definition takes tens of milliseconds. The most recent valid ones are
cached, so that a definition is compiled once between its write and its use, and a change of its labels costs nothing.
The size of a definition is limited; a large one is checked in a thread.

Stored definitions were checked before: they are only parsed, and their rules are compiled for the first object of the
kind, so that unused kinds do not slow down a start.
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
from remuda.kube.cost import LIMITS
from remuda.kube.errors import TOO_MANY, FieldError, too_many
from remuda.kube.schema import Schema

_FREE_FORM: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KEPT = 64
_LARGE = 1_000  # schema nodes: checking them takes about 20 ms
_MANY_RULES = 100  # compiling them takes about 20 ms


class Compiled(NamedTuple):
    schema: Schema
    rules: RulesValidator | None


class _Uncompiled:
    """Rules of a schema that was checked before, compiled at first use."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    @cached_property
    def _rules(self) -> RulesValidator | None:
        return compile_rules(self._schema, "")[0]

    def validate(self, obj: Obj, old: Obj | None, path: str, warnings: list[str] | None = None) -> list[FieldError]:
        return [] if self._rules is None else self._rules.validate(obj, old, path, warnings)


# Key: the schema's JSON, and whether there is a status subresource, which adds a few checks of the root.
_good: OrderedDict[tuple[bytes, bool], Compiled] = OrderedDict()


def compiled(version: dict[str, Any]) -> Compiled:
    """Return the schema and rules of a version that was checked before."""
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
    """Return the errors in the schemas and CEL rules of a definition, version by version."""
    errors = _size_errors(crd)
    if errors:
        return errors
    versions = crd.get("spec", {}).get("versions", [])
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    if len(schemas) > 1 and all(schema == schemas[0] for schema in schemas):
        # upstream checks a schema that all versions share once, and reports it so
        versions, schemas = versions[:1], schemas[:1]
    for i, (version, given) in enumerate(zip(versions, schemas, strict=True)):
        if given is None:
            continue  # reported as required by the kind's own validation
        shared = len(schemas) == 1
        path = "spec.validation.openAPIV3Schema" if shared else f"spec.versions[{i}].schema.openAPIV3Schema"
        errors += _judge(given, path, _has_status(version))
    return errors


def is_large(crd: Obj) -> bool:
    """Return whether checking the schemas of a definition takes so long that other requests should not wait for it."""
    size = _measure(_schemas(crd))
    return size.nodes > _LARGE or size.rules > _MANY_RULES


def _schemas(crd: Obj) -> list[dict[str, Any]]:
    found = ((version.get("schema") or {}).get("openAPIV3Schema") for version in crd["spec"].get("versions") or ())
    return [given for given in found if given is not None]


class _Size(NamedTuple):
    nodes: int
    rules: int
    characters: int


def _measure(schemas: list[dict[str, Any]]) -> _Size:
    """Count the objects in schemas, which are mostly their nodes, and the size of their CEL expressions."""
    nodes = rules = characters = 0
    pending: list[Any] = list(schemas)
    while pending:
        one = pending.pop()
        if type(one) is list:
            pending += [inner for inner in one if type(inner) in _CONTAINERS]
            continue
        nodes += 1
        pending += [inner for name, inner in one.items() if type(inner) in _CONTAINERS and name != _RULES]
        found = one.get(_RULES)
        for rule in found if type(found) is list else ():
            rules += 1
            if type(rule) is dict:
                expressions = (rule.get("rule"), rule.get("messageExpression"))
                characters += sum(len(text) for text in expressions if type(text) is str)
    return _Size(nodes, rules, characters)


_RULES = "x-kubernetes-validations"
_CONTAINERS = frozenset((dict, list))


def _size_errors(crd: Obj) -> list[FieldError]:
    """Return an error for each limit that all versions of a definition together exceed."""
    versions = crd["spec"].get("versions") or ()
    if len(versions) > LIMITS.versions:
        return [too_many("spec.versions", len(versions), LIMITS.versions)]
    size = _measure(_schemas(crd))
    bounds = (
        (size.nodes, LIMITS.schema_nodes, "schema nodes"),
        (size.rules, LIMITS.rules, "x-kubernetes-validations rules"),
        (size.characters, LIMITS.expression_characters, "characters in CEL expressions"),
        (size.nodes * size.rules, LIMITS.compiled_terms, "schema nodes times rules"),
    )
    return [
        FieldError(TOO_MANY, "spec.versions", found, f"must have at most {most} {what}")
        for found, most, what in bounds
        if found > most
    ]


def _judge(given: dict[str, Any], path: str, has_status: bool) -> list[FieldError]:
    key = (msgspec.json.encode(given), has_status)
    if key in _good:
        return []
    schema, errors = parse_crd_schema(given, path=path, has_status=has_status)
    rules = None
    if not errors:
        rules, errors = compile_rules(schema, path)
    if not errors:
        _keep(key, Compiled(schema, rules))
    return errors


def _keep(key: tuple[bytes, bool], good: Compiled) -> None:
    _good[key] = good
    if len(_good) > _KEPT:
        _good.popitem(last=False)
