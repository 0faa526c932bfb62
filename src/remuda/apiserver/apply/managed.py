"""Entry points for the registry: field ownership on every write, and server-side apply.

`on_update` follows a create, update or patch and writes metadata.managedFields of the new object. `apply` builds the
new object from the live one and a configuration. `keep_times` runs after defaulting and preparation and restores the
times of entries where nothing else changed.

What must stay true: a write that changes nothing leaves managedFields as they were, so that the registry can detect it
by comparing objects. The functions change nothing in the objects passed in, except the managedFields of `new`. No input
can make `on_update` fail; it does not track what cannot be tracked. Versions of a kind share their schema, so an entry
of another version is read with this version's schema.

An object remembers a limited number of updaters; appliers do not count. Past the limit `on_update` joins the oldest
entries of one API version into one entry of a manager that stands for all of them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from remuda.apiserver.apply.entries import (
    MOST_UPDATERS,
    OLD_UPDATES,
    UPDATE,
    BadEntries,
    Entries,
    Key,
    ManagedFieldsEntry,
    identifier,
    received,
    stored,
)
from remuda.apiserver.apply.fieldset import LEAF, Fields, difference, overlaid, union
from remuda.apiserver.apply.ownership import (
    Obj,
    changes,
    drop_from_managers,
    of_known_versions,
    write_entries,
)
from remuda.apiserver.apply.server_side_apply import apply
from remuda.apiserver.apply.shape import ItemError, Shape, shape_of
from remuda.apiserver.apply.walk import alike
from remuda.kube.schema import Schema

__all__ = ["apply", "keep_times", "on_update"]


def on_update(
    live: Obj | None,
    new: Obj,
    *,
    schema: Schema,
    manager: str,
    api_version: str,
    subresource: str = "",
    now: str,
    reset: Fields = LEAF,
    blank: Obj | None = None,
    versions: Container[str] = (),
) -> None:
    """Set the managedFields of `new`, which `manager` created (live None), updated or patched.

    `reset` are fields that the write cannot change. `blank` is the zero value of a built-in kind (see
    `ownership.changes`), None for custom resources. `versions` are the API versions of the kind: entries of other
    versions are dropped (empty: any version of the group).
    """
    metadata = new.setdefault("metadata", {})
    before = (live.get("metadata", {}).get("managedFields") or None) if live is not None else None
    try:
        entries, untouched = _entries_before(before, metadata.get("managedFields"), bool(subresource))
        if not entries and live is not None:
            metadata.pop("managedFields", None)  # tracking starts at creation or with the first apply
            return
        known = of_known_versions(entries, api_version, versions)
        # kube-apiserver maps ownership through the Scale object, and loses the time on the way.
        time = "" if subresource == "scale" else now
        own = ManagedFieldsEntry(manager or "unknown", UPDATE, api_version, subresource, time, LEAF)
        changed = _update(known, live, new, shape_of(schema), own, reset, blank)
    except (ItemError, RecursionError):
        metadata.pop("managedFields", None)
        return
    if before and untouched and not changed and known is entries:
        metadata["managedFields"] = before
    else:
        write_entries(metadata, known)


def _entries_before(before: Any, given: Any, live_only: bool) -> tuple[Entries, bool]:
    """Return the entries that a write starts from, and whether they are those of the live object.

    A client may set them, or reset them with an empty list or entry. Missing or invalid entries have no effect.
    """
    if live_only or not isinstance(given, list) or given is before or given == before:
        return stored(before), True
    if not given or given == [{}]:
        return {}, False
    try:
        return received(given), False
    except (BadEntries, RecursionError):
        return stored(before), True


def _update(
    entries: Entries,
    live: Obj | None,
    new: Obj,
    shape: Shape,
    own: ManagedFieldsEntry,
    reset: Fields,
    blank: Obj | None,
) -> bool:
    """Move the ownership of changed fields to `own`, an entry without fields. Return whether any entry changed."""
    changed, removed = changes(live, new, shape, blank, reset)
    if not changed and not removed:
        return False
    previous = entries.pop(own.key, None) if changed else None
    touched = drop_from_managers(entries, changed, removed)
    if changed:
        kept = difference(previous.fields, removed) if previous else LEAF
        own.fields = overlaid(kept, changed)
        entries[own.key] = own
        cap_updaters(entries)
    return bool(changed) or touched


def cap_updaters(entries: Entries) -> None:
    """Merge the oldest update entries until their number is within the limit."""
    if len(entries) <= MOST_UPDATERS:
        return
    updaters = [key for key, entry in entries.items() if entry.operation == UPDATE]
    surplus = len(updaters) - MOST_UPDATERS
    updaters.sort(key=lambda key: (entries[key].time, identifier(key)))
    oldest: dict[str, Key] = {}
    for key in updaters:
        if surplus <= 0:
            return
        version = entries[key].api_version
        if version not in oldest:
            oldest[version] = key
            continue
        _join(entries, oldest[version], entries.pop(key))
        surplus -= 1


def _join(entries: Entries, first: Key, joining: ManagedFieldsEntry) -> None:
    bucket = ManagedFieldsEntry(OLD_UPDATES, UPDATE, joining.api_version, "", joining.time, joining.fields)
    present = entries.get(bucket.key) or entries.pop(first)
    bucket.fields = union(joining.fields, present.fields)
    entries[bucket.key] = bucket


def keep_times(live: Obj, new: Obj) -> None:
    """Restore the times of managedFields if the new object differs from the live one in nothing else."""
    before, after = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not before or not after or before == after or len(before) != len(after):
        return
    if [_timeless(entry) for entry in before] != [_timeless(entry) for entry in after]:
        return
    old, fresh = _without_entries(live), _without_entries(new)
    if old == fresh and alike(old, fresh):
        new["metadata"]["managedFields"] = before


def _timeless(entry: Obj) -> Obj:
    return {name: value for name, value in entry.items() if name != "time"}


def _without_entries(obj: Obj) -> Obj:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}
