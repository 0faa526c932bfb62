"""Server-side apply: merges a configuration into an object and respects the fields of other managers.

Ownership is checked before anything is written. Fields that others own and the configuration would change are a
conflict, unless forced. Fields with equal values become shared. Fields that the applier no longer mentions are removed,
unless another manager owns them. The 409 of a conflict lists every contested field with its manager. If an object had
no managedFields so far, its existing fields get an owner.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from remuda.apiserver.apply import last_applied
from remuda.apiserver.apply.check import complaints
from remuda.apiserver.apply.entries import APPLY, UPDATE, Entries, Key, ManagedFieldsEntry, identifier, stored
from remuda.apiserver.apply.fieldset import (
    LEAF,
    Fields,
    Path,
    difference,
    has,
    intersection,
    members,
    recursive_difference,
    shown_path,
    union,
)
from remuda.apiserver.apply.merge import fitted, merge, prune
from remuda.apiserver.apply.ownership import (
    UNOWNED,
    Obj,
    changes,
    drop_from_managers,
    of_known_versions,
    write_entries,
)
from remuda.apiserver.apply.shape import ItemError, Shape, shape_of
from remuda.apiserver.apply.walk import alike, claimed
from remuda.kube.errors import StatusError, apply_conflict, bad_request
from remuda.kube.go_text import quoted
from remuda.kube.schema import Schema

BEFORE_FIRST_APPLY = "before-first-apply"

Contested = dict[Key, Fields]  # for each manager, its fields that the applier would change


def apply(
    live: Obj | None,
    config: Obj,
    *,
    schema: Schema,
    manager: str,
    force: bool,
    api_version: str,
    kind: str = "",
    subresource: str = "",
    now: str,
    reset: Fields = LEAF,
    blank: Obj | None = None,
    versions: Container[str] = (),
) -> Obj:
    """Apply the configuration to the live object (None: it does not exist yet) and return the result.

    The caller may change the result; defaults are not set yet. Raise a StatusError for a configuration that cannot be
    applied and, without `force`, for fields that others own.
    """
    try:
        _refuse_unfit(config, api_version, kind)
        shape = shape_of(schema)
        wrong = complaints(config, shape)
        if wrong:
            raise _unspecific(f"failed to create typed patch object ({_named(config)}): {wrong}")
        applier = ManagedFieldsEntry(manager, APPLY, api_version, subresource, now, LEAF)
        return _Application(live, config, shape, applier, reset, blank, versions).result(force)
    except ItemError as error:
        raise _unspecific(f"failed to merge config: {error}") from None
    except RecursionError:
        raise bad_request("the applied configuration is nested too deeply") from None


def _unspecific(message: str) -> StatusError:
    return StatusError(500, "", message)


def _refuse_unfit(config: Obj, api_version: str, kind: str) -> None:
    if config.get("apiVersion") != api_version or (kind and config.get("kind") != kind):
        raise bad_request(f"invalid object type: {_shown_kind(config)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")


def _shown_kind(config: Obj) -> str:
    group, _, version = str(config.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={config.get('kind') or ''}"


def _named(config: Obj) -> str:
    metadata = config.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {_shown_kind(config)}"


class _Application:
    """Application of one configuration to one object. It may be tried twice: as requested, then by force."""

    def __init__(
        self,
        live: Obj | None,
        config: Obj,
        shape: Shape,
        applier: ManagedFieldsEntry,
        reset: Fields,
        blank: Obj | None,
        versions: Container[str],
    ) -> None:
        self.live = live
        self.config = config
        self.shape = shape
        self.applier = applier
        self.reset = reset
        self.blank = blank
        applied = recursive_difference(claimed(config, shape) or LEAF, reset)
        self.applied = applied
        self.owned = difference(applied, UNOWNED)
        self.others = self._owners_before(versions)
        self.last = self.others.pop(applier.key, None)

    def _owners_before(self, versions: Container[str]) -> Entries:
        live, version = self.live, self.applier.api_version
        if live is None:
            return {}
        before = live.get("metadata", {}).get("managedFields")
        if not before:
            entries: Entries = {}
            first = ManagedFieldsEntry(
                BEFORE_FIRST_APPLY, UPDATE, version, self.applier.subresource, self.applier.time, LEAF
            )
            changed, _ = changes(None, live, self.shape, self.blank, self.reset)
            if changed:
                entries[first.key] = first.with_fields(changed)
            return entries
        known = of_known_versions(stored(before), version, versions)
        return {key: self._fitted(entry) for key, entry in known.items()}

    def _fitted(self, entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
        if entry.fields == self.owned:
            return entry
        fields = fitted(entry.fields, self.shape)
        return entry if fields is entry.fields else entry.with_fields(fields)

    def result(self, force: bool) -> Obj:
        new = self._merged()
        changed: Fields = LEAF
        removed: Fields = LEAF
        is_same = self.live is not None and new == self.live and (not self.shape.loose or alike(new, self.live))
        if self.live is not None and not is_same:
            changed, removed = changes(self.live, new, self.shape, self.blank, self.reset)
        contested = self._contested(changed)
        if contested and not force:
            self._yield_or_refuse(contested)
        drop_from_managers(self.others, changed, removed)
        return self._finished(new, is_same)

    def _merged(self) -> Obj:
        if self.live is None:
            return self.config
        merged = merge(self.live, self.config, self.shape)
        last = self.last.fields if self.last else LEAF
        # In the common case the manager applies at least what it applied last time, so nothing has to be pruned.
        if last == self.owned or not difference(last, self.applied):
            return merged  # type: ignore[no-any-return]  # a map merged with a map
        managed = self.applied
        for entry in self.others.values():
            managed = union(managed, entry.fields)
        return prune(merged, last, managed, self.shape)  # type: ignore[no-any-return]

    def _contested(self, changed: Fields) -> Contested:
        out: Contested = {}
        for key, entry in self.others.items():
            both = intersection(entry.fields, changed)
            if both:
                out[key] = both
        return out

    def _yield_or_refuse(self, contested: Contested) -> None:
        """Return only for kubectl and fields that client-side apply had set; otherwise raise the conflict."""
        if self.applier.manager != last_applied.MANAGER or self.live is None:
            raise refusal(contested)
        allowed = last_applied.unchanged_since(self.live, self.applier.api_version, self.shape)
        if difference(contested_fields(contested), allowed):
            raise refusal(contested, allowed)

    def _finished(self, new: Obj, is_same: bool) -> Obj:
        entries = self.others
        entry = self.applier.with_fields(self.owned)
        if is_same:
            # An apply that changes nothing keeps its time, so that the registry finds the object unchanged and writes
            # nothing.
            entry.time = self.last.time if self.last else ""
        if entry.fields:
            entries[entry.key] = entry
        copied = _copied if self.blank is None else _copied_without_nulls
        metadata = _copied_metadata(new.get("metadata") or {})
        out: Obj = {name: metadata if name == "metadata" else copied(item) for name, item in new.items()}
        out["metadata"] = metadata
        write_entries(metadata, entries)
        if self.applier.manager == last_applied.MANAGER:
            last_applied.refresh(out, self.config)
        return out


def contested_fields(contested: Contested) -> Fields:
    whole: Fields = LEAF
    for fields in contested.values():
        whole = union(whole, fields)
    return whole


def _listed(contested: Contested) -> list[tuple[Key, Path]]:
    keys = sorted(contested, key=identifier)
    return [(key, path) for key in keys for path in members(contested[key])]


def _shown_manager(key: Key) -> str:
    manager, operation, version, subresource = key
    text = quoted(manager)
    if subresource:
        text += f" with subresource {quoted(subresource)}"
    return f"{text} using {version}" if operation == UPDATE else text


def refusal(contested: Contested, allowed: Fields = LEAF) -> StatusError:
    """Return the 409 that lists every contested field, except the allowed ones."""
    conflicts = [(key, shown_path(path)) for key, path in _listed(contested) if not has(allowed, path)]
    causes = [(f"conflict with {_shown_manager(key)}", path) for key, path in conflicts]
    return apply_conflict(_message(conflicts), causes)


def _message(conflicts: list[tuple[Key, str]]) -> str:
    if len(conflicts) == 1:
        key, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_shown_manager(key)}: {path}"
    lines: list[str] = []
    shown: Key | None = None
    for key, path in conflicts:
        if key != shown:
            lines.append(f"conflicts with {_shown_manager(key)}:")
            shown = key
        lines.append(f"- {path}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _copied_without_nulls(value: Any) -> Any:
    """Return a copy that the caller may change, without nulls, because a typed object treats null as absent."""
    if type(value) is dict:
        return {
            key: _copied_without_nulls(item) if type(item) in (dict, list) else item
            for key, item in value.items()
            if item is not None
        }
    return [_copied_without_nulls(item) for item in value] if type(value) is list else value


def _copied_metadata(metadata: Obj) -> Obj:
    """Copy metadata, which is typed in every kind and never has empty containers."""
    kept = {name: item for name, item in metadata.items() if name != "managedFields" and item not in (None, {}, [])}
    return _copied_without_nulls(kept)  # type: ignore[no-any-return]  # a map copied is a map


def _copied(value: Any) -> Any:
    """Return a copy that the caller may change."""
    if type(value) is dict:
        return {key: _copied(item) if type(item) in (dict, list) else item for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) if type(item) in (dict, list) else item for item in value]
    return value
