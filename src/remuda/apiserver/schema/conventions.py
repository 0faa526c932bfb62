"""Rules of apiextensions/v1 for a CRD's schema besides being structural: keywords, lists, maps and CEL rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from remuda.apiserver.schema.invariants import fields_of, list_map_keys
from remuda.apiserver.schema.read import Props, clauses, rules_of, texts
from remuda.kube.errors import FieldError, forbidden, invalid, not_supported, required

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META = ("metadata", "kind", "apiVersion")
_LIST_TYPE, _MAP_TYPE, _KEYS = "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys"
_has_line_break = re.compile(r"[\n\r]").search


class _Place(NamedTuple):
    """Position of a node in the schema, with the facts that the checks depend on."""

    is_root: bool = False
    inside_meta: bool = False
    no_defaults: str = ""  # why a default is not allowed here


def convention_errors(props: Props, path: str) -> list[FieldError]:
    return list(_errors(props, path, _Place(is_root=True)))


def _errors(props: Props, path: str, place: _Place) -> Iterator[FieldError]:
    yield from _keyword_errors(props, path, place)
    if props.get("uniqueItems") is True:
        said = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", said)
    yield from _nested_errors(props, path, place)
    if props.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    yield from _topology_errors(props, path)
    if props.get(_LIST_TYPE) == "map":
        yield from _list_map_errors(props, path)
    yield from _key_errors(props, path)
    for index, rule in enumerate(rules_of(props)):
        yield from _rule_errors(rule, props, f"{path}.x-kubernetes-validations[{index}]")


def _keyword_errors(props: Props, path: str, place: _Place) -> Iterator[FieldError]:
    kind = props.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if place.no_defaults and props.get("default") is not None:
        yield forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for keyword in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if props.get(keyword):
            yield forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(props.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.inside_meta and props.get("x-kubernetes-embedded-resource") is True:
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")


def _nested_errors(props: Props, path: str, place: _Place) -> Iterator[FieldError]:
    below = place._replace(is_root=False)
    more, fields = props.get("additionalProperties"), fields_of(props)
    if fields and more is not None and more is not True:
        said = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", said)
    if isinstance(more, dict):
        why = "inside additionalProperties applying to object metadata"
        inner = below._replace(no_defaults=why) if place.inside_meta else below
        yield from _errors(more, f"{path}.additionalProperties", inner)
    is_object = place.is_root or props.get("x-kubernetes-embedded-resource") is True
    for name, field in fields.items():
        inner = below._replace(inside_meta=True) if is_object and name in _META else below
        if place.is_root and name in _META:
            inner = inner._replace(no_defaults=f"in top-level {name}")
        yield from _errors(field, f"{path}.properties[{name}]", inner)
    if isinstance(props.get("not"), dict):
        yield from _errors(props["not"], f"{path}.not", below)
    for key in ("allOf", "oneOf", "anyOf"):
        for index, clause in enumerate(clauses(props, key)):
            yield from _errors(clause, f"{path}.{key}[{index}]", below)
    if isinstance(props.get("items"), dict):
        yield from _errors(props["items"], f"{path}.items", below)


def _topology_errors(props: Props, path: str) -> Iterator[FieldError]:
    kind = props.get("type") or ""
    for keyword, wanted, allowed in (
        (_MAP_TYPE, "object", ("atomic", "granular")),
        (_LIST_TYPE, "array", ("atomic", "set", "map")),
    ):
        given = props.get(keyword)
        if given is None:
            continue
        if kind != wanted:
            said = f"must be {wanted} if {keyword} is specified"
            yield invalid(f"{path}.type", kind, said) if kind else required(f"{path}.type", said)
        elif given == "set":
            yield from _set_item_errors(props.get("items"), path)
        if given not in allowed:
            yield not_supported(f"{path}.{keyword}", given, allowed)


def _set_item_errors(items: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(items, dict):
        return
    said = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get(_LIST_TYPE)
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.items.{_LIST_TYPE}", list_type, said)
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield invalid(f"{path}.items.{_MAP_TYPE}", list_type, said)


def _list_map_errors(props: Props, path: str) -> Iterator[FieldError]:
    keys, items = list_map_keys(props), props.get("items")
    if not keys:
        yield required(f"{path}.{_KEYS}", "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    if isinstance(items, list):
        yield invalid(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
    if not isinstance(items, dict):
        return
    if items.get("type") != "object":
        said = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", said)
        return
    for index, key in enumerate(keys):
        yield from _list_map_key_errors(key, keys, index, items, path)


def _list_map_key_errors(key: str, keys: tuple[str, ...], index: int, items: Props, path: str) -> Iterator[FieldError]:
    field = fields_of(items).get(key)
    if field is None:
        yield invalid(f"{path}.{_KEYS}", list(keys), "entries must all be names of item properties")
    elif field.get("type") in ("array", "object"):
        said = "must be a scalar type if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.properties[{key}].type", items.get("type"), said)
    if key in keys[:index]:
        yield invalid(f"{path}.{_KEYS}", list(keys), "must not contain duplicate entries")


def _key_errors(props: Props, path: str) -> Iterator[FieldError]:
    keys, list_type, items = list_map_keys(props), props.get(_LIST_TYPE), props.get("items")
    if keys and list_type != "map":
        said = f"must be map if {_KEYS} is non-empty"
        yield invalid(f"{path}.{_LIST_TYPE}", list_type, said) if list_type else required(f"{path}.{_LIST_TYPE}", said)
    if not isinstance(items, dict) or list_type not in ("set", "map"):
        return
    if items.get("nullable") is True:
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    needed, fields = texts(items.get("required")), fields_of(items)
    for key in keys if list_type == "map" else ():
        field = fields.get(key)
        if field is None:
            continue
        said = f"this property is in {_KEYS}, so it"
        if key not in needed and field.get("default") is None:
            at = f"{path}.items.properties[{key}].default"
            yield required(at, f"{said} must have a default or be a required property")
        if field.get("nullable") is True:
            yield forbidden(f"{path}.items.properties[{key}].nullable", f"{said} cannot be nullable")


def _rule_errors(rule: Props, props: Props, path: str) -> Iterator[FieldError]:
    text, message = str(rule.get("rule") or ""), str(rule.get("message") or "")
    if not text.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_line_break(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_line_break(text.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = str(rule.get("messageExpression") or "")
    if expression and not expression.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)
    yield from _field_path_errors(str(rule.get("fieldPath") or ""), props, f"{path}.fieldPath")


def _field_path_errors(given: str, props: Props, path: str) -> Iterator[FieldError]:
    if not given:
        return
    if not given.strip():
        yield invalid(path, given, "must be non-empty if specified")
    if _has_line_break(given):
        yield invalid(path, given, "must not contain line breaks")
    if not _leads_to_a_field(given, props):
        yield invalid(path, given, "must be a valid path")


_path_step = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]").match


def _leads_to_a_field(given: str, props: Props) -> bool:
    """Return whether a path such as `.spec.list` or `.labels['a.b']`, from the node with the rule, leads to a field."""
    position, here = 0, props
    while position < len(given):
        step = _path_step(given, position)
        if step is None:
            return False
        name = step[1] if step[1] is not None else step[2].replace("\\'", "'").replace("\\\\", "\\")
        fields, more = fields_of(here), here.get("additionalProperties")
        inner = fields.get(name) if fields else more if isinstance(more, dict) else None
        if inner is None:
            return False
        here, position = inner, step.end()
    return True
