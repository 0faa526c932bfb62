"""Everything the front serves besides resources: discovery, OpenAPI, health, metrics, extra routes."""

from __future__ import annotations

import base64
import hashlib

from remuda.apiserver.http.discovery import storage_version_hash
from remuda.kube.web import Request, Response, Result

from .fakes import PODS, WIDGETS, Fronted

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_unaggregated_discovery_lists_versions_and_groups() -> None:
    async with Fronted() as server:
        versions = (await server.ask("GET", "/api")).json
        assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
        groups = (await server.ask("GET", "/apis")).json
        listed = [{"groupVersion": f"example.com/{v}", "version": v} for v in ("v1", "v1beta1")]
        assert groups == {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [{"name": "example.com", "versions": listed, "preferredVersion": listed[0]}],
        }
        group = (await server.ask("GET", "/apis/example.com/")).json
        assert (group["kind"], group["name"]) == ("APIGroup", "example.com")
        assert (await server.ask("GET", "/apis/nowhere.io")).status == 404
        assert (await server.ask("GET", "/apis/example.com/v9")).status == 404


async def test_discovery_lists_resources_and_subresources() -> None:
    async with Fronted() as server:
        core = (await server.ask("GET", "/api/v1")).json
        assert (core["kind"], core["groupVersion"]) == ("APIResourceList", "v1")
        by_name = {entry["name"]: entry for entry in core["resources"]}
        assert list(by_name) == ["namespaces", "pods", "pods/eviction", "pods/log", "pods/status"]
        assert by_name["pods"]["shortNames"] == ["po"]
        assert by_name["pods"]["singularName"] == "pod"
        assert by_name["pods"]["verbs"] == sorted(by_name["pods"]["verbs"])
        assert by_name["pods/eviction"] == {
            "name": "pods/eviction",
            "singularName": "",
            "namespaced": True,
            "group": "policy",
            "version": "v1",
            "kind": "Eviction",
            "verbs": ["create"],
        }
        custom = (await server.ask("GET", "/apis/example.com/v1")).json
        scale = next(entry for entry in custom["resources"] if entry["name"] == "widgets/scale")
        assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_storage_version_hash_matches_upstream() -> None:
    expected = base64.b64encode(hashlib.sha256(b"/v1/Pod").digest()[:8]).decode()
    assert storage_version_hash(PODS) == expected


async def test_aggregated_discovery_supports_etag() -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", "/apis", Accept=V2)
        assert answer.header("content-type") == V2.replace("g=", "g=")
        assert (answer.header("vary"), answer.header("cache-control")) == ("Accept", "public")
        document = answer.json
        assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
        (group,) = document["items"]
        assert group["metadata"]["name"] == "example.com"
        version = group["versions"][0]
        assert (version["version"], version["freshness"]) == ("v1", "Current")
        widgets = version["resources"][0]
        assert widgets["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
        assert (widgets["scope"], widgets["singularResource"]) == ("Namespaced", "widget")
        assert [s["subresource"] for s in widgets["subresources"]] == ["scale", "status"]
        etag = answer.header("etag")
        again = await server.ask("GET", "/apis", Accept=V2, If_None_Match=etag)
        assert (again.status, again.body) == (304, b"")
        core = (await server.ask("GET", "/api", Accept=V2.replace("v=v2", "v=v2beta1"))).json
        kinds = {r["resource"]: r["responseKind"] for r in core["items"][0]["versions"][0]["resources"]}
        assert kinds["pods"] == {"group": "", "version": "", "kind": "Pod"}
        assert core["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
        assert [v["version"] for v in core["items"][0]["versions"]] == ["v1"]


async def test_discovery_reflects_removed_resources() -> None:
    async with Fronted() as server:
        before = (await server.ask("GET", "/apis", Accept=V2)).header("etag")
        server.registry.resources.resources.remove(WIDGETS)
        server.registry.resources.generation += 1
        after = await server.ask("GET", "/apis", Accept=V2)
        assert after.header("etag") != before
        assert (await server.ask("GET", "/apis/example.com/v1")).status == 404


async def test_openapi_v3_document_is_built_once_and_addressed_by_hash() -> None:
    built: list[int] = []

    def build(resources: object) -> dict[str, str]:
        built.append(1)
        return {"openapi": "3.0.0"}

    async with Fronted(build_openapi=build) as server:
        index = (await server.ask("GET", "/openapi/v3")).json["paths"]
        assert list(index) == ["api/v1", "apis/example.com/v1", "apis/example.com/v1beta1"]
        assert not built
        url = index["api/v1"]["serverRelativeURL"]
        for _ in range(2):
            answer = await server.ask("GET", url)
            assert answer.json == {"openapi": "3.0.0"}
        assert len(built) == 1
        assert answer.header("cache-control") == "public, immutable"
        assert answer.header("expires")
        cached = await server.ask("GET", url, If_None_Match=answer.header("etag"))
        assert cached.status == 304
        moved = await server.ask("GET", "/openapi/v3/api/v1?hash=OLD")
        assert (moved.status, moved.header("location")) == (301, url)
        assert (await server.ask("GET", "/openapi/v3/apis/no/v1")).status == 404
        assert (await server.ask("GET", url, Accept="application/com.github.x+protobuf")).status == 406
        server.registry.resources.resources.remove(WIDGETS)
        server.registry.resources.generation += 1
        changed = (await server.ask("GET", "/openapi/v3")).json["paths"]
        assert changed["api/v1"]["serverRelativeURL"] == url
        assert "apis/example.com/v1" not in changed


async def test_version_endpoint_returns_kubernetes_version() -> None:
    async with Fronted() as server:
        version = (await server.ask("GET", "/version")).json
        assert (version["major"], version["minor"], version["gitVersion"][:6]) == ("1", "36", "v1.36.")
        assert "/" in version["platform"]


async def test_health_endpoints_report_checks_without_details() -> None:
    sick = ""
    async with Fronted(checks={"store": lambda: sick}) as server:
        for path in ("/healthz", "/livez", "/readyz", "/readyz/store", "/healthz/ping"):
            answer = await server.ask("GET", path)
            assert (answer.status, answer.body) == (200, b"ok")
        verbose = (await server.ask("GET", "/readyz?verbose")).body.decode()
        assert verbose == "[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n"
        sick = "disk full"
        failed = await server.ask("GET", "/readyz")
        assert failed.status == 500
        assert b"[-]store failed: reason withheld\n" in failed.body
        assert b"disk full" not in failed.body
        excluded = await server.ask("GET", "/readyz?exclude=store&exclude=other&verbose")
        assert excluded.status == 200
        assert b"[+]store excluded: ok" in excluded.body
        assert b'no matches for "other"' in excluded.body


async def test_metrics_count_only_served_resources() -> None:
    async with Fronted(stored_objects=lambda: {"pods": 7}) as server:
        await server.ask("GET", "/api/v1/namespaces/ns/pods/a")
        await server.ask("GET", "/api/v1/namespaces/ns/pods/zzz")
        for n in range(5):
            await server.ask("GET", f"/api/v1/invented{n}")
        text = (await server.ask("GET", "/metrics")).body.decode()
        counts = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
        assert any('resource="pods"' in line and 'code="200"' in line and line.endswith(" 1.0") for line in counts)
        assert any('resource="pods"' in line and 'code="404"' in line for line in counts)
        assert not any("invented" in line for line in counts)
        assert "apiserver_request_duration_seconds_bucket{" in text
        assert 'apiserver_storage_objects{resource="pods"} 7.0' in text
        assert 'apiserver_current_inflight_requests{request_kind="mutating"} 0.0' in text


async def test_root_path_lists_paths_and_extra_documents_are_served() -> None:
    async with Fronted(documents={"/openid/v1/jwks": ("application/jwk-set+json", lambda: {"keys": []})}) as server:
        paths = (await server.ask("GET", "/")).json["paths"]
        assert {"/api", "/api/v1", "/apis/example.com/v1", "/healthz", "/version", "/openid/v1/jwks"} <= set(paths)
        assert (await server.ask("GET", "/openid/v1/jwks")).json == {"keys": []}


async def test_unknown_path_is_authorized_before_returning_404() -> None:
    async with Fronted() as server:
        answer = await server.ask("GET", "/nowhere")
        assert (answer.status, answer.body) == (404, b"404 page not found\n")
        assert (server.authorizer.asked[-1].verb, server.authorizer.asked[-1].path) == ("get", "/nowhere")
        assert (await server.ask("POST", "/version", b"x")).status == 405
        server.authorizer.allowed = False
        refused = await server.ask("GET", "/metrics", X_User="eve")
        assert refused.status == 403
        assert refused.json["message"] == 'forbidden: User "eve" cannot get path "/metrics"'


async def test_extra_routes_skip_authorization_and_match_longest_prefix() -> None:
    def answering(text: bytes) -> object:
        def handler(request: Request) -> Result:
            return Response(200, text)

        return handler

    async with Fronted(extra_routes={"/v3/": answering(b"short"), "/v3/connect": answering(b"long")}) as server:
        server.authorizer.allowed = False
        assert (await server.ask("GET", "/v3/connect/agent")).body == b"long"
        assert (await server.ask("POST", "/v3/other", b"x")).body == b"short"
