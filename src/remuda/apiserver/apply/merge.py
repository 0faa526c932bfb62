"""Merge of an applied configuration into an object, and removal of the fields that are no longer applied.

`merge` never removes anything; `without` removes items and fields by their paths; `prune` decides which these are. They
build new containers along changed paths and share the rest with their arguments, which stay unchanged. A field that
lost its last part becomes null, as in kube-apiserver: typed kinds drop it, and the schema of a custom resource rejects
it. Merged lists keep the order of the live object, except that shared items come in the order of the applied
configuration.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.apply.fieldset import (
    LEAF,
    SELF,
    Fields,
    difference,
    intersection,
    is_member,
    union,
)
from remuda.apiserver.apply.shape import DEDUCED, Shape
from remuda.apiserver.apply.walk import Index, claimed

_MISSING: Any = object()


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """Return the live value, merged with an applied value of the same structure."""
    if isinstance(live, dict) and live and shape.is_map and not shape.atomic_map:
        if isinstance(applied, dict):
            return _merge_maps(live, applied, shape)
        return live if applied is None else applied
    if isinstance(live, list) and live and shape.element_of is not None:
        if isinstance(applied, list):
            return _merge_lists(live, applied, shape)
        return live if applied is None else applied
    return applied


def _merge_maps(live: dict[str, Any], applied: dict[str, Any], shape: Shape) -> dict[str, Any]:
    out = dict(live)
    for key, item in applied.items():
        present = live.get(key, _MISSING)
        if present is _MISSING:
            out[key] = item
        else:
            declared = shape.fields.get(key)
            out[key] = merge(present, item, declared[1] if declared else shape.rest or DEDUCED)
    return out


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    here, there = Index(live, shape), Index(applied, shape)
    element_of = shape.element_of
    assert element_of is not None
    item_shape = shape.item or DEDUCED

    def merged(element: str) -> Any:
        item = there.items[element]
        if element not in here.items:
            return item
        # If an item is repeated, none of its copies is merged with.
        return merge(None if element in here.repeats else here.items[element], item, item_shape)

    out: list[Any] = []
    for element, item in _interleaved([element_of(item) for item in live], live, list(there.items), here, there):
        out.append(item if element is None else merged(element))
    return out


def _interleaved(
    live_elements: list[str], live: list[Any], applied: list[str], here: Index, there: Index
) -> list[tuple[str | None, Any]]:
    """Return the order of a merged list: pairs of an applied element, or None and an item that only the
    live list has.
    """
    shared = iter([element for element in applied if element in here.items])
    awaited = next(shared, None)
    out: list[tuple[str | None, Any]] = []
    done: set[str] = set()
    left = right = 0
    while left < len(live_elements) or right < len(applied):
        if left < len(live_elements):
            element = live_elements[left]
            if element not in there.items:
                out.append((None, live[left]))
                left += 1
                continue
            if right < len(applied) and element != applied[right] and awaited is not None and awaited != element:
                left += 1  # an item of both lists, at another position
                continue
            if element in done or (right < len(applied) and element == applied[right]):
                left += 1
        if right < len(applied):
            element = applied[right]
            out.append((element, None))
            done.add(element)
            right += 1
            if awaited == element:
                awaited = next(shared, None)
    return out


def without(value: Any, fields: Fields, shape: Shape) -> Any:
    """Return the value without the items and fields of a set. An atomic value, or one that lost its last part, becomes
    None.
    """
    if isinstance(value, dict):
        if not shape.is_map or shape.atomic_map:
            return None
        return _map_without(value, fields, shape) or None
    if isinstance(value, list):
        if shape.element_of is None:
            return None
        return _list_without(value, fields, shape) or None
    return value


def _map_without(value: dict[str, Any], fields: Fields, shape: Shape) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        name, sub = shape.fields.get(key) or ("f:" + key, shape.rest or DEDUCED)
        gone = fields.get(name)
        if gone is None:
            out[key] = item
        elif not is_member(gone):
            out[key] = without(item, gone, sub)
    return out


def _list_without(value: list[Any], fields: Fields, shape: Shape) -> list[Any]:
    element_of, item_shape = shape.element_of, shape.item or DEDUCED
    assert element_of is not None
    out: list[Any] = []
    for item in value:
        gone = fields.get(element_of(item))
        if gone is None:
            out.append(item)
        elif not is_member(gone):
            out.append(without(item, gone, item_shape))
    return out


def extract(value: Any, fields: Fields, shape: Shape) -> Any:
    """Return only the items and fields of a set: the part of an object that a manager owns."""
    if isinstance(value, dict) and value and shape.is_map and not shape.atomic_map:
        out: dict[str, Any] = {}
        for key, item in value.items():
            name, sub = shape.fields.get(key) or ("f:" + key, shape.rest or DEDUCED)
            kept = fields.get(name)
            if kept is not None:
                out[key] = extract(item, kept, sub) if kept else item
        return out
    if isinstance(value, list) and value and shape.element_of is not None:
        index = Index(value, shape)
        owned = [(item, fields[element]) for element, item in index.items.items() if element in fields]
        return [extract(item, kept, shape.item or DEDUCED) if kept else item for item, kept in owned]
    return value


def with_named_fields(fields: Fields, shape: Shape | None) -> Fields:
    """Return the set, with every declared field on the path to a member added as a member."""
    out: Fields = {}
    for key, sub in fields.items():
        if not sub:
            out[key] = sub
            continue
        child, declared = _child_shape(key, shape)
        filled = with_named_fields(sub, child)
        out[key] = {SELF: LEAF, **filled} if declared and SELF not in filled else filled
    return out


def _child_shape(key: str, shape: Shape | None) -> tuple[Shape | None, bool]:
    if shape is None:
        return None, False
    if key.startswith("f:"):
        declared = shape.fields.get(key[2:])
        return (declared[1], True) if declared else (shape.rest, False)
    return (shape.item if key.startswith("k:") else None), False


def prune(merged: Any, last: Fields, managed: Fields, shape: Shape) -> Any:
    """Remove from the merged object the fields that the applier no longer applies, unless another manager owns them.

    `last` is what it had applied; `managed` is what all managers own now, including its new configuration.
    """
    was = with_named_fields(last, shape)
    whole = with_named_fields(claimed(merged, shape) or LEAF, shape)
    candidate = without(merged, was, shape)
    kept = with_named_fields(claimed(candidate, shape) or LEAF, shape)
    owned = union(kept, with_named_fields(managed, shape))
    candidate = without(merged, difference(whole, owned), shape)
    kept = with_named_fields(claimed(candidate, shape) or LEAF, shape)
    return without(merged, intersection(difference(whole, kept), was), shape)


def fitted(fields: Fields, shape: Shape) -> Fields:
    """Adapt a set written under an older schema to this one: a value that is now atomic is owned as a whole."""
    whole: Fields = {}
    for key, sub in fields.items():
        if not sub or key == SELF:
            continue
        child = _child_shape(key, shape)[0]
        if child is None or (child.is_map and child.rest is DEDUCED and not child.fields):
            continue
        one_piece = child.atomic_map if child.is_map else child.is_list and child.element_of is None
        better = LEAF if one_piece else fitted(sub, child)
        if better is not sub:
            whole[key] = better
    return {**fields, **whole} if whole else fields
