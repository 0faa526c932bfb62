"""Conversion of a CRD's JSONSchemaProps into a Schema. It judges nothing: `parse.py` reports errors.

Values of a wrong type are dropped. Stored CRDs have valid types, but programs may also pass in any dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.kube.schema import Rule, Schema

Props = Mapping[str, Any]

_TEXTS = (
    ("type", "type"),
    ("format", "format"),
    ("title", "title"),
    ("description", "description"),
    ("pattern", "pattern"),
    ("map_type", "x-kubernetes-map-type"),
    ("list_type", "x-kubernetes-list-type"),
)
_FLAGS = (
    ("nullable", "nullable"),
    ("unique_items", "uniqueItems"),
    ("exclusive_minimum", "exclusiveMinimum"),
    ("exclusive_maximum", "exclusiveMaximum"),
    ("preserve_unknown", "x-kubernetes-preserve-unknown-fields"),
    ("embedded_resource", "x-kubernetes-embedded-resource"),
    ("int_or_string", "x-kubernetes-int-or-string"),
)
_COUNTS = (
    ("min_properties", "minProperties"),
    ("max_properties", "maxProperties"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
)
_NUMBERS = (("minimum", "minimum"), ("maximum", "maximum"), ("multiple_of", "multipleOf"))
_JUNCTORS = (("all_of", "allOf"), ("any_of", "anyOf"), ("one_of", "oneOf"))
_STATABLE = (("x-kubernetes-list-type", "atomic"), ("x-kubernetes-map-type", "granular"))


def read_schema(props: Any) -> Schema:
    if not isinstance(props, Mapping):
        return Schema()
    found: dict[str, Any] = {}
    _read_scalars(props, found)
    _read_shape(props, found)
    _read_rest(props, found)
    return Schema(**found)


def _read_scalars(props: Props, found: dict[str, Any]) -> None:
    for name, key in _TEXTS:
        if isinstance(value := props.get(key), str) and value:
            found[name] = value
    for name, key in _FLAGS:
        if props.get(key) is True:
            found[name] = True
    for name, key in _COUNTS:
        if (count := _whole(props.get(key))) is not None:
            found[name] = count
    for name, key in _NUMBERS:
        if (number := _number(props.get(key))) is not None:
            found[name] = number


def _read_shape(props: Props, found: dict[str, Any]) -> None:
    if isinstance(fields := props.get("properties"), Mapping) and fields:
        found["properties"] = {name: read_schema(field) for name, field in fields.items()}
    more = props.get("additionalProperties")
    if isinstance(more, Mapping):
        found["additional"] = read_schema(more)
    elif isinstance(more, bool):
        found["additional"] = Schema()
        found["additional_forbidden"] = not more
    if isinstance(items := props.get("items"), Mapping):
        found["items"] = read_schema(items)


def _read_rest(props: Props, found: dict[str, Any]) -> None:
    found["required"] = texts(props.get("required"))
    found["list_map_keys"] = texts(props.get("x-kubernetes-list-map-keys"))
    if isinstance(choices := props.get("enum"), list):
        found["enum"] = tuple(choices)
    for name, key in _JUNCTORS:
        found[name] = clauses(props, key)
    if isinstance(not_ := props.get("not"), Mapping):
        found["not_"] = dict(not_)
    if props.get("default") is not None:
        found["default"] = props["default"]
    if props.get("example") is not None:
        found["example"] = props["example"]
    if isinstance(docs := props.get("externalDocs"), Mapping):
        found["external_docs"] = {k: v for k, v in docs.items() if isinstance(v, str)}
    found["rules"] = tuple(_rule(rule) for rule in rules_of(props))
    found["stated"] = frozenset(key for key, default in _STATABLE if props.get(key) == default)


def rules_of(props: Props) -> list[Props]:
    rules = props.get("x-kubernetes-validations")
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []


def clauses(props: Props, key: str) -> tuple[dict[str, Any], ...]:
    given = props.get(key)
    return tuple(dict(clause) for clause in given if isinstance(clause, Mapping)) if isinstance(given, list) else ()


def texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _rule(rule: Props) -> Rule:
    old_self = rule.get("optionalOldSelf")
    return Rule(
        rule=_text(rule, "rule"),
        message=_text(rule, "message"),
        message_expression=_text(rule, "messageExpression"),
        reason=_text(rule, "reason") or "FieldValueInvalid",
        field_path=_text(rule, "fieldPath"),
        optional_old_self=old_self if isinstance(old_self, bool) else None,
    )


def _text(props: Props, key: str) -> str:
    value = props.get(key)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
