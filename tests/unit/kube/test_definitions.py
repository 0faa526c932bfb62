from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

from remuda.kube.definitions import WIDE, Definition, PrinterColumn, Scale, custom_resource_definition, schema
from remuda.kube.objects import Condition, Field, Kind, Object, Part
from remuda.kube.schema import Rule

Size = Annotated[int, Field("A size.", format="int32", minimum=1)]


class Knob(Part):
    """Something to turn."""

    name: Annotated[str, Field(required=True, min_length=1, max_length=9, pattern="^k")] = ""
    provider_id: str = ""


class WidgetSpec(Part):
    """What a widget shall be."""

    text: str = ""
    size: Annotated[Size | None, Field("How big.", maximum=9)] = None
    bare_size: Size = 1
    ratio: float = 0.0
    on: bool | None = None
    either: Annotated[int | str | None, Field(int_or_string=True)] = None
    mode: Literal["A", "B"] = "A"
    knob: Knob = Knob()
    told: Annotated[Knob | None, Field("The one to turn.", min_properties=1)] = None
    knobs: Annotated[
        Sequence[Knob],
        Field(
            list_type="map",
            list_map_keys=("name",),
            min_items=1,
            max_items=3,
            rules=(Rule(rule="true", message="never", reason="FieldValueForbidden", field_path=".x"),),
            items=Field("One of them.", min_properties=2),
        ),
    ] = ()
    pairs: tuple[str, ...] = ()
    tags: Annotated[Mapping[str, str], Field(max_properties=2, map_type="atomic", items=Field(max_length=3))] = {}
    free: Annotated[Mapping[str, object] | None, Field(preserve_unknown=True)] = None
    anything: object = None
    kept: Annotated[str, Field(default="x")] = "x"
    off: Annotated[bool, Field(default=False, rules=(Rule(rule="self == oldSelf", optional_old_self=True),))] = False


class Widget(Object):
    """A widget."""

    spec: Annotated[WidgetSpec, Field(required=True)] = WidgetSpec()


WIDGET = Kind("test.io/v1", "Widget", "widgets", Widget)
KNOB = {
    "type": "object",
    "description": "Something to turn.",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^k"},
        "providerID": {"type": "string"},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("text", {"type": "string"}),
        ("size", {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "description": "How big."}),
        ("bareSize", {"type": "integer", "format": "int32", "minimum": 1, "description": "A size."}),
        ("ratio", {"type": "number"}),
        ("on", {"type": "boolean"}),
        ("either", {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
        ("mode", {"type": "string", "enum": ["A", "B"]}),
        ("knob", KNOB),
        ("told", {**KNOB, "description": "The one to turn.", "minProperties": 1}),
        (
            "knobs",
            {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": [
                    {"rule": "true", "message": "never", "reason": "FieldValueForbidden", "fieldPath": ".x"}
                ],
                "items": {**KNOB, "description": "One of them.", "minProperties": 2},
            },
        ),
        ("pairs", {"type": "array", "items": {"type": "string"}}),
        (
            "tags",
            {
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 3},
                "maxProperties": 2,
                "x-kubernetes-map-type": "atomic",
            },
        ),
        ("free", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
        ("kept", {"type": "string", "default": "x"}),
        (
            "off",
            {
                "type": "boolean",
                "default": False,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "optionalOldSelf": True}],
            },
        ),
    ],
)
def test_field_type_is_converted_to_openapi_schema(field: str, expected: dict[str, Any]) -> None:
    assert schema(Widget)["properties"]["spec"]["properties"][field] == expected


def test_object_schema_has_required_and_standard_properties() -> None:
    found = schema(Widget)
    assert found["required"] == ["spec"]
    assert found["description"] == "A widget."
    assert {name: value for name, value in found["properties"].items() if name != "spec"} == {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    assert "required" not in found["properties"]["spec"]


def test_condition_schema_requires_its_keys() -> None:
    class Judged(Object):
        conditions: Sequence[Condition] = ()

    items = schema(Judged)["properties"]["conditions"]["items"]
    assert items["required"] == ["type", "status", "reason", "message", "lastTransitionTime"]
    assert items["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
    assert "minLength" not in items["properties"]["message"]


def test_type_without_a_schema_is_refused() -> None:
    class Odd(Object):
        number: complex = 0j

    with pytest.raises(TypeError, match="complex"):
        schema(Odd)


def test_unmarked_union_type_is_rejected() -> None:
    class Odd(Object):
        either: int | str = 0

    with pytest.raises(TypeError, match=r"int \| str"):
        schema(Odd)


def test_definition_renders_complete_crd() -> None:
    found = custom_resource_definition(
        Definition(
            kind=WIDGET,
            short_names=("wd",),
            categories=("all",),
            columns=(
                PrinterColumn("Size", ".spec.size", "How big", "integer", WIDE),
                PrinterColumn("Text", ".spec.text"),
            ),
            scale=Scale(),
            labels={"a": "b"},
        )
    )
    assert found["metadata"] == {
        "name": "widgets.test.io",
        "labels": {"a": "b", "app.kubernetes.io/managed-by": "remuda"},
    }
    (version,) = found["spec"].pop("versions")
    assert found["spec"] == {
        "group": "test.io",
        "scope": "Namespaced",
        "names": {
            "kind": "Widget",
            "listKind": "WidgetList",
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "categories": ["all"],
        },
        "conversion": {"strategy": "None"},
    }
    assert version.pop("schema") == {"openAPIV3Schema": schema(Widget)}
    assert version == {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big", "priority": 10},
            {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
        ],
    }


def test_definition_omits_unset_fields() -> None:
    kind = Kind("test.io/v1", "Widget", "widgets", Widget, namespaced=False)
    found = custom_resource_definition(Definition(kind=kind, status=False))["spec"]
    assert found["scope"] == "Cluster"
    assert not {"shortNames", "categories"} & set(found["names"])
    assert not {"subresources", "additionalPrinterColumns"} & set(found["versions"][0])
