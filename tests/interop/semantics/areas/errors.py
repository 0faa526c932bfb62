"""Bad requests: what a client is told."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case, shared

shared("plains")


@case("errors")
def bodies_that_are_no_json(t: Trial) -> None:
    path = t.configmaps()
    for body in ("{", "", "null", "[]", '"text"', "5", "{}", '{"metadata":', '{"a":1}}', "\x00"):
        t.post(path, body, note=repr(body))


@case("errors")
def bodies_in_yaml(t: Trial) -> None:
    path = t.configmaps()
    yaml = {"Content-Type": "application/yaml"}
    t.post(path, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n", headers=yaml)
    t.post(path, "apiVersion: v1\nkind: [", headers=yaml)
    t.post(path, "metadata: {name: b}\ncolour: red\n", headers=yaml)


@case("errors")
def content_types_nobody_knows(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, "{}", headers={"Content-Type": "text/plain"})
    t.post(path, {"metadata": {"name": "a"}}, headers={"Content-Type": "application/json; charset=utf-8"})
    t.put(f"{path}/a", "{}", headers={"Content-Type": "text/plain"})


@case("errors")
def accepts_nobody_can_serve(t: Trial) -> None:
    path = t.configmaps()
    for accept in ("text/html", "application/json;as=Poem;v=v1;g=meta.k8s.io", "application/xml, text/plain"):
        t.get(path, headers={"Accept": accept}, note=accept)


@case("errors")
def accepts_with_a_choice(t: Trial) -> None:
    path = t.configmaps()
    for accept in ("*/*", "application/*", "text/html, application/json", "application/json;q=0.5, */*;q=0.1"):
        t.get(path, headers={"Accept": accept}, note=accept)


@case("errors")
def yaml_answers(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    reply = t.server.http("GET", f"{path}/a", headers={"Accept": "application/yaml"})
    lines = [line for line in reply.content.decode().splitlines() if not line.strip().startswith(IDENTITY)]
    t.note([reply.code, reply.headers["Content-Type"], lines])


IDENTITY = ("uid:", "resourceVersion:", "creationTimestamp:", "time:", "namespace:")


@case("errors")
def paths_nobody_serves(t: Trial) -> None:
    for path in (
        "/nothing",
        "/api/v9",
        "/api/v1/nothing",
        "/apis/nothing.dev/v1",
        "/apis/apps/v9",
        "/apis/apps/v1/nothing",
        "/apis/apps/v1/namespaces/default/nothing/x",
        "/api/v1/namespaces/default/configmaps/x/nothing",
        "/api/v1/pods/x",
    ):
        t.get(path, note=path)


@case("errors")
def paths_with_slashes(t: Trial) -> None:
    for path in (
        "/api/",
        "/api/v1/",
        "/apis/apps/v1/",
        "/api/v1/namespaces/default/",
        "/api/v1/namespaces/default/configmaps/",
    ):
        reply = t.server.http("GET", path)
        t.note([path, reply.code, reply.body.get("kind") if isinstance(reply.body, dict) else reply.body])


@case("errors")
def methods_nobody_offers(t: Trial) -> None:
    t.ask("PUT", "/api/v1/namespaces", {"metadata": {"name": "x"}})
    t.ask("POST", "/api/v1/namespaces/default", {"metadata": {"name": "x"}})
    t.ask("DELETE", "/api/v1/namespaces")
    t.ask("POST", "/version")
    t.ask("DELETE", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
    t.ask("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews")


@case("errors")
def updates_that_are_not_this_object(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.put(f"{path}/a", {"metadata": {}})
    t.put(f"{path}/a", {"metadata": {"name": "b"}})
    t.put(f"{path}/a", {"metadata": {"name": "a", "namespace": "elsewhere"}})
    t.put(f"{path}/nothing", {"data": {"k": 1}}, note="read before it is looked for")
    t.put(f"{path}/nothing", {"metadata": {"name": "nothing"}})


@case("errors")
def routes_of_what_is_built_in(t: Trial) -> None:
    collection = f"/api/v1/namespaces/{t.namespace()}/configmaps"
    for method in ("HEAD", "OPTIONS", "TRACE", "FROBNICATE"):
        for path in (collection, "/version", "/api", "/api/v1", "/apis/apps/v1"):
            reply = t.server.http(method, path)
            t.note([method, path, reply.code, reply.body if reply.content else ""])
    for path in ("/api/v1", "/version", collection):
        t.get(path, headers={"Accept": "application/*"}, note=path)


@case("errors")
def routes_without_methods(t: Trial) -> None:
    for path in ("/", "/apis", "/apis/apps", "/healthz", "/readyz/ping", "/metrics", "/nothing", "/openapi/v3"):
        for method in ("POST", "OPTIONS", "HEAD"):
            t.note([method, path, t.server.http(method, path).code])


@case("errors")
def routes_of_custom_resources(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains"))
    for method in ("HEAD", "OPTIONS", "FROBNICATE"):
        reply = t.server.http(method, path)
        t.note([method, reply.code, reply.body if reply.content else ""])
    t.put(path, t.custom("plains"))
    t.patch(path, {})
    t.post(f"{path}/any", t.custom("plains", "other"), query={"dryRun": "All"})
    t.get(f"{path}/{t.name()}/nothing")
    t.put(f"{path}/{t.name()}/status", {})
    t.get(path.replace("/plains", "/namespaces/default/plains"))
    t.ask("DELETE", path.replace("/plains", "/nothings"))


@case("errors")
def too_large_bodies(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, {"metadata": {"name": "a"}, "data": {"k": "x" * (3 * 1024 * 1024 + 1)}})
    t.post(path, {"metadata": {"name": "a"}, "data": {"k": "x" * (1024 * 1024 + 1)}}, note="over the kind's limit")


@case("errors")
def deep_nesting(t: Trial) -> None:
    path = t.configmaps()
    t.post(path, '{"metadata":{"name":"a"},"data":' + '{"a":' * 12_000 + "1" + "}" * 12_000 + "}")


@case("errors")
def unknown_fields(t: Trial) -> None:
    path = t.configmaps()
    body = {"metadata": {"name": "a", "colour": "red"}, "spec": {"x": 1}, "data": {"k": "v"}}
    for validation in ("Warn", "Ignore", "Strict", ""):
        t.post(path, body, query={"fieldValidation": validation, "dryRun": "All"}, note=validation)


@case("errors")
def duplicate_fields(t: Trial) -> None:
    path = t.configmaps()
    body = '{"metadata":{"name":"a"},"data":{"k":"v","k":"w"}}'
    for validation in ("Warn", "Ignore", "Strict"):
        t.post(path, body, query={"fieldValidation": validation, "dryRun": "All"}, note=validation)


@case("errors")
def fields_in_the_wrong_case(t: Trial) -> None:
    t.post(t.configmaps(), {"metadata": {"name": "a"}, "Data": {"k": "v"}}, query={"dryRun": "All"})


@case("errors")
def wrong_types(t: Trial) -> None:
    path = f"/apis/apps/v1/namespaces/{t.namespace()}/deployments"
    specs: list[dict[str, Any]] = [{"replicas": "3"}, {"replicas": 1.5}, {"paused": "yes"}, {"template": []}]
    for spec in (*specs, {"selector": "x"}):
        t.post(path, {"metadata": {"name": "a"}, "spec": spec}, note=str(spec))


@case("errors")
def query_parameters_that_make_no_sense(t: Trial) -> None:
    path = t.configmaps()
    t.get(path, query={"timeoutSeconds": "soon"})
    t.delete(f"{path}/a", query={"gracePeriodSeconds": "long"})
    t.post(path, {"metadata": {"name": "a"}}, query={"dryRun": "true"})
    t.get(path, query={"unknown": "ignored"})


@case("errors")
def head_and_options(t: Trial) -> None:
    path = t.configmaps()
    for method in ("HEAD", "OPTIONS"):
        reply = t.server.http(method, path)
        t.note([method, reply.code, len(reply.content) > 0])


@case("errors")
def health(t: Trial) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/nothing"):
        reply = t.server.http("GET", path)
        t.note([path, reply.code, reply.headers["Content-Type"], reply.body if reply.code == 200 else ""])


@case("errors")
def delete_options_that_are_broken(t: Trial) -> None:
    path = t.configmaps()
    t.quietly("POST", path, {"metadata": {"name": "a"}})
    t.delete(f"{path}/a", "{")
    t.delete(f"{path}/a", {"gracePeriodSeconds": "x"})
    t.delete(f"{path}/a", {"dryRun": ["Some"]})
