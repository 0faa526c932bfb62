"""Every verb on an ordinary object, and what each refuses."""

from __future__ import annotations

from tests.interop.semantics.trial import Trial, case


@case("verbs")
def create_get_update_delete(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}}).body
    t.get(f"{path}/a")
    made["data"] = {"k": "w"}
    t.put(f"{path}/a", made)
    t.delete(f"{path}/a")
    t.get(f"{path}/a")


@case("verbs")
def create_twice(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}})
    t.post(path, {"metadata": {"name": "a"}})


@case("verbs")
def create_with_a_generated_name(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"generateName": "made-"}})
    t.post(path, {"metadata": {"generateName": "x" * 70 + "-"}})


@case("verbs")
def create_with_both_name_and_prefix(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a", "generateName": "b-"}})


@case("verbs")
def create_without_a_name(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {}})


@case("verbs")
def create_with_a_bad_name(t: Trial) -> None:
    path = t.configmaps()
    for name in ("UPPER", "under_score", "-dash", "x" * 254, "a/b", "ä"):
        t.post(path, {"metadata": {"name": name}})


@case("verbs")
def create_with_a_bad_prefix(t: Trial) -> None:
    reply = t.server.http("POST", t.configmaps(), {"metadata": {"generateName": "Bad_"}})
    t.note([reply.code, reply.body["reason"], [cause["field"] for cause in reply.body["details"]["causes"]]])


@case("verbs")
def create_with_a_revision(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a", "resourceVersion": "5"}})


@case("verbs")
def create_with_server_fields(t: Trial) -> None:
    t.post(
        t.configmaps(),
        {
            "metadata": {
                "name": "a",
                "uid": "11111111-1111-1111-1111-111111111111",
                "creationTimestamp": "2001-01-01T00:00:00Z",
                "generation": 7,
                "selfLink": "/somewhere",
                "deletionTimestamp": "2001-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 5,
            }
        },
    )


@case("verbs")
def create_in_another_namespace(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a", "namespace": "elsewhere"}})


@case("verbs")
def create_of_another_kind(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    t.post(path, {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}})
    t.post(path, {"apiVersion": "v1", "metadata": {"name": "a"}})


@case("verbs")
def create_on_a_name(t: Trial) -> None:
    t.post(f"{t.configmaps()}/a", {"metadata": {"name": "a"}})


@case("verbs")
def create_dry(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}}, query={"dryRun": "All"})
    t.get(f"{path}/a")
    t.post(path, {"metadata": {"name": "a"}}, query={"dryRun": "Some"})


@case("verbs")
def get_what_is_not_there(t: Trial) -> None:
    path = t.configmaps()
    t.get(f"{path}/nothing")
    t.get("/api/v1/namespaces/nowhere")
    t.get("/api/v1/namespaces/nowhere/configmaps/x")


@case("verbs")
def list_of_a_namespace_that_is_not_there(t: Trial) -> None:
    t.get("/api/v1/namespaces/nowhere/configmaps")


@case("verbs")
def list_is_sorted_and_bare(t: Trial) -> None:
    path = t.configmaps()
    for name in ("b", "a", "c"):
        t.quietly("POST", path, {"metadata": {"name": name}})
    t.get(path)


@case("verbs")
def update_with_a_stale_revision(t: Trial) -> None:
    path = t.configmaps()
    made = t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.quietly("PUT", f"{path}/a", {**made, "data": {"k": "1"}})
    t.put(f"{path}/a", {**made, "data": {"k": "2"}})


@case("verbs")
def update_without_a_revision(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    t.put(f"{path}/a", {"metadata": {"name": "a"}, "data": {"k": "2"}})


@case("verbs")
def update_that_changes_nothing(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a"}, "data": {"k": "1"}}).body
    t.put(f"{path}/a", made)


@case("verbs")
def update_of_another_name(t: Trial) -> None:
    path = t.configmaps()
    made = t.quietly("POST", path, {"metadata": {"name": "a"}})
    made["metadata"]["name"] = "b"
    t.put(f"{path}/a", made)


@case("verbs")
def update_with_another_uid(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a"}}).body
    made["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
    t.put(f"{path}/a", made)


@case("verbs")
def update_of_what_is_not_there(t: Trial) -> None:
    path = t.configmaps()
    t.put(f"{path}/a", {"metadata": {"name": "a"}})
    t.put(f"{path}/a", {"metadata": {"name": "a", "resourceVersion": "1"}})


@case("verbs")
def update_creates_where_the_kind_allows(t: Trial) -> None:
    namespace = t.namespace()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"
    t.put(path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}})
    t.get(path)


@case("verbs")
def update_keeps_what_the_server_owns(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a"}}).body
    meta = {"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    t.put(
        f"{path}/a", {"metadata": {**meta, "resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "v"}}
    )


@case("verbs")
def update_dry(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a"}}).body
    t.put(f"{path}/a", {**made, "data": {"k": "v"}}, query={"dryRun": "All"})
    t.get(f"{path}/a")


@case("verbs")
def update_with_a_revision_that_is_no_number(t: Trial) -> None:
    path = t.configmaps()
    made = t.quietly("POST", path, {"metadata": {"name": "a"}})
    made["metadata"]["resourceVersion"] = "abc"
    t.put(f"{path}/a", made)


@case("verbs")
def delete_what_is_not_there(t: Trial) -> None:
    t.delete(f"{t.configmaps()}/a")


@case("verbs")
def delete_with_preconditions(t: Trial) -> None:
    path = t.configmaps()
    made = t.post(path, {"metadata": {"name": "a"}}).body
    t.delete(f"{path}/a", {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}})
    t.delete(f"{path}/a", {"preconditions": {"resourceVersion": "1"}})
    t.delete(f"{path}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})


@case("verbs")
def delete_dry(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.delete(f"{path}/a", query={"dryRun": "All"})
    t.get(f"{path}/a")


@case("verbs")
def delete_with_a_finalizer(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a", "finalizers": ["lab.dev/keep"]}})
    t.delete(f"{path}/a")
    t.delete(f"{path}/a", note="again")
    t.get(f"{path}/a")
    t.patch(f"{path}/a", {"metadata": {"finalizers": ["lab.dev/keep", "lab.dev/more"]}}, note="no new finalizers")
    t.patch(f"{path}/a", {"data": {"still": "writable"}})
    t.patch(f"{path}/a", {"metadata": {"finalizers": None}}, note="the last one removes it")
    t.get(f"{path}/a")


@case("verbs")
def delete_with_a_bad_policy(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.delete(f"{path}/a", {"propagationPolicy": "Sideways"})
    t.delete(f"{path}/a", query={"propagationPolicy": "Sideways"})
    t.delete(f"{path}/a", {"propagationPolicy": "Background", "orphanDependents": True})


@case("verbs")
def delete_with_options_of_another_kind(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.delete(f"{path}/a", {"kind": "ConfigMap", "apiVersion": "v1"})
    t.delete(f"{path}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


@case("verbs")
def delete_a_collection(t: Trial) -> None:
    path = t.configmaps()
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        t.quietly("POST", path, {"metadata": {"name": name, "labels": {"colour": colour}}})
    t.delete(path, query={"labelSelector": "colour=red"})
    t.get(path)
    t.delete(path)
    t.get(path)


@case("verbs")
def delete_a_collection_dry(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.delete(path, query={"dryRun": "All"})
    t.get(path)


@case("verbs")
def a_verb_nobody_knows(t: Trial) -> None:
    path = t.configmaps()
    t.ask("BREW", path)
    t.ask("PUT", path, {"metadata": {"name": "a"}})
    t.ask("PATCH", path, {}, headers={"Content-Type": "application/merge-patch+json"})


@case("verbs")
def generation_counts_the_desired_state(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    made = t.post(path, DEPLOYMENT).body
    t.patch(f"{path}/d", {"metadata": {"labels": {"x": "1"}}}, note="metadata does not count")
    t.patch(f"{path}/d", {"spec": {"replicas": 2}}, note="spec counts")
    t.patch(f"{path}/d/status", {"status": {"replicas": 1}}, note="status does not count")
    assert made["metadata"]["generation"] == 1


@case("verbs")
def status_and_spec_stay_apart(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    t.post(path, {**DEPLOYMENT, "status": {"replicas": 9}}, note="status is dropped on create")
    made = t.get(f"{path}/d").body
    t.put(f"{path}/d", {**made, "status": {"replicas": 9}}, note="and on update")
    now = t.get(f"{path}/d/status").body
    spec = {**now["spec"], "replicas": 7}
    t.put(f"{path}/d/status", {**now, "spec": spec, "status": {"replicas": 3, "observedGeneration": 1}})
    t.get(f"{path}/d")


@case("verbs")
def scale_reads_and_writes(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    t.quietly("POST", path, DEPLOYMENT)
    scale = t.get(f"{path}/d/scale").body
    scale["spec"]["replicas"] = 4
    t.put(f"{path}/d/scale", scale)
    t.patch(f"{path}/d/scale", {"spec": {"replicas": 5}})
    t.patch(f"{path}/d/scale", {"spec": {"replicas": -1}})
    t.get(f"{path}/d")


@case("verbs")
def secrets_keep_their_secret(t: Trial) -> None:
    path = f"/api/v1/namespaces/{t.namespace()}/secrets"
    t.post(path, {"metadata": {"name": "a"}, "stringData": {"k": "plain"}, "data": {"d": "AQI="}})
    t.get(f"{path}/a")
    t.post(path, {"metadata": {"name": "b"}, "data": {"d": "not base64!"}})
    t.post(path, {"metadata": {"name": "c"}, "data": {"bad key": "AQI="}})
    t.patch(f"{path}/a", {"type": "other"}, note="the type cannot change")


@case("verbs")
def what_is_immutable_stays(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}, "data": {"k": "v"}, "immutable": True})
    t.patch(f"{path}/a", {"data": {"k": "w"}})
    t.patch(f"{path}/a", {"immutable": False})
    t.patch(f"{path}/a", {"metadata": {"labels": {"x": "1"}}})


@case("verbs")
def config_maps_check_their_keys(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}, "data": {"bad key": "v"}})
    t.post(path, {"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"k": "AQI="}})
    t.post(path, {"metadata": {"name": "a"}, "data": {"..": "v"}})
    t.post(path, {"metadata": {"name": "a"}, "data": {"k": 5}})


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        },
    },
}
