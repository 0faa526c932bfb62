"""The reference has every field of every kind that is served, and says of each what it is."""

from __future__ import annotations

import pytest

from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind
from tests.lab import reference
from tests.lab.pages import DOCS


def test_every_installed_kind_has_a_reference_page() -> None:
    pages = {reference.page_of(one) for one in reference.every_definition()}
    assert pages == set(reference.GROUPS)
    assert {f"{group}.md" for group in reference.GROUPS} | {"README.md"} == {
        file.name for file in (DOCS / "reference").iterdir()
    }


@pytest.mark.parametrize(
    "definition", reference.every_definition(), ids=lambda one: f"{one['spec']['names']['kind']}.{one['spec']['group']}"
)
def test_every_schema_field_has_a_description(definition: reference.Json) -> None:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"]
    assert [row.path for row in reference.rows(schema) if not row.doc] == []


def test_reference_row_shows_type_required_default_and_enum() -> None:
    schema = {
        "properties": {
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["colour"],
                "properties": {
                    "colour": {"type": "string", "description": "Of the coat.", "enum": ["bay", "roan"]},
                    "gaits": {"type": "array", "description": "In order.", "items": {"type": "string"}},
                    "teeth": {"type": "integer", "description": "How many.", "default": 40},
                    "foals": {
                        "type": "array",
                        "description": "Born so far.",
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string", "description": "A name."}},
                        },
                    },
                },
            },
        }
    }
    assert reference.table(reference.rows(schema), {}).splitlines()[2:] == [
        "| `spec.colour` | string **required** | Of the coat. One of `bay`, `roan`. |",
        "| `spec.gaits` | list of string | In order. |",
        "| `spec.teeth` | integer | How many. Default: `40`. |",
        "| `spec.foals` | list | Born so far. |",
        "| `spec.foals[].name` | string | A name. |",
    ]


def test_refused_field_row_gives_reason_and_omits_subfields() -> None:
    page = reference.kinds("provisioning.cattle.io")
    assert "| `spec.rkeConfig.etcdSnapshotCreate` | object | **refused**: is not supported yet: " in page
    assert "`spec.rkeConfig.etcdSnapshotCreate." not in page


def test_driver_kinds_are_documented_once_for_all_drivers() -> None:
    names = {
        one["spec"]["names"]["kind"]
        for one in reference.every_definition()
        if reference.page_of(one) == "rke-machine.cattle.io"
    }
    assert names == {kind("driver").name for kind in (config_kind, template_kind, machine_kind)}
