"""The scale subresource: any kind with a replica count, seen as an autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.registry.calls import Call
from remuda.apiserver.registry.objects import at_path, metadata, set_path
from remuda.apiserver.resource import Obj, ScalePaths
from remuda.kube.errors import bad_request, conflict, invalid, invalid_object
from remuda.kube.schema import OBJECT_META, Schema
from remuda.kube.selectors import label_selector_from

_INT = Schema(type="integer", format="int32")

SCALE_SCHEMA = Schema(
    type="object",
    ref="Scale",
    properties={
        "apiVersion": Schema(type="string"),
        "kind": Schema(type="string"),
        "metadata": OBJECT_META,
        "spec": Schema(type="object", properties={"replicas": _INT}),
        "status": Schema(type="object", properties={"replicas": _INT, "selector": Schema(type="string")}),
    },
)


def scale_of(paths: ScalePaths, obj: Obj) -> Obj:
    meta = metadata(obj)
    shown = {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta}
    status: dict[str, Any] = {"replicas": at_path(obj, paths.status_replicas) or 0}
    selector = at_path(obj, paths.selector) if paths.selector else None
    if isinstance(selector, dict):
        selector = str(label_selector_from(selector))
    if selector:
        status["selector"] = selector
    spec = {"replicas": at_path(obj, paths.spec_replicas) or 0}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": shown, "spec": spec, "status": status}


def rescale(call: Call, live: Obj, scale: Obj) -> Obj:
    """The object with the replica count a Scale asks for."""
    paths = call.resource.scale
    assert paths is not None
    if scale.get("kind", "Scale") != "Scale" or not str(scale.get("apiVersion", "autoscaling/v1")).startswith(
        "autoscaling/"
    ):
        raise bad_request(f"expected an autoscaling/v1 Scale, got {scale.get('apiVersion')} {scale.get('kind')}")
    meta = scale.get("metadata") or {}
    version = meta.get("resourceVersion")
    if version and version != metadata(live)["resourceVersion"]:
        raise conflict(call.resource.group, call.resource.plural, call.name)
    replicas = at_path(scale, ("spec", "replicas")) or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas of a Scale must be an integer")
    if replicas < 0:
        why = "must be greater than or equal to 0"
        raise invalid_object("autoscaling", "Scale", call.name, [invalid("spec.replicas", replicas, why)])
    new: Obj = {**live, "metadata": dict(metadata(live))}
    _copy_on_path(new, paths.spec_replicas[:-1])
    set_path(new, paths.spec_replicas, replicas)
    return new


def _copy_on_path(obj: Obj, path: tuple[str, ...]) -> None:
    for name in path:
        inner = obj.get(name)
        obj[name] = dict(inner) if isinstance(inner, dict) else {}
        obj = obj[name]
