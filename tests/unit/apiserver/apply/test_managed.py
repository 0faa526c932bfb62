"""What the registry relies on: no-ops stay no-ops, nothing passed in is changed, nothing makes a write fail."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from remuda.apiserver.apply.fieldset import fields_at
from remuda.apiserver.apply.last_applied import ANNOTATION
from remuda.apiserver.apply.managed import apply, keep_times, on_update
from remuda.kube.errors import StatusError
from remuda.kube.schema import Schema

from .schemas import CONFIG_MAP, DEPLOYMENT, WIDGET, keyed, kind, listing, mapping, struct, text

Obj = dict[str, Any]
VERSION = "t.dev/v1"
STATUS_ONLY, SPEC_ONLY = fields_at("metadata", "spec"), fields_at("status")
FIRST, SECOND, THIRD = (f"2026-01-01T00:00:0{second}Z" for second in range(3))


def widget(**spec: Any) -> Obj:
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w", "uid": "u"}, "spec": spec}


def track(live: Obj | None, new: Obj, manager: str = "ann", now: str = FIRST, **more: Any) -> Obj:
    arguments: Obj = {"schema": WIDGET, "manager": manager, "api_version": VERSION, "now": now} | more
    on_update(live, new, **arguments)
    return new


def applied(live: Obj | None, config: Obj, manager: str = "ann", now: str = FIRST, **more: Any) -> Obj:
    arguments: Obj = {"schema": WIDGET, "manager": manager, "api_version": VERSION, "now": now, "force": False} | more
    return apply(live, config, **arguments)


def owners(obj: Obj) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def decoded(obj: Obj) -> Obj:
    """As it comes back from storage: equal, and sharing nothing."""
    copied: Obj = msgspec.json.decode(msgspec.json.encode(obj))
    return copied


def test_no_op_update_leaves_object_unchanged() -> None:
    live = track(None, widget(mode="a", cfg={"k": "1"}))
    for given in (decoded(live), {**decoded(live), "metadata": {"name": "w", "uid": "u"}}):
        assert track(live, given, manager="bob", now=SECOND) == live


def test_update_bumps_time_of_its_own_managed_fields_entry_only() -> None:
    live = track(None, widget(mode="a"))
    live = track(live, widget(mode="a", cfg={"k": "1"}), manager="bob", now=SECOND)
    new = track(live, widget(mode="b", cfg={"k": "1"}), manager="ann", now=THIRD)
    times = {entry["manager"]: entry["time"] for entry in new["metadata"]["managedFields"]}
    assert times == {"ann": THIRD, "bob": SECOND}


def test_update_removing_fields_does_not_bump_managed_fields_time() -> None:
    live = track(None, widget(mode="a", cfg={"k": "1"}))
    new = track(live, widget(mode="a"), manager="bob", now=SECOND)
    assert [entry["time"] for entry in new["metadata"]["managedFields"]] == [FIRST]
    assert owners(new)["ann"] == {"f:spec": {".": {}, "f:mode": {}}}


def test_update_does_not_track_object_without_managed_fields() -> None:
    live = widget(mode="a")
    assert "managedFields" not in track(live, widget(mode="b"))["metadata"]


def test_empty_manager_name_is_recorded_as_unknown() -> None:
    assert list(owners(track(None, widget(mode="a"), manager=""))) == ["unknown"]


def test_list_item_without_key_drops_managed_fields_without_failing_write() -> None:
    live = track(None, widget(items=[{"name": "a"}]))
    assert "managedFields" not in track(live, widget(items=[{"value": "a"}]))["metadata"]


def test_too_deep_object_drops_managed_fields_without_failing_write() -> None:
    deep: Any = {}
    for _ in range(20_000):
        deep = {"a": deep}
    new = widget()
    new["spec"]["free"] = deep
    assert "managedFields" not in track(None, new)["metadata"]


def test_too_deep_apply_configuration_is_rejected() -> None:
    deep: Any = {}
    for _ in range(20_000):
        deep = {"a": deep}
    with pytest.raises(StatusError) as refused:
        applied(None, widget(free=deep))
    assert refused.value.code == 400


def test_deep_managed_fields_of_a_client_are_ignored() -> None:
    deep: Any = {}
    for _ in range(20_000):
        deep = {"f:a": deep}
    live = track(None, widget(mode="a"))
    new = widget(mode="a")
    entry = {"manager": "x", "operation": "Update", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": deep}
    new["metadata"]["managedFields"] = [entry]
    assert owners(track(live, new)) == owners(live)


@pytest.mark.parametrize(
    "spoiled",
    [
        "x",
        ["x"],
        [{"operation": "Other"}],
        [{"operation": "Apply"}],
        [{"operation": "Apply", "apiVersion": VERSION}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV2"}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": {"nonsense": {}}}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 1}}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV1", "time": "yesterday"}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00"}],
        [{"operation": "Apply", "apiVersion": VERSION, "fieldsType": "FieldsV1", "manager": 1}],
    ],
)
def test_invalid_managed_fields_from_client_are_ignored(spoiled: Any) -> None:
    live = track(None, widget(mode="a"))
    new = widget(mode="a")
    new["metadata"]["managedFields"] = spoiled
    assert track(live, new) == live


def test_subresource_update_cannot_reset_managed_fields() -> None:
    live = track(None, widget(mode="a"))
    new = {**widget(mode="a"), "status": {"phase": "Up"}}
    new["metadata"]["managedFields"] = []
    assert list(owners(track(live, new, "ctl", subresource="status", reset=STATUS_ONLY))) == ["ann", "ctl"]


def test_write_does_not_own_reset_fields() -> None:
    new = {**widget(mode="a"), "status": {"phase": "Up"}}
    assert owners(track(None, copy.deepcopy(new), reset=SPEC_ONLY)) == {"ann": {"f:spec": {".": {}, "f:mode": {}}}}
    live = track(None, widget(mode="z"))
    assert owners(track(live, new, "ctl", reset=STATUS_ONLY))["ctl"] == {"f:status": {".": {}, "f:phase": {}}}


def test_oldest_update_entries_are_merged_past_the_limit() -> None:
    live = track(None, widget(cfg={"k0": "1"}), "m0", "2026-01-01T00:00:00Z")
    for number in range(1, 30):
        spec = {"cfg": {f"k{i}": "1" for i in range(number + 1)}}
        live = track(live, widget(**spec), f"m{number}", f"2026-01-01T00:00:{number:02d}Z")
    names = [entry["manager"] for entry in live["metadata"]["managedFields"]]
    assert names == ["ancient-changes", *(f"m{number}" for number in range(21, 30))]
    assert live["metadata"]["managedFields"][0]["time"] == "2026-01-01T00:00:20Z"
    assert len(owners(live)["ancient-changes"]["f:spec"]["f:cfg"]) == 22


def test_managed_fields_of_typed_kinds_omit_always_present_fields() -> None:
    new: Obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}}
    typed: Obj = {"schema": DEPLOYMENT, "api_version": "apps/v1", "blank": {"metadata": {}, "spec": {}, "status": {}}}
    track(None, new, **typed)
    assert owners(new) == {"ann": {"f:spec": {"f:replicas": {}}}}
    new["metadata"]["uid"] = "u"
    later = {**decoded(new), "status": {"replicas": 1}}
    track(new, later, "ctl", subresource="status", reset=STATUS_ONLY, **typed)
    assert owners(later)["ctl"] == {"f:status": {"f:replicas": {}}}


def test_repeated_apply_returns_the_live_object() -> None:
    config = widget(mode="a", items=[{"name": "a"}], cfg={"k": "1"})
    live = applied(None, config)
    again = applied(decoded(live), config, now=SECOND)
    assert again == live


def test_apply_does_not_modify_its_arguments() -> None:
    live = applied(None, widget(mode="a", items=[{"name": "a"}, {"name": "b"}]))
    config = widget(items=[{"name": "b", "value": "1"}])
    before = copy.deepcopy([live, config])
    result = applied(live, config, force=True)
    result["spec"]["items"][0]["value"] = "changed by the caller"
    result["metadata"]["labels"] = {}
    assert [live, config] == before


def test_managed_fields_time_is_restored_when_nothing_else_changed() -> None:
    live = applied(None, widget(mode="a"))
    new = decoded(live)
    new["metadata"]["managedFields"][0]["time"] = SECOND
    keep_times(live, new)
    assert new == live
    changed = decoded(live)
    changed["metadata"]["managedFields"][0]["time"] = SECOND
    changed["spec"]["mode"] = "b"
    keep_times(live, changed)
    assert changed["metadata"]["managedFields"][0]["time"] == SECOND


def test_managers_of_other_versions_conflict_and_of_unknown_versions_are_dropped() -> None:
    live = track(None, widget(mode="a"))
    entry = live["metadata"]["managedFields"][0]
    live["metadata"]["managedFields"] = [{**entry, "apiVersion": "t.dev/v2"}, {**entry, "apiVersion": "other.dev/v1"}]
    with pytest.raises(StatusError, match=r'conflict with "ann" using t\.dev/v2: \.spec\.mode'):
        applied(live, widget(mode="b"), "ben")
    only = applied(live, widget(mode="b"), "ben", versions={VERSION})
    assert list(owners(only)) == ["ben"]


def test_list_made_atomic_is_owned_as_a_whole() -> None:
    live = applied(None, widget(items=[{"name": "a", "value": "1"}]))
    atomic = kind(spec=struct(items=listing(struct(name=text(), value=text()))))
    with pytest.raises(StatusError, match=r'conflict with "ann": \.spec\.items'):
        applied(live, widget(items=[{"name": "b"}]), "ben", schema=atomic)
    taken = track(live, widget(items=[{"name": "b"}]), "bob", schema=atomic)
    assert list(owners(taken)) == ["bob"]


def test_kubectl_apply_maintains_last_applied_annotation() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "<b>"}}
    live = {**copy.deepcopy(config), "metadata": {"name": "c", "uid": "u", "annotations": {ANNOTATION: "{}", "n": "1"}}}
    arguments: Obj = {"schema": CONFIG_MAP, "api_version": "v1", "manager": "kubectl"}
    written = applied(live, config, **arguments)["metadata"]["annotations"]
    assert written["n"] == "1"
    assert "\\u003cb\\u003e" in written[ANNOTATION]
    assert msgspec.json.decode(written[ANNOTATION]) == config
    big = {**config, "data": {"a": "x" * 300_000}}
    assert applied(live, big, force=True, **arguments)["metadata"]["annotations"] == {"n": "1"}
    other = applied(live, config, **{**arguments, "manager": "else"})
    assert other["metadata"]["annotations"][ANNOTATION] == "{}"


@pytest.mark.parametrize("spoiled", ["nonsense", "[]", '{"apiVersion":"v2"}', '{"apiVersion":"v1","data":{"a":1}}', ""])
def test_invalid_last_applied_annotation_does_not_suppress_conflict(spoiled: str) -> None:
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "u", "annotations": {ANNOTATION: spoiled}}}
    live["data"] = {"a": "1"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}}
    with pytest.raises(StatusError, match="Apply failed with 1 conflict"):
        applied(live, config, schema=CONFIG_MAP, api_version="v1", manager="kubectl")


def test_apply_error_lists_a_bounded_number_of_problems() -> None:
    loud = kind(spec=mapping(text()))
    with pytest.raises(StatusError) as refused:
        applied(None, widget(**{f"k{i}": i for i in range(5000)}), schema=loud)
    assert refused.value.message.count("\n") <= 101


def test_list_map_keys_of_any_type_distinguish_items() -> None:
    odd = kind(spec=struct(list=keyed(struct(k=Schema(int_or_string=True)), "k")))
    live = track(None, widget(list=[{"k": 1}, {"k": "1"}, {"k": None}, {"k": 1.5}]), schema=odd)
    elements = list(owners(live)["ann"]["f:spec"]["f:list"])
    assert elements == [".", 'k:{"k":1}', 'k:{"k":1.5}', 'k:{"k":"1"}', 'k:{"k":null}']
