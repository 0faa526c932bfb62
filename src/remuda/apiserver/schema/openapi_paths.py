"""Paths of one resource in an OpenAPI document: its operations and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.apiserver.schema.openapi_meta import DELETE_OPTIONS, PATCH, STATUS

if TYPE_CHECKING:
    from remuda.apiserver.schema.openapi import Served

_JSON = ("application/json", "application/yaml")
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_SCALE_GVK = {"group": "autoscaling", "kind": "Scale", "version": "v1"}


def _parameter(name: str, description: str, kind: str = "string", where: str = "query") -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": name,
        "in": where,
        "description": description,
        "schema": {"type": kind, "uniqueItems": True},
    }
    if where == "path":
        shown["required"] = True
    return shown


_WRITE = [
    _parameter("dryRun", "All: do everything but store the result."),
    _parameter("fieldManager", "Who makes this change; required for apply."),
    _parameter("fieldValidation", "What to do about unknown or duplicate fields: Ignore, Warn or Strict."),
]
_LIST = [
    _parameter("allowWatchBookmarks", "Ask a watch for bookmarks.", "boolean"),
    _parameter("continue", "Where the previous page ended."),
    _parameter("fieldSelector", "Only objects whose fields match."),
    _parameter("labelSelector", "Only objects whose labels match."),
    _parameter("limit", "At most so many objects in a page.", "integer"),
    _parameter("resourceVersion", "At, or not older than, this revision."),
    _parameter("resourceVersionMatch", "How to take resourceVersion: Exact or NotOlderThan."),
    _parameter("sendInitialEvents", "Start a watch with what there is.", "boolean"),
    _parameter("timeoutSeconds", "End after so many seconds.", "integer"),
    _parameter("watch", "Stream changes instead of listing.", "boolean"),
]
_DELETE = [
    _parameter("dryRun", "All: do everything but store the result."),
    _parameter("gracePeriodSeconds", "Delete after so many seconds; 0: at once.", "integer"),
    _parameter("ignoreStoreReadErrorWithClusterBreakingPotential", "Delete what cannot be read.", "boolean"),
    _parameter("orphanDependents", "Older spelling of propagationPolicy.", "boolean"),
    _parameter("propagationPolicy", "What becomes of dependents: Orphan, Background or Foreground."),
]
_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "get": [],
    "list": _LIST,
    "post": _WRITE,
    "put": _WRITE,
    "patch": [*_WRITE, _parameter("force", "Take fields over from other managers (apply only).", "boolean")],
    "delete": _DELETE,
    "deletecollection": [*_DELETE, *_LIST],
}


class _Verb(NamedTuple):
    verb: str  # the verb that the authorizer checks
    method: str
    action: str
    word: str  # start of the operation ids


_ON_COLLECTION = (
    _Verb("list", "get", "list", "list"),
    _Verb("create", "post", "post", "create"),
    _Verb("deletecollection", "delete", "deletecollection", "deleteCollection"),
)
_ON_OBJECT = (
    _Verb("get", "get", "get", "read"),
    _Verb("update", "put", "put", "replace"),
    _Verb("delete", "delete", "delete", "delete"),
    _Verb("patch", "patch", "patch", "patch"),
)


def paths_of(resource: Served, component: str, list_component: str, bodies: Mapping[str, str]) -> dict[str, Any]:
    """Build the paths. List operations answer with `list_component`, those of a subresource in `bodies` with its
    component, all others with `component`.
    """
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    paths: dict[str, Any] = {}
    if resource.namespaced and "list" in resource.verbs:
        everywhere = {"get": _operation(resource, list_component, _ON_COLLECTION[0], suffix="ForAllNamespaces")}
        paths[f"{root}/{resource.plural}"] = {**everywhere, "parameters": _common(resource, named=False, scoped=False)}
    on_collection = {
        **_operations(resource, list_component, _ON_COLLECTION[:1]),
        **_operations(resource, component, _ON_COLLECTION[1:]),
    }
    _add(paths, base, on_collection, _common(resource, named=False))
    _add(paths, f"{base}/{{name}}", _operations(resource, component, _ON_OBJECT), _common(resource))
    for name, kind_component, verbs, gvk in _subresources(resource, component, bodies):
        wanted = [verb for verb in (*_ON_OBJECT, *_ON_COLLECTION[1:2]) if verb.verb in verbs]
        operations = {v.method: _operation(resource, kind_component, v, name.title(), gvk) for v in wanted}
        _add(paths, f"{base}/{{name}}/{name}", operations, _common(resource))
    return paths


def _add(paths: dict[str, Any], path: str, operations: dict[str, Any], parameters: list[dict[str, Any]]) -> None:
    if operations:
        paths[path] = {**operations, "parameters": parameters}


def _subresources(
    resource: Served, component: str, bodies: Mapping[str, str]
) -> list[tuple[str, str, tuple[str, ...], dict[str, str]]]:
    own = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    found: list[tuple[str, str, tuple[str, ...], dict[str, str]]] = []
    if resource.has_status:
        found.append(("status", component, ("get", "update", "patch"), own))
    if resource.scale is not None:
        found.append(("scale", _SCALE, ("get", "update", "patch"), own if resource.custom else _SCALE_GVK))
    for name, sub in resource.subresources.items():
        gvk = {
            "group": sub.group or resource.group,
            "kind": sub.kind,
            "version": sub.version or resource.version,
        }
        found.append((name, bodies.get(name, component), tuple(sub.verbs), gvk))
    return found


def _common(resource: Served, named: bool = True, scoped: bool = True) -> list[dict[str, Any]]:
    found = []
    if named:
        found.append(_parameter("name", f"name of the {resource.kind}", where="path"))
    if scoped and resource.namespaced:
        found.append(_parameter("namespace", "The namespace of the object.", where="path"))
    return [*found, _parameter("pretty", "Indent the output.")]


def _operations(resource: Served, component: str, verbs: tuple[_Verb, ...]) -> dict[str, Any]:
    return {verb.method: _operation(resource, component, verb) for verb in verbs if verb.verb in resource.verbs}


def _operation(
    resource: Served, component: str, verb: _Verb, suffix: str = "", gvk: dict[str, str] | None = None
) -> dict[str, Any]:
    group = resource.group.partition(".")[0] or "core"
    scope = "Namespaced" if resource.namespaced and suffix != "ForAllNamespaces" else ""
    title = "".join(part.title() for part in group.split("-"))
    shown: dict[str, Any] = {
        "tags": [f"{group}_{resource.version}"],
        "description": f"{verb.word} {resource.kind}",
        "operationId": f"{verb.word}{title}{resource.version.title()}{scope}{resource.kind}{suffix}",
        "parameters": _PARAMETERS[verb.action],
    }
    body = _request_body(resource, component, verb)
    if body:
        shown["requestBody"] = body
    shown["responses"] = _responses(component, verb)
    shown["x-kubernetes-action"] = verb.action
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    shown["x-kubernetes-group-version-kind"] = gvk or own
    return shown


def _content(name: str, media: tuple[str, ...]) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{name}"}} for kind in media}


def _request_body(resource: Served, component: str, verb: _Verb) -> dict[str, Any]:
    if verb.method == "patch":
        media = _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC)
        return {"content": _content(PATCH, media), "required": True}
    if verb.method in ("post", "put"):
        return {"content": _content(component, ("*/*",)), "required": True}
    return {"content": _content(DELETE_OPTIONS, ("*/*",))} if verb.method == "delete" else {}


def _responses(component: str, verb: _Verb) -> dict[str, Any]:
    name = STATUS if verb.method == "delete" else component
    found = {"200": {"description": "OK", "content": _content(name, _JSON)}}
    if verb.method in ("post", "put", "patch"):
        found["201"] = {"description": "Created", "content": _content(name, _JSON)}
    if verb.method in ("post", "delete"):
        found["202"] = {"description": "Accepted", "content": _content(name, _JSON)}
    return {**found, "401": {"description": "Unauthorized"}}
