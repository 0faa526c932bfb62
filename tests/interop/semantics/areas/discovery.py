"""What the server says it serves. Only kinds that ours serves are compared; the real server has more."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import Trial, case

KINDS = {
    "/api/v1": (
        "configmaps",
        "events",
        "namespaces",
        "namespaces/finalize",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "persistentvolumes",
        "persistentvolumes/status",
        "pods",
        "pods/eviction",
        "pods/log",
        "pods/status",
        "secrets",
        "serviceaccounts",
        "serviceaccounts/token",
        "services",
        "services/status",
    ),
    "/apis/apps/v1": (
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ),
    "/apis/batch/v1": ("jobs", "jobs/status"),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/events.k8s.io/v1": ("events",),
    "/apis/policy/v1": ("poddisruptionbudgets", "poddisruptionbudgets/status"),
    "/apis/storage.k8s.io/v1": ("volumeattachments", "volumeattachments/status"),
    "/apis/rbac.authorization.k8s.io/v1": ("clusterrolebindings", "clusterroles", "rolebindings", "roles"),
    "/apis/authentication.k8s.io/v1": ("selfsubjectreviews", "tokenreviews"),
    "/apis/authorization.k8s.io/v1": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions", "customresourcedefinitions/status"),
}


def _plain(path: str) -> None:
    def run(t: Trial) -> None:
        body = t.quietly("GET", path)
        by_name = {one["name"]: one for one in body.pop("resources")}
        t.note(body)
        for name in KINDS[path]:
            one = by_name.get(name, {})
            one.pop("storageVersionHash", None)
            t.note(one)

    run.__name__ = "plain_" + path.strip("/").replace("/", "_").replace(".", "_")
    case("discovery")(run)


for _path in KINDS:
    _plain(_path)


@case("discovery")
def legacy_versions(t: Trial) -> None:
    body = t.quietly("GET", "/api")
    body.pop("serverAddressByClientCIDRs")
    t.note(body)


@case("discovery")
def groups(t: Trial) -> None:
    body = t.quietly("GET", "/apis")
    wanted = {path.split("/")[2] for path in KINDS if path.startswith("/apis/")}
    found = {one["name"]: one for one in body["groups"]}
    t.note({key: value for key, value in body.items() if key != "groups"})
    for name in sorted(wanted):
        t.note(found.get(name))


@case("discovery")
def one_group(t: Trial) -> None:
    t.get("/apis/apps")
    t.get("/apis/apiextensions.k8s.io")
    t.get("/apis/nothing.dev")


def _aggregated(t: Trial, path: str, accept: str) -> Any:
    reply = t.server.http("GET", path, headers={"Accept": accept})
    t.note([reply.code, reply.headers["Content-Type"]])
    return reply.body


@case("discovery")
def aggregated(t: Trial) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for path in ("/api", "/apis"):
        body = _aggregated(t, path, accept)
        t.note({key: value for key, value in body.items() if key not in ("items",)})
        for group in sorted(body["items"], key=lambda one: str(one["metadata"].get("name", ""))):
            _note_group(t, group)


def _note_group(t: Trial, group: dict[str, Any]) -> None:
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
        wanted = {resource for resource in KINDS.get(path, ()) if "/" not in resource}
        for resource in version.get("resources", []):
            if resource["resource"] in wanted:
                plural = resource["resource"]
                served = set(KINDS[path])
                for sub in resource.get("subresources", []):
                    if f"{plural}/{sub['subresource']}" in served:
                        t.note([path, plural, sub])
                t.note([path, {key: value for key, value in resource.items() if key != "subresources"}])


@case("discovery")
def aggregated_with_fallback(t: Trial) -> None:
    accept = (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )
    t.note(_aggregated(t, "/apis", accept)["kind"])
    t.note(_aggregated(t, "/apis", "application/json")["kind"])


@case("discovery")
def aggregated_has_an_etag(t: Trial) -> None:
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    reply = t.server.http("GET", "/apis", headers=accept)
    etag = reply.headers["ETag"] or ""
    t.note([bool(etag), etag[:1] == '"'])
    t.note(t.server.http("GET", "/apis", headers={**accept, "If-None-Match": etag}).code)


@case("discovery")
def custom_resources_appear(t: Trial) -> None:
    t.crd("typeds")
    body = t.quietly("GET", f"/apis/{t.group()}/v1")
    found = {one["name"]: one for one in body["resources"]}
    for name in ("typeds", "typeds/status", "plains"):
        found[name].pop("storageVersionHash", None)
        t.note(found[name])
    t.note(t.quietly("GET", f"/apis/{t.group()}"))


@case("discovery")
def version(t: Trial) -> None:
    body = t.quietly("GET", "/version")
    t.note([body["major"], body["minor"], sorted(body)])


@case("discovery")
def openapi_index(t: Trial) -> None:
    paths = t.quietly("GET", "/openapi/v3")["paths"]
    for path in ("api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"):
        url = paths[path]["serverRelativeURL"]
        t.note([path, url.partition("?hash=")[0], "?hash=" in url])


@case("discovery")
def openapi_of_a_kind(t: Trial) -> None:
    paths = t.quietly("GET", "/openapi/v3")["paths"]
    document = t.quietly("GET", paths["api/v1"]["serverRelativeURL"])
    schema = document["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"]
    t.note([document["openapi"], sorted(schema["properties"]), schema["x-kubernetes-group-version-kind"]])


@case("discovery")
def openapi_of_a_custom_resource(t: Trial) -> None:
    t.crd("typeds")
    path = f"apis/{t.group()}/v1"
    t.until(lambda: path in t.server.http("GET", "/openapi/v3").body["paths"])
    document = t.quietly("GET", t.quietly("GET", "/openapi/v3")["paths"][path]["serverRelativeURL"])
    names = [name for name in document["components"]["schemas"] if name.endswith(".v1.Typed")]
    t.note(names)
    schema = document["components"]["schemas"][names[0]]
    t.note([sorted(schema["properties"]), schema["required"], schema["properties"]["spec"]["properties"]["whole"]])
