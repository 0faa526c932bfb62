"""The reference has every field of every kind that is served, and says of each what it is."""

from __future__ import annotations

import pytest

from remuda.providers.shared.types.machine import config_kind, machine_kind, template_kind
from tests.lab import reference
from tests.lab.pages import DOCS


def test_every_kind_that_is_installed_has_its_page() -> None:
    pages = {reference.page_of(one) for one in reference.every_definition()}
    assert pages == set(reference.GROUPS)
    assert {f"{group}.md" for group in reference.GROUPS} | {"README.md"} == {
        file.name for file in (DOCS / "reference").iterdir()
    }


@pytest.mark.parametrize(
    "definition", reference.every_definition(), ids=lambda one: f"{one['spec']['names']['kind']}.{one['spec']['group']}"
)
def test_every_field_says_what_it_is(definition: reference.Json) -> None:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"]
    assert [row.path for row in reference.rows(schema) if not row.doc] == []


def test_a_row_tells_type_need_default_and_choices() -> None:
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


def test_what_is_refused_says_why_and_nothing_of_what_is_below_it() -> None:
    page = reference.kinds("provisioning.cattle.io")
    assert "| `spec.rkeConfig.etcdSnapshotCreate` | object | **refused**: is not supported yet: " in page
    assert "`spec.rkeConfig.etcdSnapshotCreate." not in page


def test_the_kinds_of_drivers_stand_for_those_of_any_driver() -> None:
    names = {
        one["spec"]["names"]["kind"]
        for one in reference.every_definition()
        if reference.page_of(one) == "rke-machine.cattle.io"
    }
    assert names == {kind("driver").name for kind in (config_kind, template_kind, machine_kind)}
