"""Checks that a schema is structural: every field has one type, declared in one place.

Types appear only outside logical junctors (allOf, anyOf, oneOf, not). Junctors only constrain values, and only of
fields that are declared outside. Only Kubernetes declares metadata.

These checks read the raw properties, because a `Schema` drops forbidden keywords (a title inside an anyOf).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remuda.apiserver.schema.formats import matcher
from remuda.apiserver.schema.read import Props, clauses, texts
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.kube.patterns import BadPattern

_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMBEDDED = "x-kubernetes-embedded-resource"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_STRING = "x-kubernetes-int-or-string"

# Keywords that define a type, and the error message when one appears inside a junctor.
_SHAPING = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (_PRESERVE, "must be false to be structural"),
    (_EMBEDDED, "must be false to be structural"),
    (_INT_STRING, "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)


def structural_errors(props: Props, path: str) -> list[FieldError]:
    found = [*_shape_errors(props, _ROOT, path), *_unspecified(props, props, path, path)]
    return sorted(found, key=str)


def fields_of(props: Props) -> dict[str, Props]:
    fields = props.get("properties")
    if not isinstance(fields, dict):
        return {}
    return {name: field for name, field in fields.items() if isinstance(field, dict)}


def _inner(props: Props, key: str) -> Props | None:
    value = props.get(key)
    return value if isinstance(value, dict) else None


def _shape_errors(props: Props, level: str, path: str) -> Iterator[FieldError]:
    items, more = _inner(props, "items"), props.get("additionalProperties")
    if props.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if items is not None:
        yield from _shape_errors(items, _ITEM, f"{path}.items")
    for name, field in fields_of(props).items():
        yield from _shape_errors(field, _FIELD, f"{path}.properties[{name}]")
    if more is not None and level is _ROOT:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(more, dict):
        yield from _shape_errors(more, _FIELD, f"{path}.additionalProperties")
    yield from _extension_errors(props, path)
    skip_any = props.get("anyOf") == _INT_OR_STRING
    all_of = clauses(props, "allOf")
    skip_first = bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING
    yield from _value_errors(props, skip_any, skip_first, path)
    yield from _type_errors(props, level, path)
    yield from _meta_errors(props, level, path)


def _extension_errors(props: Props, path: str) -> Iterator[FieldError]:
    if props.get(_INT_STRING) is not True:
        return
    for keyword in (_PRESERVE, _EMBEDDED):
        if props.get(keyword) is True:
            yield invalid(f"{path}.{keyword}", True, f"must be false if {_INT_STRING} is true")


def _type_errors(props: Props, level: str, path: str) -> Iterator[FieldError]:
    kind = props.get("type") or ""
    is_embedded = props.get(_EMBEDDED) is True
    if is_embedded and kind != "object":
        said = f"must be object if {_EMBEDDED} is true"
        yield invalid(f"{path}.type", kind, said) if kind else required(f"{path}.type", said)
    elif not kind and props.get(_INT_STRING) is not True and props.get(_PRESERVE) is not True:
        yield required(f"{path}.type", f"must not be empty {level}")
    if is_embedded and props.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if level is _ROOT and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if is_embedded and props.get(_PRESERVE) is not True and not fields_of(props):
        said = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield required(f"{path}.properties", said)


def _meta_errors(props: Props, level: str, path: str) -> Iterator[FieldError]:
    fields = fields_of(props)
    is_object = level is _ROOT or props.get(_EMBEDDED) is True
    for name in ("kind", "apiVersion"):
        if is_object and name in fields and fields[name].get("type") != "string":
            yield invalid(f"{path}.properties[{name}].type", fields[name].get("type") or "", "must be string")
    metadata = fields.get("metadata")
    if metadata is None:
        return
    if is_object and metadata.get("type") != "object":
        yield invalid(f"{path}.properties[metadata].type", metadata.get("type") or "", "must be object")
    if level is _ROOT and not _only_names(metadata):
        said = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", said)


def _only_names(metadata: Props) -> bool:
    known = {"type", "default", "properties"}
    return not any(_is_set(metadata, key) for key in metadata if key not in known) and (
        set(fields_of(metadata)) <= {"name", "generateName"}
    )


def _is_set(props: Props, key: str) -> bool:
    value = props.get(key)
    return value is not None and value is not False and value != "" and value != [] and value != {}


def _value_errors(props: Props, skip_any: bool, skip_first_all: bool, path: str) -> Iterator[FieldError]:
    if not skip_any:
        for index, clause in enumerate(clauses(props, "anyOf")):
            yield from _clause_errors(clause, False, f"{path}.anyOf[{index}]")
    for index, clause in enumerate(clauses(props, "allOf")):
        yield from _clause_errors(clause, skip_first_all and index == 0, f"{path}.allOf[{index}]")
    for index, clause in enumerate(clauses(props, "oneOf")):
        yield from _clause_errors(clause, False, f"{path}.oneOf[{index}]")
    if (not_ := _inner(props, "not")) is not None:
        yield from _clause_errors(not_, False, f"{path}.not")
    pattern = props.get("pattern")
    if isinstance(pattern, str) and pattern:
        try:
            matcher(pattern)
        except BadPattern as fault:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {fault}")


def _clause_errors(clause: Props, skip_any: bool, path: str) -> Iterator[FieldError]:
    yield from _value_errors(clause, skip_any, False, path)
    if (items := _inner(clause, "items")) is not None:
        yield from _clause_errors(items, False, f"{path}.items")
    for name, field in fields_of(clause).items():
        yield from _clause_errors(field, False, f"{path}.properties[{name}]")
    more = clause.get("additionalProperties")
    if isinstance(more, dict) or more is True:
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for keyword, said in _SHAPING:
        if _is_set(clause, keyword) or (keyword == "default" and clause.get(keyword) is not None):
            yield forbidden(f"{path}.{keyword}", said)
    if "metadata" in fields_of(clause):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _unspecified(clause: Props, shape: Props | None, shape_path: str, path: str) -> Iterator[FieldError]:
    """Yield the fields and items that only a junctor declares."""
    for place, inner in _junctor_clauses(clause, path):
        yield from _unspecified_clause(inner, shape, shape_path, place)


def _junctor_clauses(clause: Props, path: str) -> Iterator[tuple[str, Props]]:
    if (not_ := _inner(clause, "not")) is not None:
        yield f"{path}.not", not_
    for key in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(clauses(clause, key)):
            yield f"{path}.{key}[{index}]", inner


def _unspecified_clause(clause: Props, shape: Props | None, shape_path: str, path: str) -> Iterator[FieldError]:
    if shape is None:
        yield required(shape_path, f"because it is defined in {path}")
        return
    yield from _unspecified(clause, shape, shape_path, path)
    if (items := _inner(clause, "items")) is not None:
        yield from _unspecified_clause(items, _inner(shape, "items"), f"{shape_path}.items", f"{path}.items")
    known = fields_of(shape)
    for name, field in fields_of(clause).items():
        inner_path = f"{path}.properties[{name}]"
        yield from _unspecified_clause(field, known.get(name), f"{shape_path}.properties[{name}]", inner_path)


def unsupported_keyword(props: Any) -> str:
    """Return the first keyword, at any depth, that structural schemas do not allow; reported only if there is no other
    error.
    """
    if not isinstance(props, dict):
        return ""
    for keyword, name in _UNSUPPORTED:
        if _is_set(props, keyword):
            return f"OpenAPIV3Schema '{name}' is not supported"
    if isinstance(props.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    inner = [props.get("items"), props.get("additionalProperties"), props.get("not"), *fields_of(props).values()]
    for key in ("allOf", "anyOf", "oneOf"):
        inner.extend(clauses(props, key))
    return next((said for said in map(unsupported_keyword, inner) if said), "")


_UNSUPPORTED = (
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)


def list_map_keys(props: Props) -> tuple[str, ...]:
    return texts(props.get("x-kubernetes-list-map-keys"))
