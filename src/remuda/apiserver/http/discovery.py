"""Discovery of groups, versions and resources: plain (one request each) and aggregated (all at once).

Documents are built at the first request and cached until the served resources change.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec

from remuda.apiserver.http.answers import COMPRESS_FROM, audit_header, finish, gzipped, takes_gzip
from remuda.apiserver.http.negotiate import Form, aggregated_discovery_version, plain_format, require_get
from remuda.apiserver.registry.calls import ServedResources
from remuda.apiserver.resource import Resource
from remuda.kube.errors import no_such_path, not_acceptable
from remuda.kube.web import Request, Response, Result, header_block, text

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_STATUS_VERBS = ["get", "patch", "update"]

Json = dict[str, Any]


class Discovery:
    """Serves /api, /apis and all non-resource paths below them."""

    def __init__(self, resources: ServedResources) -> None:
        self._resources = resources
        self._generation = -1
        self._documents: dict[str, bytes | None] = {}

    def serve(self, request: Request) -> Result | Any:
        path = request.path.rstrip("/")
        version = aggregated_discovery_version(request.headers.get(b"accept", b""))
        if version and path in ("/api", "/apis"):
            return self._serve_aggregated(request, path, version)
        body = self._document(path)
        if self._is_fixed(path):
            if body is None:
                raise no_such_path()
            require_get(request)
        elif body is None:
            return text(404, "404 page not found\n")
        form = plain_format(request.headers.get(b"accept", b""))
        if form is None:
            raise not_acceptable(("application/json", "application/yaml"))
        return finish(request, 200, body, Form(form))

    def _is_fixed(self, path: str) -> bool:
        """Return whether a path's answer never changes: the core group, and the versions of other built-in groups."""
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            return True
        return len(parts) == 3 and any(not r.custom and r.group == parts[1] for r in self._resources.all())

    def _serve_aggregated(self, request: Request, path: str, version: str) -> Response:
        body = self._document(f"{path}?{version}")
        assert body is not None
        etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers = [("Cache-Control", "public"), ("ETag", etag), ("Vary", "Accept")]
        if request.header(b"if-none-match") == etag:
            return Response(304, b"", audit_header(request) + header_block(headers))
        headers.append(("Content-Type", _AGGREGATED.format(version)))
        if len(body) >= COMPRESS_FROM and takes_gzip(request):
            body = gzipped(body)
            headers += [("Content-Encoding", "gzip")]
        return Response(200, body, audit_header(request) + header_block(headers))

    def _document(self, key: str) -> bytes | None:
        if self._generation != self._resources.generation:
            self._generation = self._resources.generation
            self._documents = {}
            self._groups = self._by_group()
        if key not in self._documents:
            document = self._build(key)
            if document is None:
                return None  # not cached: clients may request any number of paths
            self._documents[key] = msgspec.json.encode(document) + b"\n"
        return self._documents[key]

    def _by_group(self) -> dict[str, dict[str, list[Resource]]]:
        """Return group → version → resources, in the order of discovery."""
        groups: dict[str, dict[str, list[Resource]]] = {}
        for resource in self._resources.all():
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return groups

    def _build(self, key: str) -> Json | None:
        path, _, aggregated = key.partition("?")
        parts = path.strip("/").split("/")
        if aggregated:
            return self._aggregated(aggregated, core=parts[0] == "api")
        if parts == ["api"]:
            return _api_versions(self._groups.get("", {}))
        if parts == ["apis"]:
            groups = [_group(name, list(versions)) for name, versions in self._groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if parts[0] == "api" and len(parts) == 2:
            return self._resource_list("", parts[1])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self._groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], list(self._groups[parts[1]]))}
        return self._resource_list(parts[1], parts[2]) if parts[0] == "apis" and len(parts) == 3 else None

    def _resource_list(self, group: str, version: str) -> Json | None:
        resources = self._groups.get(group, {}).get(version)
        if resources is None:
            return None
        head = {"kind": "APIResourceList"} if not group else {"kind": "APIResourceList", "apiVersion": "v1"}
        entries = [entry for r in sorted(resources, key=lambda r: r.plural) for entry in _plain_entries(r)]
        return {**head, "groupVersion": f"{group}/{version}" if group else version, "resources": entries}

    def _aggregated(self, api_version: str, *, core: bool) -> Json:
        items = [self._group_item(name, versions) for name, versions in self._groups.items() if core is (name == "")]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{api_version}",
            "metadata": {},
            "items": items,
        }

    def _group_item(self, name: str, versions: dict[str, list[Resource]]) -> Json:
        listed = [
            {
                "version": version,
                "resources": [_aggregated_entry(r) for r in sorted(resources, key=lambda r: r.plural)],
                "freshness": "Current" if self._resources.is_fresh(name, version) else "Stale",
            }
            for version, resources in versions.items()
        ]
        metadata: Json = {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None}
        return {"metadata": metadata, "versions": listed}


def _api_versions(versions: dict[str, list[Resource]]) -> Json:
    return {"kind": "APIVersions", "versions": list(versions) or ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _own_kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _response_kind(resource: Resource, kind: Json) -> Json:
    """Return a kind as aggregated discovery shows it.

    For built-in kinds, the document names group and version only where they differ from the resource's own.
    """
    if resource.custom or (kind["group"], kind["version"]) != (resource.group, resource.version):
        return kind
    return {"group": "", "version": "", "kind": kind["kind"]}


def _subresources(resource: Resource) -> list[tuple[str, Json, list[str]]]:
    """Yield name, kind of the answer and verbs, ordered by name."""
    own = _own_kind(resource)
    found: list[tuple[str, Json, list[str]]] = []
    if resource.has_status:
        found.append(("status", own, _STATUS_VERBS))
    if resource.scale is not None:
        found.append(("scale", {"group": "autoscaling", "version": "v1", "kind": "Scale"}, _STATUS_VERBS))
    for name, declared in resource.subresources.items():
        if name in ("status", "scale"):
            continue
        kind = {"group": declared.group, "version": declared.version, "kind": declared.kind}
        answered = kind if declared.version else {**own, "kind": declared.kind}
        found.append((name, answered, sorted(declared.verbs)))
    return sorted(found, key=lambda entry: entry[0])


def _plain_entries(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.discovered_verbs) or sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "get" in resource.verbs:
        entry["storageVersionHash"] = storage_version_hash(resource)
    return [entry, *(_plain_subresource(resource, *found) for found in _subresources(resource))]


def _plain_subresource(resource: Resource, name: str, kind: Json, verbs: list[str]) -> Json:
    entry: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if (kind["group"], kind["version"]) != (resource.group, resource.version):
        entry.update(group=kind["group"], version=kind["version"])
    return {**entry, "kind": kind["kind"], "verbs": verbs}


def _aggregated_entry(resource: Resource) -> Json:
    entry: Json = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, _own_kind(resource)),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular or resource.kind.lower(),
        "verbs": list(resource.discovered_verbs) or sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subresources = [
        {"subresource": name, "responseKind": _response_kind(resource, kind), "verbs": verbs}
        for name, kind, verbs in _subresources(resource)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def storage_version_hash(resource: Resource) -> str:
    """Return a short digest of group, stored version and kind, which changes when the version on disk changes."""
    version = resource.storage_version or resource.version
    digest = hashlib.sha256(f"{resource.group}/{version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
