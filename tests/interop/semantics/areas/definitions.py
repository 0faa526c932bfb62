"""The life of a CustomResourceDefinition."""

from __future__ import annotations

from tests.interop.semantics.trial import CRDS, Trial, case, definition

MERGE = {"Content-Type": "application/merge-patch+json"}


def _conditions(t: Trial, name: str) -> None:
    """Conditions come in their own time; what they end up as is written down."""

    def settled() -> bool:
        body = t.server.http("GET", f"{CRDS}/{name}").body
        found = {one["type"]: one["status"] for one in body.get("status", {}).get("conditions") or []}
        return found.get("Established") == "True" or found.get("NamesAccepted") == "False"

    t.until(settled)
    status = t.quietly("GET", f"{CRDS}/{name}")["status"]
    status["conditions"].sort(key=lambda one: str(one["type"]))
    t.note(status)


@case("definitions")
def is_established(t: Trial) -> None:
    body = definition(t.group("est"), "estabs")
    made = t.post(CRDS, body).body
    _conditions(t, made["metadata"]["name"])


@case("definitions")
def bad_names(t: Trial) -> None:
    body = definition(t.group("bad"), "things")
    t.post(CRDS, {**body, "metadata": {"name": "other.name"}})
    for field, value in (("plural", "Things"), ("kind", "bad kind"), ("singular", "UP"), ("shortNames", ["a b"])):
        names = {**body["spec"]["names"], field: value}
        t.post(CRDS, {**body, "spec": {**body["spec"], "names": names}}, note=field)


@case("definitions")
def bad_versions(t: Trial) -> None:
    body = definition(t.group("bad"), "things")
    good = body["spec"]["versions"][0]
    for note, versions in (
        ("none", []),
        ("no storage", [{**good, "storage": False}]),
        ("two storages", [good, {**good, "name": "v2"}]),
        ("twice", [good, {**good, "storage": False}]),
        ("bad name", [{**good, "name": "V 1"}]),
    ):
        t.post(CRDS, {**body, "spec": {**body["spec"], "versions": versions}}, note=note)


@case("definitions")
def bad_scope_and_group(t: Trial) -> None:
    body = definition(t.group("bad"), "things")
    t.post(CRDS, {**body, "spec": {**body["spec"], "scope": "Galaxy"}})
    t.post(CRDS, {**body, "spec": {**body["spec"], "group": "BAD"}})
    t.post(CRDS, definition("nodots", "things"))


@case("definitions")
def protected_groups(t: Trial) -> None:
    t.post(CRDS, definition("things.k8s.io", "things"), query={"dryRun": "All"})


@case("definitions")
def names_conflict(t: Trial) -> None:
    t.define("firsts", group="conf")
    second = definition(t.group("conf"), "seconds")
    second["spec"]["names"]["kind"] = "First"
    t.quietly("POST", CRDS, second)
    _conditions(t, second["metadata"]["name"])
    t.get(f"/apis/{t.group('conf')}/v1/seconds")


@case("definitions")
def scope_cannot_change(t: Trial) -> None:
    t.define("scopes", group="scope")
    name = f"scopes.{t.group('scope')}"
    t.patch(f"{CRDS}/{name}", {"spec": {"scope": "Namespaced"}})
    t.patch(f"{CRDS}/{name}", {"spec": {"group": "other.dev"}})


@case("definitions")
def two_versions_are_one_object(t: Trial) -> None:
    body = definition(t.group("two"), "twos")
    first = body["spec"]["versions"][0]
    body["spec"]["versions"] = [
        first,
        {**first, "name": "v2", "storage": False},
        {**first, "name": "v1beta1", "storage": False, "served": False},
    ]
    t.quietly("POST", CRDS, body)
    path = f"/apis/{t.group('two')}"
    t.until_served(f"{path}/v2/twos")
    t.post(f"{path}/v2/twos", {"apiVersion": f"{t.group('two')}/v2", "kind": "Two", "metadata": {"name": "a"}, "x": 1})
    t.get(f"{path}/v1/twos/a")
    t.get(f"{path}/v1beta1/twos/a", note="not served")
    t.post(f"{path}/v1/twos", {"apiVersion": f"{t.group('two')}/v2", "kind": "Two", "metadata": {"name": "b"}})
    t.note(t.quietly("GET", f"{CRDS}/twos.{t.group('two')}")["status"]["storedVersions"])
    t.get(path, note="the group")


@case("definitions")
def deprecated_versions_warn(t: Trial) -> None:
    path = t.define("olds", group="old", version={"deprecated": True})
    t.get(path)
    other = t.define("olders", group="older", version={"deprecated": True, "deprecationWarning": "use something else"})
    t.get(other)


@case("definitions")
def deletion_takes_the_objects(t: Trial) -> None:
    path = t.define("doomeds", group="doom")
    api = f"{t.group('doom')}/v1"
    t.quietly("POST", path, {"apiVersion": api, "kind": "Doomed", "metadata": {"name": "a"}})
    name = f"{CRDS}/doomeds.{t.group('doom')}"
    reply = t.server.http("DELETE", name)
    t.note(reply.code)
    t.until_gone(name)
    t.get(path)
    t.define("doomeds", group="doom")
    t.get(path, note="made anew it is empty")


@case("definitions")
def deletion_waits_for_finalizers(t: Trial) -> None:
    path = t.define("held", group="held")
    body = {"apiVersion": f"{t.group('held')}/v1", "kind": "Held"}
    t.quietly("POST", path, {**body, "metadata": {"name": "a", "finalizers": ["lab.dev/keep"]}})
    name = f"{CRDS}/held.{t.group('held')}"
    t.server.http("DELETE", name)
    t.until(lambda: "deletionTimestamp" in t.server.http("GET", f"{path}/a").body.get("metadata", {}))
    t.note(t.quietly("GET", name)["metadata"]["finalizers"])
    t.post(path, {**body, "metadata": {"name": "b"}}, note="no new ones meanwhile")
    t.quietly("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, headers=MERGE)
    t.until_gone(name)


@case("definitions")
def stored_versions_guard_removal(t: Trial) -> None:
    body = definition(t.group("stored"), "storeds")
    first = body["spec"]["versions"][0]
    body["spec"]["versions"] = [first, {**first, "name": "v2", "storage": False}]
    t.quietly("POST", CRDS, body)
    name = f"{CRDS}/{body['metadata']['name']}"
    _conditions(t, body["metadata"]["name"])
    flipped = [{**first, "storage": False}, {**first, "name": "v2"}]
    t.quietly("PATCH", name, {"spec": {"versions": flipped}}, headers=MERGE)
    t.note(t.quietly("GET", name)["status"]["storedVersions"])
    t.patch(name, {"spec": {"versions": [{**first, "name": "v2"}]}})
    t.quietly("PATCH", f"{name}/status", {"status": {"storedVersions": ["v2"]}}, headers=MERGE)
    t.patch(name, {"spec": {"versions": [{**first, "name": "v2"}]}})


@case("definitions")
def scale_by_paths(t: Trial) -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel"}
    path = t.define("scaleds", group="scale", version={"subresources": {"status": {}, "scale": scale}})
    body = {"apiVersion": f"{t.group('scale')}/v1", "kind": "Scaled", "metadata": {"name": "a"}, "spec": {"n": 2}}
    t.quietly("POST", path, body)
    t.get(f"{path}/a/scale")
    t.patch(f"{path}/a/status", {"status": {"n": 1, "sel": "a=b"}})
    t.patch(f"{path}/a/scale", {"spec": {"replicas": 5}})
    t.get(f"{path}/a")
    t.patch(f"{path}/a/scale", {"spec": {"replicas": -1}})


@case("definitions")
def no_status_no_subresource(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains"))
    t.patch(f"{path}/{t.name()}/status", {"status": {}})
    t.get(f"{path}/{t.name()}/scale")


@case("definitions")
def categories_and_short_names_in_discovery(t: Trial) -> None:
    names = {"plural": "named", "singular": "namy", "kind": "Named", "shortNames": ["nm"], "categories": ["all"]}
    t.define("named", group="names", spec={"names": names})
    t.get(f"/apis/{t.group('names')}/v1")


@case("definitions")
def wrong_kind_in_the_body(t: Trial) -> None:
    path = t.crd("plains")
    t.post(path, {**t.custom("plains"), "kind": "Other"})
    t.post(path, {**t.custom("plains"), "apiVersion": "other/v1"})
    t.post(path, {"metadata": {"name": t.name()}})
    t.post(path, {"kind": "Plain", "metadata": {"name": t.name()}})


@case("definitions")
def conversion_none_needs_nothing(t: Trial) -> None:
    body = definition(t.group("conv"), "convs")
    body["spec"]["conversion"] = {"strategy": "Sideways"}
    t.post(CRDS, body, query={"dryRun": "All"})
    body["spec"]["conversion"] = {"strategy": "Webhook"}
    t.post(CRDS, body, query={"dryRun": "All"})


@case("definitions")
def namespaced_objects_need_their_namespace(t: Trial) -> None:
    path = t.define("locals", group="local", namespaced=True)
    body = {"apiVersion": f"{t.group('local')}/v1", "kind": "Local", "metadata": {"name": "a"}}
    t.post(path, body, note="on the path of all namespaces")
    inside = path.replace("/locals", f"/namespaces/{t.namespace()}/locals")
    t.post(inside, body)
    t.get(path)
    t.post(path.replace("/locals", "/namespaces/nowhere/locals"), body)


@case("definitions")
def scaled_ones_hold_counts(t: Trial) -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel"}
    path = t.define("counteds", group="counted", version={"subresources": {"status": {}, "scale": scale}})
    head = {"apiVersion": f"{t.group('counted')}/v1", "kind": "Counted"}
    for i, count in enumerate((-1, 2**31, "x", 1.5, True, None, {"a": [1, "b"]})):
        t.post(path, {**head, "metadata": {"name": f"a{i}"}, "spec": {"n": count}})
    t.post(path, {**head, "metadata": {"name": "b"}, "spec": "none"})
    t.quietly("POST", path, {**head, "metadata": {"name": "c"}, "spec": {"n": 1}})
    for status in ({"n": -1}, {"n": "x"}, {"sel": 1}, {"sel": "a=b", "n": 2}):
        t.patch(f"{path}/c/status", {"status": status})
