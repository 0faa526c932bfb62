"""Patches of the three kinds that are computed from the stored object alone.

Apply is not here: it is computed from field ownership (`apiserver.apply`).
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.registry.calls import PatchKind
from remuda.apiserver.resource import Obj
from remuda.kube.patches import apply_json_patch, apply_merge_patch, apply_strategic_patch
from remuda.kube.schema import Schema


def apply_patch(kind: PatchKind, live: Obj, patch: Any, schema: Schema) -> Obj:
    """The patched object; `live` stays as it is."""
    if kind == "json":
        return apply_json_patch(live, patch)
    if kind == "merge":
        return apply_merge_patch(live, patch)
    if kind == "strategic":
        return apply_strategic_patch(live, patch, schema)
    raise AssertionError(f"{kind} is not computed from the stored object alone")
