"""OpenAPI v3 documents, one per group-version, as `kubectl explain` and client-side validation read them.

A document lists the paths of each resource (kubectl finds a kind, and whether it takes `fieldValidation`, by the
group-version-kind on the operations) and a component per type. Each built-in type is a separate component, referenced
by `Schema.ref`, so cyclic types terminate. A custom resource is one component, in which only metadata is a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from remuda.apiserver.schema.openapi_meta import LIST_META, META_COMPONENTS, SCALE
from remuda.apiserver.schema.openapi_paths import paths_of
from remuda.apiserver.schema.openapi_render import Renderer, component_name, reference
from remuda.kube.schema import Schema


class Served(Protocol):
    """Resource as an OpenAPI document shows it; `apiserver.resource.Resource` is one."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def list_kind(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...
    @property
    def verbs(self) -> tuple[str, ...]: ...
    @property
    def has_status(self) -> bool: ...
    @property
    def scale(self) -> object | None: ...
    @property
    def custom(self) -> bool: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def subresources(self) -> Any: ...


def openapi_v3(resources: Sequence[Served]) -> dict[str, Any]:
    """Build the document of one group-version; all resources must belong to it."""
    renderer = Renderer()
    paths: dict[str, Any] = {}
    for resource in resources:
        name = kind_component(resource)
        renderer.components[name] = {
            **renderer.definition(resource.schema, custom=resource.custom),
            "x-kubernetes-group-version-kind": [_gvk(resource, resource.kind)],
        }
        list_name = f"{name.rpartition('.')[0]}.{_list_kind(resource)}"
        if "list" in resource.verbs:
            renderer.components[list_name] = _list_component(resource, name)
        paths.update(paths_of(resource, name, list_name, _bodies(resource, renderer)))
    renderer.drain()
    components = {**META_COMPONENTS, **renderer.components}
    if any(resource.scale is not None for resource in resources):
        components.setdefault("io.k8s.api.autoscaling.v1.Scale", SCALE)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "description": "Bearer Token authentication",
                    "name": "authorization",
                    "in": "header",
                }
            },
        },
    }


def _bodies(resource: Served, renderer: Renderer) -> dict[str, str]:
    """Render the bodies that subresources take and return, and return their components by name."""
    found: dict[str, str] = {}
    for name, sub in resource.subresources.items():
        if sub.schema is not None:
            found[name] = component_name(sub.schema.ref)
            gvk = {"group": sub.group or resource.group, "kind": sub.kind, "version": sub.version or resource.version}
            renderer.components[found[name]] = {
                **renderer.definition(sub.schema, custom=False),
                "x-kubernetes-group-version-kind": [gvk],
            }
    return found


def kind_component(resource: Served) -> str:
    """Return the component name: `io.x-k8s.cluster.v1beta2.Machine` (custom resource), `io.k8s.api.core.v1.Pod`
    (built-in).
    """
    if not resource.custom:
        if resource.schema.ref:
            return component_name(resource.schema.ref)
        return f"io.k8s.api.{resource.group.partition('.')[0] or 'core'}.{resource.version}.{resource.kind}"
    reversed_group = ".".join(reversed(resource.group.split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def _gvk(resource: Served, kind: str) -> dict[str, str]:
    return {"group": resource.group, "kind": kind, "version": resource.version}


def _list_kind(resource: Served) -> str:
    return resource.list_kind or f"{resource.kind}List"


def _list_component(resource: Served, item: str) -> dict[str, Any]:
    return {
        "description": f"{_list_kind(resource)} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The group and version of this list."},
            "items": {
                "description": f"The {resource.plural} of this list.",
                "type": "array",
                "items": {"default": {}, "allOf": [reference(item)]},
            },
            "kind": {"type": "string", "description": "The kind of this list."},
            "metadata": {"description": "Standard list metadata.", "default": {}, "allOf": [reference(LIST_META)]},
        },
        "x-kubernetes-group-version-kind": [_gvk(resource, _list_kind(resource))],
    }
