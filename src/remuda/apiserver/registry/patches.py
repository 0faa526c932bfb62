"""Patches of the three types that depend only on the stored object, and checks of their results.

A patch can contain anything, so its result is checked as strictly as a body: it must be of the kind, decode as one and
have the name and namespace of the request. A result that does not decode is an Invalid `patch` error that shows the
result (for a strategic patch: the patch). Apply is not here: it depends on field ownership (`apiserver.apply`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from remuda.apiserver.registry.calls import Call, PatchKind, WriteOptions
from remuda.apiserver.registry.identity import require_identity
from remuda.apiserver.registry.validation import decode_strictly
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.walk import Structural
from remuda.kube.errors import StatusError, internal, invalid, invalid_object
from remuda.kube.go_text import go_value
from remuda.kube.patches import apply_json_patch, apply_merge_patch, apply_strategic_patch
from remuda.kube.schema import Schema

Refuse = Callable[[str], StatusError]


def apply_patch(kind: PatchKind, live: Obj, patch: Any, schema: Schema) -> Obj:
    """Return the patched object; `live` is not changed."""
    if kind == "json":
        return apply_json_patch(live, patch)
    if kind == "merge":
        return apply_merge_patch(live, patch)
    if kind == "strategic":
        return apply_strategic_patch(live, patch, schema)
    raise AssertionError(f"{kind} is not computed from the stored object alone")


def patched(
    call: Call,
    kind: PatchKind,
    live: Obj,
    patch: Any,
    structural: Structural,
    options: WriteOptions,
    complaints: Sequence[str],
) -> Obj:
    """Return the patched object, decoded. `complaints` are a strict decoder's errors in the body of the patch."""
    resource, schema = call.resource, call.resource.schema

    def refuse(problem: str) -> StatusError:
        shown = (
            go_value(patch)
            if kind == "strategic"
            else _document(apply_patch(kind, live, patch, schema), resource, patch if kind == "merge" else {})
        )
        return invalid_object("", "", "", [invalid("patch", shown, problem)])

    new = apply_patch(kind, live, patch, schema)
    if kind == "strategic":
        new["apiVersion"], new["kind"] = live["apiVersion"], live["kind"]  # a strategic patch cannot change them
    elif resource.custom:
        _require_custom_kind(resource, new, call.name, refuse)
    else:
        complaints = [*complaints, *_require_kind(resource, new, refuse)]
    decode_strictly(call, structural, new, options.field_validation, complaints=complaints, refuse=refuse)
    require_identity(call, new)
    return new


def _document(obj: Obj, resource: Resource, patch: Any) -> str:
    """Encode as kube-apiserver prints it: sorted, except that metadata of built-in kinds is in the order of its
    declaration.
    """
    meta, declared = obj.get("metadata"), resource.schema.properties.get("metadata")
    if resource.custom or not isinstance(meta, dict) or declared is None:
        return msgspec.json.encode(obj, order="sorted").decode()
    order = {name: place for place, name in enumerate(declared.properties)}
    ordered = sorted(meta.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
    return msgspec.json.encode(_sorted_along({**obj, "metadata": dict(ordered)}, patch)).decode()


def _sorted_along(value: Any, patch: Any) -> Any:
    """Sort the keys of objects that a merge patch changed, as kube-apiserver does."""
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return value
    return {name: _sorted_along(item, patch.get(name)) for name, item in sorted(value.items())}


def _require_kind(resource: Resource, new: Obj, refuse: Refuse) -> list[str]:
    """Restore the kind of the path if the patch removed it. Without a version all fields are unknown: they are dropped
    and reported, and so is the name.
    """
    if not new.get("kind"):
        new["kind"] = resource.kind
    version, kind = new.get("apiVersion"), new["kind"]
    for field, value in (("apiVersion", version), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            said = f"json: cannot unmarshal {_WORDS[type(value)]} into Go struct field .{field} of type string"
            raise refuse(f"couldn't get version/kind; json parse error: {said}")
    if version and (version != resource.api_version or kind != resource.kind):
        raise refuse(f'no kind "{kind}" is registered for version "{version}" in this place')
    unknown = [] if version else sorted(new.keys() - {"apiVersion", "kind"})
    for field in unknown:
        del new[field]
    new["apiVersion"] = resource.api_version
    return [f'unknown field "{field}"' for field in unknown]


_WORDS = {bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def _require_custom_kind(resource: Resource, new: Obj, name: str, refuse: Refuse) -> None:
    version, kind = new.get("apiVersion"), new.get("kind")
    if not kind or not isinstance(kind, str):
        raise refuse(f"Object 'Kind' is missing in '{_document(new, resource, {})}'")
    if not version or not isinstance(version, str):
        raise internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    group = version.rpartition("/")[0]
    if version != resource.api_version:
        wrong = invalid("apiVersion", version, f"must be {resource.api_version}")
    elif kind != resource.kind:
        wrong = invalid("kind", kind, f"must be {resource.kind}")
    else:
        return
    raise invalid_object(group, kind, name, [wrong])
