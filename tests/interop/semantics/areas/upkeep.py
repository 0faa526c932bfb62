"""What the server's controllers do: garbage, namespaces."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.semantics.trial import Trial, case

MERGE = {"Content-Type": "application/merge-patch+json"}


def _owned(owner: dict[str, Any], name: str, **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
    reference |= {"uid": owner["metadata"]["uid"], **more}
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


def _family(t: Trial, **more: Any) -> str:
    path = t.configmaps()
    owner = t.quietly("POST", path, {"metadata": {"name": "owner"}})
    t.quietly("POST", path, _owned(owner, "child", **more))
    return path


@case("upkeep")
def background_takes_the_children(t: Trial) -> None:
    path = _family(t)
    t.delete(f"{path}/owner", {"propagationPolicy": "Background"})
    t.get(f"{path}/owner")
    t.until_gone(f"{path}/child")


@case("upkeep")
def the_default_is_background(t: Trial) -> None:
    path = _family(t)
    t.delete(f"{path}/owner")
    t.until_gone(f"{path}/child")


@case("upkeep")
def orphans_stay(t: Trial) -> None:
    path = _family(t)
    t.delete(f"{path}/owner", {"propagationPolicy": "Orphan"})
    t.until_gone(f"{path}/owner")
    t.get(f"{path}/child")


@case("upkeep")
def orphans_by_the_old_option(t: Trial) -> None:
    path = _family(t)
    t.delete(f"{path}/owner", {"orphanDependents": True})
    t.until_gone(f"{path}/owner")
    t.get(f"{path}/child")


@case("upkeep")
def foreground_waits_for_blockers(t: Trial) -> None:
    path = t.configmaps()
    owner = t.quietly("POST", path, {"metadata": {"name": "owner"}})
    child = _owned(owner, "child", blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["lab.dev/keep"]
    t.quietly("POST", path, child)
    t.delete(f"{path}/owner", {"propagationPolicy": "Foreground"})
    t.until(lambda: "deletionTimestamp" in t.server.http("GET", f"{path}/child").body["metadata"])
    t.get(f"{path}/owner", note="still there")
    t.quietly("PATCH", f"{path}/child", {"metadata": {"finalizers": None}}, headers=MERGE)
    t.until_gone(f"{path}/owner")


@case("upkeep")
def foreground_does_not_wait_for_others(t: Trial) -> None:
    path = t.configmaps()
    owner = t.quietly("POST", path, {"metadata": {"name": "owner"}})
    child = _owned(owner, "child")
    child["metadata"]["finalizers"] = ["lab.dev/keep"]
    t.quietly("POST", path, child)
    t.delete(f"{path}/owner", {"propagationPolicy": "Foreground"})
    t.until_gone(f"{path}/owner")
    t.until(lambda: "deletionTimestamp" in t.server.http("GET", f"{path}/child").body["metadata"])
    t.quietly("PATCH", f"{path}/child", {"metadata": {"finalizers": None}}, headers=MERGE)


@case("upkeep")
def an_owner_that_never_was(t: Trial) -> None:
    path = t.configmaps()
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}}
    t.quietly("POST", path, _owned(ghost, "child"))
    t.until_gone(f"{path}/child")


@case("upkeep")
def a_second_owner_keeps_it(t: Trial) -> None:
    path = t.configmaps()
    first = t.quietly("POST", path, {"metadata": {"name": "first"}})
    second = t.quietly("POST", path, {"metadata": {"name": "second"}})
    child = _owned(first, "child")
    child["metadata"]["ownerReferences"] += _owned(second, "x")["metadata"]["ownerReferences"]
    t.quietly("POST", path, child)
    t.quietly("DELETE", f"{path}/first")
    t.until(lambda: len(t.server.http("GET", f"{path}/child").body["metadata"]["ownerReferences"]) == 1)
    t.note(t.quietly("GET", f"{path}/child")["metadata"]["ownerReferences"])
    t.quietly("DELETE", f"{path}/second")
    t.until_gone(f"{path}/child")


@case("upkeep")
def grandchildren(t: Trial) -> None:
    path = _family(t)
    child = t.quietly("GET", f"{path}/child")
    t.quietly("POST", path, _owned(child, "grandchild"))
    t.quietly("DELETE", f"{path}/owner")
    t.until_gone(f"{path}/grandchild")


@case("upkeep")
def owners_of_custom_kinds(t: Trial) -> None:
    path = t.crd("plains")
    owner = t.quietly("POST", path, t.custom("plains"))
    reference = {"apiVersion": owner["apiVersion"], "kind": "Plain", "name": t.name(), "uid": owner["metadata"]["uid"]}
    maps = t.configmaps()
    t.quietly("POST", maps, {"metadata": {"name": "child", "ownerReferences": [reference]}})
    t.quietly("POST", path, t.custom("plains", "kid", metadata={"ownerReferences": [reference]}))
    t.quietly("DELETE", f"{path}/{t.name()}")
    # The real collector looks for new kinds only every 30 seconds.
    for gone in (f"{maps}/child", f"{path}/{t.name('kid')}"):
        t.until_gone(gone)


@case("upkeep")
def blocking_needs_permission(t: Trial) -> None:
    path = t.configmaps()
    owner = t.quietly("POST", path, {"metadata": {"name": "owner"}})
    child = _owned(owner, "child", blockOwnerDeletion=True)
    t.post(path, child)


@case("namespaces")
def create_and_status(t: Trial) -> None:
    t.post("/api/v1/namespaces", {"metadata": {"name": t.name()}})
    t.get(f"/api/v1/namespaces/{t.name()}/status")


@case("namespaces")
def bad_names(t: Trial) -> None:
    for name in ("a.b", "UP", "x" * 64):
        t.post("/api/v1/namespaces", {"metadata": {"name": name}})


@case("namespaces")
def deletion_takes_everything(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    t.quietly("POST", f"{path}/configmaps", {"metadata": {"name": "a"}})
    t.quietly("POST", f"{path}/secrets", {"metadata": {"name": "a"}})
    t.delete(path)
    t.until_gone(path)
    t.get(f"{path}/configmaps/a")


@case("namespaces")
def a_dying_one_takes_nothing_new(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    t.quietly("POST", f"{path}/configmaps", {"metadata": {"name": "a", "finalizers": ["lab.dev/keep"]}})
    t.quietly("DELETE", path)
    t.until(lambda: "deletionTimestamp" in t.server.http("GET", f"{path}/configmaps/a").body["metadata"])
    t.post(f"{path}/configmaps", {"metadata": {"name": "b"}})
    t.patch(f"{path}/configmaps/a", {"data": {"k": "updates are fine"}})
    again = t.server.http("DELETE", path)
    t.note([again.code, again.body["kind"], again.body["status"]["phase"], "deletionGracePeriodSeconds" in again.body])

    def explained() -> bool:
        status = t.server.http("GET", path).body["status"]
        return any(one["type"] == "NamespaceFinalizersRemaining" for one in status.get("conditions", []))

    t.until(explained)
    conditions = t.quietly("GET", path)["status"]["conditions"]
    t.note(sorted([one["type"], one["status"], one["reason"]] for one in conditions))
    t.quietly("PATCH", f"{path}/configmaps/a", {"metadata": {"finalizers": None}}, headers=MERGE)
    t.until_gone(path)


@case("namespaces")
def the_important_ones_stay(t: Trial) -> None:
    for name in ("default", "kube-system", "kube-public"):
        t.delete(f"/api/v1/namespaces/{name}")


@case("namespaces")
def system_ones_exist(t: Trial) -> None:
    wanted = ("default", "kube-node-lease", "kube-public", "kube-system")
    for name in wanted:
        t.until_served(f"/api/v1/namespaces/{name}")
    names = [item["metadata"]["name"] for item in t.quietly("GET", "/api/v1/namespaces")["items"]]
    t.note(sorted(set(names) & set(wanted)))


@case("namespaces")
def create_where_there_is_none(t: Trial) -> None:
    t.post("/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    t.apply(
        "/api/v1/namespaces/nowhere/configmaps/a",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    )


@case("namespaces")
def finalize_is_its_own_verb(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    now = t.quietly("GET", path)
    t.put(path, {**now, "spec": {"finalizers": []}}, note="spec.finalizers stay on update")
    now = t.quietly("GET", path)
    t.put(f"{path}/finalize", {**now, "spec": {"finalizers": ["kubernetes", "lab.dev/mine"]}})
    now = t.quietly("GET", path)
    t.put(f"{path}/finalize", {**now, "spec": {"finalizers": ["kubernetes"]}})


@case("namespaces")
def deletion_is_watched(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    t.until_served(f"{path}/serviceaccounts/default")
    start = t.quietly("GET", path)["metadata"]["resourceVersion"]
    t.quietly("DELETE", path)
    t.until_gone(path)
    types = []
    query = f"watch=true&fieldSelector=metadata.name={namespace}&resourceVersion={start}"
    for line in t.server.stream(f"/api/v1/namespaces?{query}"):
        event = json.loads(line)
        types.append([event["type"], event["object"]["status"]["phase"]])
        if event["type"] == "DELETED":
            break
    t.note([types[0], types[-1]])


@case("upkeep")
def a_circle_of_owners(t: Trial) -> None:
    path = t.configmaps()
    members = [t.quietly("POST", path, {"metadata": {"name": name}}) for name in ("a", "b", "c")]
    for i, member in enumerate(members):
        references = _owned(members[i - 1], "x", blockOwnerDeletion=True)["metadata"]["ownerReferences"]
        patch = {"metadata": {"ownerReferences": references}}
        t.quietly("PATCH", f"{path}/{member['metadata']['name']}", patch, headers=MERGE)
    t.delete(f"{path}/a", {"propagationPolicy": "Foreground"})
    for name in ("a", "b", "c"):
        t.until_gone(f"{path}/{name}")


@case("upkeep")
def a_blocker_that_stops_blocking(t: Trial) -> None:
    path = t.configmaps()
    owner = t.quietly("POST", path, {"metadata": {"name": "owner"}})
    child = _owned(owner, "child", blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["lab.dev/keep"]
    t.quietly("POST", path, child)
    t.delete(f"{path}/owner", {"propagationPolicy": "Foreground"})
    t.until(lambda: "deletionTimestamp" in t.server.http("GET", f"{path}/child").body["metadata"])
    t.quietly("PATCH", f"{path}/child", _owned(owner, "child", blockOwnerDeletion=False), headers=MERGE)
    t.until_gone(f"{path}/owner")
    t.quietly("PATCH", f"{path}/child", {"metadata": {"finalizers": None}}, headers=MERGE)


@case("upkeep")
def token_secrets(t: Trial) -> None:
    namespace = f"/api/v1/namespaces/{t.namespace()}"
    account = t.quietly("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    name, uid = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
    kind = {"type": "kubernetes.io/service-account-token"}
    t.quietly("POST", f"{namespace}/secrets", {"metadata": {"name": "s", "annotations": {name: "robot"}}, **kind})
    secret = f"{namespace}/secrets/s"
    t.until(lambda: "token" in (t.server.http("GET", secret).body.get("data") or {}))
    filled = t.quietly("GET", secret)
    t.note([sorted(filled["data"]), filled["metadata"]["annotations"][uid] == account["metadata"]["uid"]])
    t.note(sorted(entry["manager"] for entry in filled["metadata"]["managedFields"]))
    t.quietly("DELETE", f"{namespace}/serviceaccounts/robot")
    t.until_gone(secret)
