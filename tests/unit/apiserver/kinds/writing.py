"""What the registry does with a kind's behaviour, in miniature."""

from __future__ import annotations

import copy
from typing import Any

from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.resource import Resource

Obj = dict[str, Any]
UID = "11111111-2222-3333-4444-555555555555"


def kind(name: str, group: str = "") -> Resource:
    return next(r for r in builtin_resources() if r.kind == name and r.group == group)


def given(resource: Resource, **fields: Any) -> Obj:
    meta: Obj = {"name": "it", **fields.pop("metadata", {})}
    if resource.namespaced:
        meta.setdefault("namespace", "ns")
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **copy.deepcopy(fields)}


def defaulted(resource: Resource, **fields: Any) -> Obj:
    obj = given(resource, **fields)
    resource.behaviour.default(obj)
    return obj


def created(resource: Resource, **fields: Any) -> Obj:
    obj = given(resource, **fields)
    obj["metadata"]["uid"] = UID
    resource.behaviour.default(obj)
    if resource.has_status and not resource.keeps_status_on_create:
        obj.pop("status", None)
    resource.behaviour.prepare_create(obj)
    resource.behaviour.default(obj)
    return obj


def complaints(resource: Resource, **fields: Any) -> list[str]:
    return refusals(resource, created(resource, **fields))


def refusals(resource: Resource, obj: Obj) -> list[str]:
    """What is wrong with a new object."""
    return [str(error) for error in resource.behaviour.validate(obj) + resource.behaviour.validate_create(obj)]


def updated(resource: Resource, old: Obj, new: Obj) -> tuple[Obj, list[str]]:
    """The object after an update of a stored one, and what is wrong with it."""
    old, new = copy.deepcopy(old), copy.deepcopy(new)
    resource.behaviour.default(new)
    resource.behaviour.prepare_update(new, old)
    found = resource.behaviour.validate(new) + resource.behaviour.validate_update(new, old)
    return new, [str(error) for error in found]


def changed(obj: Obj, path: str, value: Any) -> Obj:
    """A copy with one field (spec.template.spec...) set, or removed when the value is None."""
    new = copy.deepcopy(obj)
    *parents, last = path.split(".")
    at: Any = new
    for name in parents:
        at = at[int(name)] if name.isdigit() else at.setdefault(name, {})
    if value is None:
        at.pop(last, None)
    else:
        at[last] = value
    return new


POD = {"containers": [{"name": "main", "image": "nginx:1.27"}]}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
SELECTOR = {"matchLabels": {"app": "web"}}
