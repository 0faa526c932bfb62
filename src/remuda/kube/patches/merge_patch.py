"""JSON merge patch (RFC 7386), with kube-apiserver's treatment of nulls inside lists.

Objects merge, everything else replaces, null removes. If a value is new or replaces something that is not an object,
nulls are dropped from the objects inside it, also from those in lists (the RFC would keep the latter).
"""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.go_text import decoder_type
from remuda.kube.patches.json_copy import copy_json, same_json

_TOO_DEEP = "the patch is nested too deeply"


def apply_merge_patch(original: dict[str, Any], patch: Any, *, in_place: bool = False) -> dict[str, Any]:
    if patch is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise errors.bad_request(
            f"error decoding patch: json: cannot unmarshal {decoder_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    try:
        target: dict[str, Any] = original if in_place else copy_json(original)
        _merge(target, patch)
    except RecursionError:
        raise errors.bad_request(_TOO_DEEP) from None
    return target


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
            continue
        current = target.get(key)
        if type(current) is dict:
            if type(value) is dict:
                _merge(current, value)
            else:
                target[key] = copy_json(value)
        else:
            target[key] = _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    """Return a copy without the null members of objects; null elements of lists stay."""
    if type(value) is dict:
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if type(value) is list:
        return [_without_nulls(item) for item in value]
    return value


def create_merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the smallest merge patch that turns `before` into `after`.

    It cannot express null: null members of `after`, and nulls in objects in lists, are lost.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if key in before and same_json(old, value):
            continue
        if type(old) is dict and type(value) is dict:
            patch[key] = create_merge_patch(old, value)
        else:
            patch[key] = copy_json(value)
    return patch
