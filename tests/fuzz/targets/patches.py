"""JSON, merge and strategic patches."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.apiserver.kinds import builtin_resources
from remuda.kube.errors import StatusError
from remuda.kube.patches import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
    copy_json,
    create_json_patch,
    create_merge_patch,
)
from tests.fuzz.source import Source

_POD = next(resource.schema for resource in builtin_resources() if resource.kind == "Pod")
_NAMES = (
    *("metadata", "labels", "finalizers", "spec", "containers", "name", "image", "env", "ports", "containerPort"),
    *("tolerations", "volumes", "a", "$patch", "replace", "delete", "merge", "$retainKeys"),
    *("$deleteFromPrimitiveList/finalizers", "$setElementOrder/containers", "$setElementOrder/finalizers"),
)
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_POINTERS = ("", "/", "/metadata", "/metadata/labels", "/spec/containers", "/spec/containers/0", "/spec/containers/-")
_LIVE = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["one", "two"]},
    "spec": {"containers": [{"name": "a", "image": "i", "env": [{"name": "A"}]}, {"name": "b", "ports": []}]},
}
_LARGEST = 4 * 1024 * 1024


def check(data: bytes) -> None:
    """Raise if a patch is neither applied nor refused, changes its input, or gives something else a second time."""
    source = Source(data)
    kind = source.byte() % 4
    live = copy_json(_LIVE) if source.flag() else source.object(_NAMES)
    if kind == 3:
        _check_created(live, source.object(_NAMES))
        return
    patch: Any = [_operation(source) for _ in range(source.byte() % 16)] if kind == 0 else source.json(_NAMES)
    before, given = copy_json(live), copy_json(patch)
    try:
        after = _apply(kind, live, patch)
    except StatusError as error:
        # Upstream refuses wrong directives of strategic patches with a 500 without a reason, and so do we.
        assert error.code < 500 or (kind == 2 and not error.reason), error
        after = {}
    assert msgspec.json.encode(live) == msgspec.json.encode(before)
    assert msgspec.json.encode(patch) == msgspec.json.encode(given)
    assert len(msgspec.json.encode(after)) <= _LARGEST
    if kind == 1 and after:
        assert _without_nulls(apply_merge_patch(after, patch)) == _without_nulls(after)


def _apply(kind: int, live: dict[str, Any], patch: Any) -> dict[str, Any]:
    if kind == 0:
        return apply_json_patch(live, patch)
    if kind == 1:
        return apply_merge_patch(live, patch)
    return apply_strategic_patch(live, patch, _POD)


def _operation(source: Source) -> Any:
    if source.byte() % 16 == 15:
        return source.json()
    operation = {"op": source.pick(_OPERATIONS), "path": _pointer(source), "value": source.json(_NAMES, 2)}
    if source.flag():
        operation["from"] = _pointer(source)
    return operation


def _pointer(source: Source) -> str:
    return source.pick(_POINTERS) + (f"/{source.pick(_NAMES)}" if source.flag() else source.text(6))


def _check_created(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply_json_patch(before, create_json_patch(before, after)) == after
    bare = _without_nulls(after)
    assert apply_merge_patch(_without_nulls(before), create_merge_patch(_without_nulls(before), bare)) == bare


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value if one is not None] if isinstance(value, list) else value
