"""Scale subresource: any kind with a replica count as an autoscaling/v1 Scale.

The scale paths of a custom resource must lead to numbers in every write.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.registry.calls import Call
from remuda.apiserver.registry.objects import at_path, metadata, set_path
from remuda.apiserver.resource import Obj, Path, ScalePaths
from remuda.kube.errors import FieldError, bad_request, conflict, invalid, invalid_object
from remuda.kube.go_text import go_type, go_value
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
    """Return the object with the replica count of a Scale."""
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
    if replicas < 0 and not call.resource.custom:  # for custom resources, their own validation reports it
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


def scale_errors(paths: ScalePaths, obj: Obj) -> list[FieldError]:
    """Return the errors in the replica counts and the selector of a custom resource."""
    return _count_errors(paths.spec_replicas, obj) + scale_status_errors(paths, obj)


def scale_status_errors(paths: ScalePaths, obj: Obj) -> list[FieldError]:
    found = _count_errors(paths.status_replicas, obj)
    if paths.selector:
        value, problem = _typed(obj, paths.selector, str, "string")
        if problem:
            found.append(invalid(_shown(paths.selector), value or "", problem))
    return found


_LARGEST = 2**31 - 1


def _count_errors(path: Path, obj: Obj) -> list[FieldError]:
    count, problem = _typed(obj, path, int, "int64")
    if problem:
        return [invalid(_shown(path), 0, problem)]
    if count is not None and count < 0:
        return [invalid(_shown(path), count, "should be a non-negative integer")]
    if count is not None and count > _LARGEST:
        return [invalid(_shown(path), count, f"should be less than or equal to {_LARGEST}")]
    return []


def _shown(path: Path) -> str:
    return f".{'.'.join(path)}"


def _typed(obj: Any, path: Path, wanted: type, word: str) -> tuple[Any, str]:
    """Return the value at a path (None: absent), or the error in it or in a part of the path."""
    for name in path:
        if obj is None:
            return None, ""
        if not isinstance(obj, dict):
            return None, _misfit(path, obj, "map[string]interface{}")
        if name not in obj:
            return None, ""
        obj = obj[name]
    return (obj, "") if type(obj) is wanted else (None, _misfit(path, obj, word))


def _misfit(path: Path, value: Any, wanted: str) -> str:
    found = "<nil>" if value is None else go_type(value)
    return f"{_shown(path)} accessor error: {go_value(value)} is of the type {found}, expected {wanted}"
