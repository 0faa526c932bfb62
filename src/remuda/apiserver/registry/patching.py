"""Patches of the four kinds that are computed from the stored object, with the answers of the real server.

Apply is not here: it is computed from field ownership (`apiserver.apply`).
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.registry.calls import PatchKind
from remuda.apiserver.resource import Obj
from remuda.kube.errors import StatusError, bad_request
from remuda.kube.patches import json_patch, merge_patch, strategic_merge_patch
from remuda.kube.schema import Schema


def apply_patch(kind: PatchKind, live: Obj, patch: Any, schema: Schema) -> Obj:
    if kind == "json":
        if not isinstance(patch, list):
            raise bad_request("a JSON patch must be a list of operations")
        return _object(json_patch(live, patch))
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    if kind == "merge":
        return _object(merge_patch(live, patch))
    if kind == "strategic":
        return _object(strategic_merge_patch(live, patch, schema))
    raise StatusError(415, "UnsupportedMediaType", f"unknown kind of patch: {kind}")


def _object(patched: Any) -> Obj:
    if not isinstance(patched, dict):
        raise bad_request("the patch must leave an object")
    # The patched object is changed in place by the steps that follow; the stored one must not be.
    metadata = patched.get("metadata")
    return {**patched, "metadata": dict(metadata) if isinstance(metadata, dict) else {}}
