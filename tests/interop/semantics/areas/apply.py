"""Server-side apply: ownership, conflicts, force, removal, keyed lists."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.areas.verbs import DEPLOYMENT
from tests.interop.semantics.trial import Trial, case, shared


def _configmap(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _deployment(**container: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i:1", **container}]
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


@case("apply")
def creates_and_repeats(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v"))
    t.apply(path, _configmap(k="v"), note="nothing changes")
    t.apply(path, _configmap(k="w"))


@case("apply")
def removes_what_is_no_longer_said(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v", l="w"))
    t.apply(path, _configmap(k="v"))


@case("apply")
def conflicts_name_the_other(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v"), "first")
    t.apply(path, _configmap(k="w"), "second")
    t.apply(path, _configmap(k="v"), "second", note="equal values are shared")
    t.apply(path, _configmap(k="w"), "second", query={"force": "true"}, note="still shared: forced")


@case("apply")
def several_conflicts(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v", l="v"), "first")
    t.apply(path, _configmap(m="v"), "third")
    t.apply(path, _configmap(k="w", l="w", m="w"), "second")


@case("apply")
def conflicts_with_an_update(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, _configmap(k="v"))
    t.apply(f"{path}/a", _configmap(k="w"))
    t.apply(f"{path}/a", _configmap(k="w"), query={"force": "true"})


@case("apply")
def shared_fields_outlive_one_owner(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v"), "first")
    t.apply(path, _configmap(k="v"), "second")
    t.apply(path, _configmap(), "first")
    t.apply(path, _configmap(), "second")


@case("apply")
def an_update_takes_over(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v", l="w"))
    t.patch(path, {"data": {"k": "x"}}, query={"fieldManager": "other"})
    t.apply(path, _configmap(k="v", l="w"))
    t.apply(path, _configmap(l="w"), note="what another took over stays")


@case("apply")
def needs_a_manager(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.patch(path, _configmap(k="v"), "apply")


@case("apply")
def needs_the_kind(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, {"metadata": {"name": "a"}})
    t.apply(path, {"apiVersion": "v1", "metadata": {"name": "a"}})
    t.apply(path, {**_configmap(), "kind": "Secret"})
    t.apply(path, {**_configmap(), "apiVersion": "v9"})


@case("apply")
def needs_the_same_name(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap("b"))
    t.apply(path, {"apiVersion": "v1", "kind": "ConfigMap"}, note="a name may be left out")


@case("apply")
def refuses_managed_fields(t: Trial) -> None:
    body = _configmap(k="v")
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    t.apply(f"{t.configmaps()}/a", body)


@case("apply")
def refuses_a_stale_revision(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v"))
    body = _configmap(k="w")
    body["metadata"]["resourceVersion"] = "1"
    t.apply(path, body)


@case("apply")
def refuses_a_uid_of_nothing(t: Trial) -> None:
    body = _configmap(k="v")
    body["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
    t.apply(f"{t.configmaps()}/a", body)


@case("apply")
def refuses_unknown_fields(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, {**_configmap(k="v"), "colour": "red"})
    t.apply(path, {**_configmap(k="v"), "colour": "red"}, query={"fieldValidation": "Strict"})
    t.apply(path, {**_configmap(k="v"), "colour": "red"}, query={"fieldValidation": "Ignore"})


@case("apply")
def refuses_wrong_types(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, {**_configmap(), "data": {"k": 5}})
    t.apply(path, {**_configmap(), "data": "text"})


@case("apply")
def takes_yaml(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v # a comment\n")
    t.apply(path, "apiVersion: v1\nkind: [\n", note="broken")
    t.apply(path, "just text", note="no object")


@case("apply")
def dry(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    t.apply(path, _configmap(k="v"), query={"dryRun": "All"})
    t.get(path)


@case("apply")
def defaults_are_owned_by_nobody(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments/d"
    t.apply(path, _deployment())
    t.apply(path, _deployment(), "second")


@case("apply")
def lists_are_owned_by_element(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments/d"
    t.apply(path, _deployment(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]), "first")
    other = _deployment(env=[{"name": "C", "value": "3"}])
    t.apply(path, other, "second")
    t.apply(path, _deployment(env=[{"name": "B", "value": "2"}]), "first")


@case("apply")
def atomic_lists_are_owned_whole(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments/d"
    t.apply(path, _deployment(args=["a", "b"]), "first")
    t.apply(path, _deployment(args=["c"]), "second")
    t.apply(path, _deployment(args=["c"]), "second", query={"force": "true"})


@case("apply")
def duplicate_keys_in_a_list(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments/d"
    t.apply(path, _deployment(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]))


@case("apply")
def a_list_element_without_its_key(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments/d"
    t.apply(path, _deployment(env=[{"value": "1"}]))


@case("apply")
def sets_of_finalizers(t: Trial) -> None:
    path = f"{t.configmaps()}/a"
    body = _configmap(k="v")
    body["metadata"]["finalizers"] = ["lab.dev/a"]
    t.apply(path, body, "first")
    body["metadata"]["finalizers"] = ["lab.dev/b"]
    t.apply(path, body, "second")
    body["metadata"]["finalizers"] = []
    t.apply(path, body, "first")
    t.patch(path, {"metadata": {"finalizers": None}})


@case("apply")
def of_status_is_its_own(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    t.quietly("POST", path, DEPLOYMENT)
    condition = {"type": "Available", "status": "True", "reason": "r", "message": "m"}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    t.apply(f"{path}/d/status", {**body, "status": {"conditions": [condition]}}, "controller")
    t.apply(f"{path}/d/status", {**body, "status": {}}, "controller")


@case("apply")
def of_a_custom_resource(t: Trial) -> None:
    path = t.crd("owneds")
    name = t.name("ssa")
    body = {"apiVersion": t.api_version(), "kind": "Owned", "metadata": {"name": name}}
    first = {"items": [{"id": "a", "size": 1}, {"id": "b", "size": 2}], "tags": ["x"], "whole": {"p": 1, "q": 2}}
    t.apply(f"{path}/{name}", {**body, "spec": first}, "first")
    second = {"items": [{"id": "b", "size": 2}, {"id": "c", "size": 3}], "tags": ["y"]}
    t.apply(f"{path}/{name}", {**body, "spec": second}, "second")
    t.apply(f"{path}/{name}", {**body, "spec": {"items": [{"id": "a", "size": 9}]}}, "first")
    t.apply(f"{path}/{name}", {**body, "spec": {"items": [{"id": "b", "size": 7}]}}, "third")
    t.apply(f"{path}/{name}", {**body, "spec": {"whole": {"p": 5}}}, "third")


@case("apply")
def duplicates_in_sets_and_maps_of_a_custom_resource(t: Trial) -> None:
    path = t.crd("owneds")
    name = t.name("ssadup")
    body = {"apiVersion": t.api_version(), "kind": "Owned", "metadata": {"name": name}}
    t.apply(f"{path}/{name}", {**body, "spec": {"tags": ["x", "x"]}})
    t.apply(f"{path}/{name}", {**body, "spec": {"items": [{"id": "a"}, {"id": "a"}]}})
    t.post(path, {**body, "spec": {"tags": ["x", "x"]}})
    t.post(path, {**body, "spec": {"items": [{"id": "a"}, {"id": "a"}]}})


@case("apply")
def empty_values_are_owned_too(t: Trial) -> None:
    path = t.crd("owneds")
    name = t.name("ssaempty")
    body = {"apiVersion": t.api_version(), "kind": "Owned", "metadata": {"name": name}}
    t.apply(f"{path}/{name}", {**body, "spec": {"items": [], "tags": [], "whole": {}}}, "first")
    t.apply(f"{path}/{name}", {**body, "spec": {"tags": ["x"]}}, "second")
    t.apply(f"{path}/{name}", {**body, "spec": {}}, "first")


@case("apply")
def managers_of_updates_are_merged(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, _configmap(k="v"), query={"fieldManager": "one"})
    for number in range(3):
        t.patch(f"{path}/a", {"data": {f"n{number}": "v"}}, query={"fieldManager": "two"})
    t.patch(f"{path}/a", {"data": {"k": None}}, query={"fieldManager": "three"})


OWNED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": {"type": "string"}, "size": {"type": "integer"}},
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "integer"},
                },
            },
        }
    },
}

shared("owneds", OWNED)
