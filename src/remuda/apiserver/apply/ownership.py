"""Transfer of field ownership: the fields that a write changed, and the managers that lose fields to it.

Updates and applies share this module. No manager owns an object's identity or the fields that the server maintains
(`_UNOWNED_METADATA`); both are excluded before any comparison. An entry is changed only by replacing it in its mapping.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from remuda.apiserver.apply.entries import Entries, documents
from remuda.apiserver.apply.fieldset import (
    LEAF,
    Fields,
    difference,
    fields_at,
    recursive_difference,
    taken_away,
    union,
)
from remuda.apiserver.apply.shape import Shape
from remuda.apiserver.apply.walk import compare_maps

Obj = dict[str, Any]

# Never owned: identity, and fields that the server maintains.
_UNOWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)
_UNOWNED_TOP = frozenset({"apiVersion", "kind", "metadata"})
UNOWNED = union(
    fields_at("apiVersion", "kind", "metadata"), fields_at(*(f"metadata.{name}" for name in _UNOWNED_METADATA))
)


_NOTHING: Obj = {}


def changes(live: Obj | None, new: Obj, shape: Shape, blank: Obj | None, reset: Fields) -> tuple[Fields, Fields]:
    """Return the fields that changed or are new, and those that were removed, without the fields that nobody can own.

    `blank` holds the zero values of an object of a built-in kind. In kube-apiserver such kinds are Go structs, which
    always have some fields. So the creator of a Deployment does not own `.spec` itself, only the fields in it, while
    the creator of a custom resource (`blank` is None) does.
    """
    parts = blank or _NOTHING
    old = parts if live is None else _completed(live, parts) if parts else live
    if parts:
        new = _completed(new, parts)
    changed, removed = compare_maps(old, new, shape, _UNOWNED_TOP)
    old_metadata, new_metadata = old.get("metadata") or {}, new.get("metadata") or {}
    meta_shape = shape.fields["metadata"][1]
    meta_changed, meta_removed = compare_maps(old_metadata, new_metadata, meta_shape, _UNOWNED_METADATA)
    if meta_changed:
        changed = union({"f:metadata": meta_changed}, changed or LEAF)
    if meta_removed:
        removed = {**(removed or LEAF), "f:metadata": meta_removed}
    if reset:
        return recursive_difference(changed or LEAF, reset), recursive_difference(removed or LEAF, reset)
    return changed or LEAF, removed or LEAF


def _completed(obj: Obj, parts: Obj) -> Obj:
    """Return the object with the missing parts added, or the object itself if none is missing."""
    out: Obj | None = None
    for key, part in parts.items():
        present = obj.get(key, _NOTHING)
        better = part if key not in obj else present
        if isinstance(part, dict) and part and isinstance(present, dict) and key in obj:
            better = _completed(present, part)
        if key not in obj or better is not present:
            out = dict(obj) if out is None else out
            out[key] = better
    return obj if out is None else out


def drop_from_managers(entries: Entries, changed: Fields, removed: Fields) -> bool:
    """Remove changed and removed fields from all managers, and drop managers that own nothing any more."""
    touched = False
    for key, entry in list(entries.items()):
        left = taken_away(entry.fields, changed) if changed else entry.fields
        if removed:
            left = difference(left, removed)
        if not left:
            del entries[key]
        elif left is not entry.fields:
            entries[key] = entry.with_fields(left)
        else:
            continue
        touched = True
    return touched


def of_known_versions(entries: Entries, api_version: str, versions: Container[str]) -> Entries:
    """Return only the entries of existing versions; the same mapping if all exist."""
    group = api_version.rpartition("/")[0]
    lost = [
        key
        for key, entry in entries.items()
        if not entry.fields or (entry.api_version != api_version and not _is_known(entry.api_version, group, versions))
    ]
    return {key: entry for key, entry in entries.items() if key not in lost} if lost else entries


def _is_known(version: str, group: str, versions: Container[str]) -> bool:
    return version in versions if versions else version.rpartition("/")[0] == group


def write_entries(metadata: Obj, entries: Entries) -> None:
    if entries:
        metadata["managedFields"] = documents(entries.values())
    else:
        metadata.pop("managedFields", None)
