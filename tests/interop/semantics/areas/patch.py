"""The four patch kinds on built-in objects."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.areas.verbs import DEPLOYMENT
from tests.interop.semantics.trial import Trial, case, shared

shared("plains")


def _configmap(t: Trial, **more: Any) -> str:
    path = t.configmaps()
    body = {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v", "l": "w"}, **more}
    t.quietly("POST", path, body)
    return f"{path}/a"


def _deployment(t: Trial) -> str:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    t.quietly("POST", path, DEPLOYMENT)
    return f"{path}/d"


@case("patch")
def merge_changes_and_removes(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"data": {"k": None, "m": "n"}, "metadata": {"labels": None}})


@case("patch")
def merge_that_changes_nothing(t: Trial) -> None:
    path = _configmap(t)
    t.get(path)
    t.patch(path, {"data": {"k": "v"}})
    t.patch(path, {})


@case("patch")
def merge_that_is_no_object(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, [])
    t.patch(path, "null")
    t.patch(path, '"text"')
    t.patch(path, "{")
    t.patch(path, "")


@case("patch")
def merge_with_a_revision(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"metadata": {"resourceVersion": "1"}, "data": {"k": "x"}})
    revision = t.get(path).body["metadata"]["resourceVersion"]
    t.patch(path, {"metadata": {"resourceVersion": revision}, "data": {"k": "x"}})


@case("patch")
def merge_of_identity(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"metadata": {"name": "b"}})
    t.patch(path, {"metadata": {"namespace": "elsewhere"}})
    t.patch(path, {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}})
    t.patch(path, {"kind": "Secret"})
    t.patch(path, {"apiVersion": "v2"})


@case("patch")
def merge_of_what_is_gone(t: Trial) -> None:
    path = _configmap(t)
    for patch in (
        {"kind": None},
        {"apiVersion": None},
        {"metadata": None},
        {"metadata": {"name": None}},
        {"metadata": {"namespace": None}},
        {"metadata": {"creationTimestamp": None, "uid": None, "resourceVersion": None}},
        {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}},
        {"metadata": {"deletionGracePeriodSeconds": 5}},
        {"metadata": {"generation": -4}},
    ):
        t.patch(path, patch)


@case("patch")
def strategic_of_identity(t: Trial) -> None:
    path = _configmap(t)
    for patch in (
        {"kind": "Secret"},
        {"kind": None, "apiVersion": "v9"},
        {"metadata": {"name": "b"}},
        {"metadata": {"namespace": "elsewhere"}},
        {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}},
        {"metadata": None},
    ):
        t.patch(path, patch, "strategic")


@case("patch")
def identity_of_custom_resources(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains"))
    path = f"{path}/{t.name()}"
    for patch in (
        {"kind": "Other"},
        {"kind": None},
        {"apiVersion": "v9"},
        {"apiVersion": None},
        {"metadata": None},
        {"metadata": "text"},
        {"metadata": {"labels": {"x": 5}}},
        {"metadata": {"name": "b"}},
        {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}},
        {"metadata": {"labels": {"x": "not ok!"}}},
    ):
        t.patch(path, patch)


@case("patch")
def merge_with_a_wrong_type(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"data": {"k": 5}})
    t.patch(path, {"data": "text"})


@case("patch")
def merge_of_what_is_not_there(t: Trial) -> None:
    t.patch(f"{t.configmaps()}/a", {"data": {}})


@case("patch")
def merge_of_a_list_replaces_it(t: Trial) -> None:
    path = _deployment(t)
    containers = [{"name": "e", "image": "j:1"}]
    t.patch(path, {"spec": {"template": {"spec": {"containers": containers}}}})


@case("patch")
def json_every_operation(t: Trial) -> None:
    path = _configmap(t)
    operations = [
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "add", "path": "/data/new", "value": "1"},
        {"op": "replace", "path": "/data/l", "value": "2"},
        {"op": "copy", "from": "/data/k", "path": "/data/copied"},
        {"op": "move", "from": "/data/k", "path": "/data/moved"},
        {"op": "remove", "path": "/metadata/labels/x"},
        {"op": "add", "path": "/metadata/annotations", "value": {"lab.dev/a": "b"}},
        {"op": "add", "path": "/metadata/annotations/lab.dev~1c", "value": "d"},
    ]
    t.patch(path, operations, "json")


@case("patch")
def json_failed_test(t: Trial) -> None:
    t.patch(_configmap(t), [{"op": "test", "path": "/data/k", "value": "other"}], "json")


@case("patch")
def json_missing_paths(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, [{"op": "remove", "path": "/data/nothing"}], "json")
    t.patch(path, [{"op": "add", "path": "/nothing/at/all", "value": 1}], "json")
    t.patch(path, [{"op": "replace", "path": "/data/fresh", "value": "added"}], "json")
    t.patch(path, [{"op": "test", "path": "/data/nothing", "value": None}], "json")
    t.patch(path, [{"op": "copy", "from": "/data/nothing", "path": "/data/z"}], "json")
    t.patch(path, [{"op": "move", "from": "/data/nothing", "path": "/data/z"}], "json")


@case("patch")
def json_bad_operations(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, [{"op": "frobnicate", "path": "/data/k"}], "json")
    t.patch(path, [{"path": "/data/k"}], "json")
    t.patch(path, [{"op": "add", "value": "x"}], "json")
    t.patch(path, [{"op": "add", "path": "data", "value": "x"}], "json")
    t.patch(path, {"op": "add"}, "json")
    t.patch(path, ["x"], "json")
    t.patch(path, [{"op": "add", "path": 5}], "json")
    t.patch(path, "nonsense", "json")


@case("patch")
def json_too_many_operations(t: Trial) -> None:
    operation = {"op": "add", "path": "/data/k", "value": "x"}
    t.patch(_configmap(t), [operation] * 10_001, "json")


@case("patch")
def json_on_lists(t: Trial) -> None:
    path = _deployment(t)
    where = "/spec/template/spec/containers"
    t.patch(path, [{"op": "add", "path": f"{where}/-", "value": {"name": "e", "image": "j:1"}}], "json")
    t.patch(path, [{"op": "add", "path": f"{where}/0", "value": {"name": "f", "image": "j:1"}}], "json")
    t.patch(path, [{"op": "remove", "path": f"{where}/-1"}], "json")
    t.patch(path, [{"op": "remove", "path": f"{where}/7"}], "json")
    t.patch(path, [{"op": "replace", "path": f"{where}/0/image", "value": "k:1"}], "json")


@case("patch")
def json_unknown_member_of_an_operation(t: Trial) -> None:
    path = _configmap(t)
    operations = [{"op": "add", "path": "/data/k", "value": "x", "why": "because"}]
    t.patch(path, operations, "json")
    t.patch(path, operations, "json", query={"fieldValidation": "Strict"})


@case("patch")
def json_whole_document(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, [{"op": "replace", "path": "", "value": {"data": {"only": "this"}}}], "json")
    t.patch(path, [{"op": "remove", "path": "/metadata"}], "json")


@case("patch")
def strategic_merges_by_key(t: Trial) -> None:
    path = _deployment(t)
    containers = [{"name": "c", "image": "i:2"}, {"name": "e", "image": "j:1"}]
    t.patch(path, {"spec": {"template": {"spec": {"containers": containers}}}}, "strategic")


@case("patch")
def strategic_deletes_by_key(t: Trial) -> None:
    path = _deployment(t)
    two = [{"name": "e", "image": "j:1"}]
    t.patch(path, {"spec": {"template": {"spec": {"containers": two}}}}, "strategic")
    gone = [{"name": "c", "$patch": "delete"}]
    t.patch(path, {"spec": {"template": {"spec": {"containers": gone}}}}, "strategic")


@case("patch")
def strategic_replaces_a_list(t: Trial) -> None:
    replaced = [{"$patch": "replace"}, {"name": "e", "image": "j:1"}]
    t.patch(_deployment(t), {"spec": {"template": {"spec": {"containers": replaced}}}}, "strategic")


@case("patch")
def strategic_sets_an_order(t: Trial) -> None:
    path = _deployment(t)
    more = [{"name": name, "image": "j:1"} for name in ("e", "f")]
    t.patch(path, {"spec": {"template": {"spec": {"containers": more}}}}, "strategic")
    order = [{"name": name} for name in ("f", "c", "e")]
    t.patch(path, {"spec": {"template": {"spec": {"$setElementOrder/containers": order}}}}, "strategic")
    ordered = {"$setElementOrder/containers": order[:2], "containers": [{"name": "c", "image": "z:1"}]}
    t.patch(path, {"spec": {"template": {"spec": ordered}}}, "strategic")


@case("patch")
def strategic_retains_keys(t: Trial) -> None:
    path = _deployment(t)
    t.patch(path, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, "strategic")
    t.patch(path, {"spec": {"strategy": {"$retainKeys": ["other"], "type": "Recreate"}}}, "strategic")
    t.patch(path, {"spec": {"strategy": {"$retainKeys": "type"}}}, "strategic")


@case("patch")
def strategic_finalizers_merge(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"metadata": {"finalizers": ["lab.dev/a", "lab.dev/b"]}}, "strategic")
    t.patch(path, {"metadata": {"finalizers": ["lab.dev/c"]}}, "strategic")
    t.patch(path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["lab.dev/a"]}}, "strategic")
    t.patch(path, {"metadata": {"finalizers": None}}, "strategic")


@case("patch")
def strategic_maps(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"data": {"k": None, "n": "1"}}, "strategic")
    t.patch(path, {"data": {"$patch": "replace", "only": "1"}}, "strategic")
    t.patch(path, {"data": {"$patch": "delete"}}, "strategic")
    t.patch(path, {"data": {"$patch": "merge", "x": "1"}}, "strategic")


@case("patch")
def strategic_without_a_merge_key(t: Trial) -> None:
    containers = [{"image": "i:2"}]
    t.patch(_deployment(t), {"spec": {"template": {"spec": {"containers": containers}}}}, "strategic")


@case("patch")
def strategic_with_bad_directives(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"metadata": {"$deleteFromPrimitiveList": ["x"]}}, "strategic")
    t.patch(path, {"metadata": {"$setElementOrder": ["x"]}}, "strategic")
    t.patch(path, {"metadata": {"$setElementOrder/finalizers": "x"}}, "strategic")
    t.patch(path, [], "strategic")


@case("patch")
def strategic_with_an_unknown_field(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"colour": "red"}, "strategic")
    t.patch(path, {"colour": "red"}, "strategic", query={"fieldValidation": "Strict"})
    t.patch(path, {"colour": "red"}, "strategic", query={"fieldValidation": "Ignore"})


@case("patch")
def strategic_with_a_wrong_type(t: Trial) -> None:
    t.patch(_deployment(t), {"spec": {"replicas": "three"}}, "strategic")


@case("patch")
def strategic_ports_by_number(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/services"
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    t.quietly("POST", path, {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": ports}})
    t.patch(f"{path}/s", {"spec": {"ports": [{"port": 81, "name": "c"}, {"port": 82, "name": "d"}]}}, "strategic")


@case("patch")
def a_type_nobody_knows(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {}, "application/json")
    t.patch(path, {}, "text/plain")


@case("patch")
def custom_resources_have_no_strategic_patch(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, {"apiVersion": t.api_version(), "kind": "Plain", "metadata": {"name": t.name("strat")}})
    t.patch(f"{path}/{t.name('strat')}", {}, "strategic")


@case("patch")
def force_is_for_apply(t: Trial) -> None:
    t.patch(_configmap(t), {}, query={"force": "true"})


@case("patch")
def dry(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"data": {"k": "dry"}}, query={"dryRun": "All"})
    t.get(path)


@case("patch")
def unknown_fields_in_a_merge(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, {"colour": "red"})
    t.patch(path, {"colour": "red"}, query={"fieldValidation": "Strict"})
    t.patch(path, {"colour": "red"}, query={"fieldValidation": "Ignore"})


@case("patch")
def duplicate_fields_in_a_merge(t: Trial) -> None:
    path = _configmap(t)
    t.patch(path, '{"data": {"k": "1", "k": "2"}}')
    t.patch(path, '{"data": {"k": "1", "k": "3"}}', query={"fieldValidation": "Strict"})
