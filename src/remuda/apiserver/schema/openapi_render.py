"""Rendering of a schema node as an OpenAPI v3 object.

Types with a `ref` become components, rendered once each, however often and however deep they are used. A field's own
additions to a type (its description, a default) appear beside the reference, which OpenAPI allows only inside an allOf.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.schema.coerce import clone
from remuda.kube.schema import UNSET, Rule, Schema

_META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SPECIAL_NAMES = {
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "RawExtension": "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "JSON": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
}
# Types whose JSON form differs from their schema node.
_SPECIAL_TYPES: dict[str, dict[str, Any]] = {
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "RawExtension": {"type": "object"},
    "FieldsV1": {"type": "object"},
    "JSON": {},
}

_WORDS = (
    ("type", "type"),
    ("format", "format"),
    ("title", "title"),
    ("description", "description"),
    ("pattern", "pattern"),
    ("x-kubernetes-patch-merge-key", "patch_merge_key"),
)
_LIMITS = (
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("multipleOf", "multiple_of"),
    ("minLength", "min_length"),
    ("maxLength", "max_length"),
    ("minItems", "min_items"),
    ("maxItems", "max_items"),
    ("minProperties", "min_properties"),
    ("maxProperties", "max_properties"),
)
_FLAGS = (
    ("exclusiveMinimum", "exclusive_minimum"),
    ("exclusiveMaximum", "exclusive_maximum"),
    ("uniqueItems", "unique_items"),
    ("x-kubernetes-preserve-unknown-fields", "preserve_unknown"),
    ("x-kubernetes-embedded-resource", "embedded_resource"),
    ("x-kubernetes-int-or-string", "int_or_string"),
)
_DESCRIPTIONS = {"ObjectMeta": "Name, namespace, labels and whatever else every object has."}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def component_name(ref: str) -> str:
    return ref if "." in ref else _SPECIAL_NAMES.get(ref) or _META_PREFIX + ref


def reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


class Renderer:
    """Renderer of nodes; collects the components that the rendered nodes refer to."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self._waiting: dict[str, tuple[Schema, bool]] = {}  # bool: the type itself, not a copy for one field

    def drain(self) -> None:
        """Render the components that are referenced but not yet rendered, and those that they reference in turn."""
        while self._waiting:
            name, (schema, is_type) = self._waiting.popitem()
            self.components[name] = {}  # marks it as rendered before a cycle returns to it
            rendered = _SPECIAL_TYPES.get(schema.ref)
            rendered = clone(rendered) if rendered is not None else self.definition(schema)
            if not is_type:
                rendered.pop("description", None)  # the description belongs to the field
                rendered.pop("default", None)
            self.components[name] = rendered

    def node(self, schema: Schema, custom: bool, is_field: bool = False) -> dict[str, Any]:
        if not schema.ref:
            return self.definition(schema, custom=custom)
        name = component_name(schema.ref)
        if name not in self.components and (not is_field or name not in self._waiting):
            self._waiting[name] = (schema, not is_field)
        beside: dict[str, Any] = {}
        description = schema.description or _DESCRIPTIONS.get(schema.ref, "")
        if is_field and description:
            beside["description"] = description
        if is_field and schema.default is not UNSET:
            beside["default"] = clone(schema.default)
        return {**beside, "allOf": [reference(name)]} if beside else reference(name)

    def definition(self, schema: Schema, custom: bool = False) -> dict[str, Any]:
        """Render the node itself, never a reference to it."""
        shown: dict[str, Any] = {key: value for key, name in _WORDS if (value := getattr(schema, name))}
        shown.update({key: value for key, name in _LIMITS if (value := getattr(schema, name)) is not None})
        shown.update({key: True for key, name in _FLAGS if getattr(schema, name)})
        _show_values(schema, shown, custom)
        self._show_shape(schema, shown, custom)
        _show_topology(schema, shown, custom)
        if schema.rules:
            shown["x-kubernetes-validations"] = [_rule(rule) for rule in schema.rules]
        return shown

    def _show_shape(self, schema: Schema, shown: dict[str, Any], custom: bool) -> None:
        if schema.required:
            shown["required"] = list(schema.required)
        if schema.properties:
            shown["properties"] = {
                name: self.node(field, custom, is_field=True) for name, field in schema.properties.items()
            }
        if custom and schema.embedded_resource:
            needed = shown.setdefault("required", [])
            needed.extend(name for name in ("kind", "apiVersion") if name not in needed)
        if schema.additional is not None:
            rendered = self.node(schema.additional, custom)
            shown["additionalProperties"] = rendered or not schema.additional_forbidden
        if schema.items is not None:
            shown["items"] = self.node(schema.items, custom)


def _show_values(schema: Schema, shown: dict[str, Any], custom: bool) -> None:
    if schema.default is not UNSET:
        shown["default"] = clone(schema.default)
    if schema.example is not UNSET:
        shown["example"] = clone(schema.example)
    if schema.external_docs:
        shown["externalDocs"] = dict(schema.external_docs)
    if schema.nullable and custom:
        shown["nullable"] = True
    if schema.enum:
        shown["enum"] = list(schema.enum)
    for key, clauses in (("allOf", schema.all_of), ("anyOf", schema.any_of), ("oneOf", schema.one_of)):
        if clauses:
            shown[key] = clone(list(clauses))
    if schema.not_ is not None:
        shown["not"] = clone(schema.not_)
    if schema.int_or_string and "anyOf" not in shown and "allOf" not in shown:
        shown["anyOf"] = clone(_INT_OR_STRING)


def _show_topology(schema: Schema, shown: dict[str, Any], custom: bool) -> None:
    list_key, map_key = "x-kubernetes-list-type", "x-kubernetes-map-type"
    if schema.type == "array" and (schema.list_type != "atomic" or not custom or list_key in schema.stated):
        shown[list_key] = schema.list_type
    if schema.list_map_keys:
        shown["x-kubernetes-list-map-keys"] = list(schema.list_map_keys)
    if schema.map_type != "granular" or map_key in schema.stated:
        shown[map_key] = schema.map_type
    if schema.patch_strategy:
        shown["x-kubernetes-patch-strategy"] = ",".join(schema.patch_strategy)


def _rule(rule: Rule) -> dict[str, Any]:
    shown: dict[str, Any] = {"rule": rule.rule}
    for key, value in (
        ("message", rule.message),
        ("messageExpression", rule.message_expression),
        ("fieldPath", rule.field_path),
        ("optionalOldSelf", rule.optional_old_self),
    ):
        if value or value is False:
            shown[key] = value
    if rule.reason != "FieldValueInvalid":
        shown["reason"] = rule.reason
    return shown
