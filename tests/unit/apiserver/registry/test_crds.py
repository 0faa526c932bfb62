"""From definitions to what is served: names, versions in the order of preference, paths, shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.registry.crds import (
    TABLE,
    Definitions,
    accept_names,
    is_established,
    resource_of,
    schema_errors,
    stored_resource,
    version_priority,
)
from remuda.apiserver.registry.objects import encode_at
from remuda.apiserver.registry.served import Served
from remuda.apiserver.schema.parse import parse_crd_schema
from remuda.apiserver.storage.sqlite import SqliteStore
from tests.unit.apiserver.engine import definition, version

# ---- names -------------------------------------------------------------------------------------------------------

NAMES = {"plural": "widgets", "singular": "widget", "shortNames": ["w"], "kind": "Widget", "listKind": "WidgetList"}


def test_unused_crd_names_are_accepted() -> None:
    assert accept_names(NAMES, {"plural": "", "kind": ""}, []) == (NAMES, None)


@pytest.mark.parametrize(
    ("other", "reason", "clash"),
    [
        ({"plural": "widgets"}, "PluralConflict", "widgets"),
        ({"plural": "widget"}, "SingularConflict", "widget"),
        ({"singular": "w"}, "ShortNamesConflict", "w"),
        ({"shortNames": ["x", "widgets"]}, "PluralConflict", "widgets"),
        ({"kind": "Widget"}, "KindConflict", "Widget"),
        ({"kind": "WidgetList"}, "ListKindConflict", "WidgetList"),
        ({"plural": "widgets", "listKind": "WidgetList"}, "ListKindConflict", "WidgetList"),
    ],
)
def test_conflicting_crd_name_is_rejected(other: dict[str, Any], reason: str, clash: str) -> None:
    before = {"plural": "", "kind": ""}
    accepted, refused = accept_names(NAMES, before, [other])
    assert refused == (reason, f'"{clash}" is already in use')
    field = reason.removesuffix("Conflict")
    field = field[0].lower() + field[1:]
    assert accepted.get(field) == before.get(field)


def test_conflicting_crd_short_names_are_reported_together() -> None:
    _, refused = accept_names({**NAMES, "shortNames": ["a", "b"]}, {}, [{"shortNames": ["b", "a"]}])
    assert refused == ("ShortNamesConflict", '["a" is already in use, "b" is already in use]')


def test_rejected_crd_names_keep_old_value_while_others_update() -> None:
    wanted = {**NAMES, "shortNames": ["x"], "categories": ["all"], "singular": "thing"}
    accepted, refused = accept_names(wanted, NAMES, [{"plural": "x"}])
    assert refused is not None
    assert accepted == {**NAMES, "singular": "thing", "categories": ["all"]}


def test_crd_names_can_be_removed() -> None:
    fewer = {key: value for key, value in NAMES.items() if key != "shortNames"}
    assert accept_names(fewer, {**NAMES, "categories": ["all"]}, []) == (fewer, None)


def test_crd_names_do_not_conflict_with_themselves() -> None:
    same = {**NAMES, "singular": "widgets"}
    assert accept_names(same, {"plural": "", "kind": ""}, [])[1] is None
    assert accept_names(same, same, [])[1] is None


_ONE = st.fixed_dictionaries(
    {"plural": st.sampled_from("abc"), "kind": st.sampled_from("ABC")},
    optional={"singular": st.sampled_from("abc"), "shortNames": st.lists(st.sampled_from("abcde"), max_size=3)},
)


@given(st.lists(_ONE, max_size=4), _ONE)
def test_accepted_crd_names_never_overlap_other_crds(others: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
    accepted, refused = accept_names(wanted, {"plural": "", "kind": ""}, others)
    taken = {other[field] for other in others for field in ("plural", "singular") if other.get(field)}
    taken |= {name for other in others for name in other.get("shortNames", ())}
    mine = {accepted.get("plural"), accepted.get("singular"), *accepted.get("shortNames", ())}
    assert not mine & taken
    assert accepted.get("kind") not in {other["kind"] for other in others}
    assert (refused is None) == all(accepted.get(field) == value for field, value in wanted.items())


# ---- versions ----------------------------------------------------------------------------------------------------


def test_crd_versions_are_sorted_by_kubernetes_priority() -> None:
    ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(set(ordered), key=version_priority) == ordered


@pytest.mark.parametrize("odd", ["v0", "v01", "v1beta", "v1beta0", "v1gamma1", "1", "v", "V1", "v1beta1x"])
def test_nonstandard_crd_versions_sort_last(odd: str) -> None:
    assert sorted([odd, "v1alpha1"], key=version_priority) == ["v1alpha1", odd]


# ---- one resource ------------------------------------------------------------------------------------------------


def resource(crd: dict[str, Any], at: int = 0) -> Any:
    chosen = crd["spec"]["versions"][at]
    schema, _ = parse_crd_schema(chosen["schema"]["openAPIV3Schema"], path="")
    return resource_of(crd, chosen, schema)


def test_crd_version_is_converted_to_resource() -> None:
    crd = definition(shortNames=["w"], categories=["all"])
    crd["spec"]["versions"][0] |= {
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.n",
                "statusReplicasPath": ".status.n",
                "labelSelectorPath": ".status.s",
            },
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
    }
    made = resource(crd)
    assert (made.group, made.version, made.kind, made.plural, made.singular) == (
        "test.io",
        "v1",
        "Widget",
        "widgets",
        "widget",
    )
    assert (made.short_names, made.categories, made.list_kind) == (("w",), ("all",), "WidgetList")
    assert made.namespaced
    assert made.custom
    assert made.has_status
    assert made.scale is not None
    assert (made.scale.spec_replicas, made.scale.selector) == (("spec", "n"), ("status", "s"))
    assert (made.columns[0].name, made.columns[0].priority) == ("Size", 1)
    assert dict(made.selectable) == {"spec.colour": ("spec", "colour")}
    assert made.closed == ""


def test_crd_resource_uses_accepted_names() -> None:
    crd = definition(shortNames=["taken"])
    crd["status"] = {"acceptedNames": {**crd["spec"]["names"], "shortNames": ["w"]}}
    assert resource(crd).short_names == ("w",)


def test_deprecated_crd_version_has_warning() -> None:
    crd = definition()
    crd["spec"]["versions"][0] |= {"deprecated": True}
    assert resource(crd).deprecation_warning == "test.io/v1 Widget is deprecated"
    crd["spec"]["versions"][0] |= {"deprecationWarning": "use v2"}
    assert resource(crd).deprecation_warning == "use v2"


def test_deleting_crd_is_closed_for_creates() -> None:
    crd = definition()
    crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made = resource(crd)
    assert "terminating" in made.closed
    assert made.discovered_verbs == ("delete", "deletecollection", "get", "list", "watch")
    assert "patch" in made.verbs


def test_stored_resource_uses_unserved_storage_version() -> None:
    crd = definition()
    crd["spec"]["versions"] = [version("v2"), version("v1", storage=True, served=False)]
    assert stored_resource(crd).version == "v1"
    assert resource(crd).storage_version == "v1"


def test_schema_errors_name_the_version_when_versions_differ() -> None:
    crd = definition()
    bad = version("v1", storage=True, spec={"size": {"type": "strin"}})
    crd["spec"]["versions"] = [bad]
    assert {error.path.split(".properties")[0] for error in schema_errors(crd)} == {"spec.validation.openAPIV3Schema"}
    crd["spec"]["versions"] = [version("v2"), bad]
    fields = {error.path.split(".properties")[0] for error in schema_errors(crd)}
    assert fields == {"spec.versions[1].schema.openAPIV3Schema"}


# ---- following the store -----------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "data")
    yield store
    await store.close()


def stored(crd: dict[str, Any], *, established: bool = True) -> dict[str, Any]:
    status = {"conditions": [{"type": "Established", "status": "True" if established else "False"}]}
    status |= {"acceptedNames": crd["spec"]["names"]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **crd, "status": status}


async def put(store: SqliteStore, crd: dict[str, Any]) -> None:
    name = crd["metadata"]["name"]
    expect = store.latest(TABLE, "", name)
    await store.put(TABLE, "", name, lambda revision: encode_at(crd, revision), expect=expect)


async def test_crd_is_served_only_while_established(store: SqliteStore) -> None:
    served = Served()
    definitions = Definitions(store, served)
    crd = definition()
    await put(store, stored(crd, established=False))
    assert served.find("test.io", "v1", "widgets") is None
    assert not is_established(stored(crd, established=False))
    await put(store, stored(crd))
    assert served.find("test.io", "v1", "widgets") is not None
    entry = store.latest(TABLE, "", "widgets.test.io")
    assert entry is not None
    await store.delete(TABLE, "", "widgets.test.io", lambda revision: entry.value, expect=entry)
    assert served.find("test.io", "v1", "widgets") is None
    definitions.close()


async def test_stored_crd_is_served_from_startup(store: SqliteStore) -> None:
    await put(store, stored(definition()))
    served = Served()
    Definitions(store, served)
    assert served.find("test.io", "v1", "widgets") is not None


async def test_crd_versions_are_served_in_priority_order(store: SqliteStore) -> None:
    served = Served()
    Definitions(store, served)
    crd = definition()
    crd["spec"]["versions"] = [
        version("v1beta1"),
        version("v2"),
        version("v1", storage=True),
        version("v3", served=False),
    ]
    await put(store, stored(crd))
    assert [resource.version for resource in served.all()] == ["v2", "v1", "v1beta1"]


async def test_crd_metadata_change_does_not_rebuild_served_resources(store: SqliteStore) -> None:
    served = Served()
    Definitions(store, served)
    await put(store, stored(definition()))
    before, generation = served.find("test.io", "v1", "widgets"), served.generation
    again = stored(definition())
    again["metadata"] = {**again["metadata"], "labels": {"a": "b"}}
    await put(store, again)
    assert served.find("test.io", "v1", "widgets") is before
    assert served.generation == generation


async def test_new_crd_schema_takes_effect_from_its_revision(store: SqliteStore) -> None:
    served = Served()
    Definitions(store, served)
    await put(store, stored(definition()))
    changed = stored(definition())
    changed["spec"]["versions"] = [version("v1", storage=True, spec={"size": {"type": "integer", "default": 3}})]
    await put(store, changed)
    resource = served.find("test.io", "v1", "widgets")
    assert resource is not None
    shape = served.shape(resource)
    assert shape.since == store.revision
    obj: dict[str, Any] = {"metadata": {"name": "w"}, "spec": {}}
    shape.structural.prepare(obj)
    assert obj["spec"] == {"size": 3}
