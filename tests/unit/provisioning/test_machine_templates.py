"""The names of machine templates are those that Rancher gives, and nothing but options of drivers changes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.provisioning import machine_templates
from remuda.provisioning.machine_templates import Material
from tests.unit.provisioning.clusters import OPTIONS, material, pool, typed

Json = dict[str, Any]

# The beginnings of the sums are those of `printf '%s' 'demo-cp{"image":"registry.example/node:1"}' | sha256sum`.
WORKED_OUT: list[tuple[str, Json, str]] = [
    ("demo-cp", {"image": "registry.example/node:1"}, "4344d02f"),
    (
        "demo-w",
        {
            "volume": 0,
            "tags": "a<b&c",
            "securityGroup": ["a", "b"],
            "keep": False,
            "instanceType": "t3.large",
            "zone": "",
            "nothing": None,
            "none": [],
        },
        "45ffb8b9",
    ),
    ("demo-none", {}, "b329b9a8"),
]


@pytest.mark.parametrize(("deployment", "options", "expected"), WORKED_OUT)
def test_template_hash_matches_rancher(deployment: str, options: Json, expected: str) -> None:
    assert machine_templates.digest(deployment, options) == expected


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers(), st.booleans())))
def test_template_hash_ignores_option_order(options: Json) -> None:
    turned = dict(reversed(options.items()))
    assert machine_templates.digest("a-b", options) == machine_templates.digest("a-b", turned)


def name_of(pool: Json, credential: str = "", **config: Any) -> str:
    made = machine_templates.machine_template("prairie", "prairie-servers", typed(pool), credential, material(**config))
    return str(made["metadata"]["name"])


def test_labels_taints_and_credentials_are_outside_the_hash() -> None:
    plain = name_of(pool())
    taints = [{"key": "k", "effect": "NoExecute"}]
    assert name_of(pool(labels={"a": "b"}, taints=taints), "cattle-global-data:gold") == plain
    assert name_of(pool(), size="large") != plain


def test_unknown_config_fields_are_left_out_of_template() -> None:
    made = machine_templates.machine_template(
        "prairie", "prairie-servers", typed(pool(labels={"a": "b"})), "gold", material(size="large", stray=1)
    )
    assert made["spec"] == {
        "clusterName": "prairie",
        "template": {
            "spec": {"size": "large", "common": {"labels": {"a": "b"}, "cloudCredentialSecretName": "gold"}},
        },
    }
    assert made["kind"] == "SimMachineTemplate"
    assert made["metadata"]["annotations"]["rke.cattle.io/cloned-from-name"] == "servers"


def test_new_driver_option_changes_template_only_when_set() -> None:
    before = Material(config={"zone": "a"}, options={"zone": {}})
    pinned = machine_templates.pinned_options(typed(pool()), machine_templates.note(before.options))
    filled = Material(config={"zone": "a", "size": "small"}, options=OPTIONS, pinned=pinned)
    chosen = Material(config={"zone": "a", "size": "large"}, options=OPTIONS, pinned=pinned)
    fresh = Material(config={"zone": "a", "size": "small"}, options=OPTIONS)
    assert machine_templates.options(filled) == machine_templates.options(before) == {"zone": "a"}
    assert machine_templates.options(chosen) == {"zone": "a", "size": "large"}
    assert machine_templates.options(fresh) == {"zone": "a", "size": "small"}, "a new pool takes what there is"


def test_dynamic_schema_spec_overrides_recorded_options() -> None:
    spec = msgspec.json.encode({"resourceFields": {"zone": {"type": "string"}}}).decode()
    assert machine_templates.pinned_options(typed(pool(dynamicSchemaSpec=spec)), "size") == {"zone"}
    with pytest.raises(ValueError, match="remove it"):
        machine_templates.pinned_options(typed(pool(dynamicSchemaSpec="{")), None)


def test_differing_options_are_listed_by_name() -> None:
    def template(**options: Any) -> Json:
        return {"spec": {"template": {"spec": {**options, "common": {"labels": {"a": str(options)}}}}}}

    assert machine_templates.differing(template(a=1, b=2), template(a=1, b=3, c=4)) == ("b", "c")
