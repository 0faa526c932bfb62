"""Field sets of values: the fields that a configuration claims, and the fields that differ between two objects.

Three functions give slightly different sets. `claimed` returns the fields that an applied configuration mentions;
containers are claimed only if they are items (of maps or lists) or empty. `everything` returns all fields of a value
that appeared or disappeared, including containers. `compare` returns the differences between two values and visits only
unequal parts; changed and new fields are one set, because every caller joins them.

What must stay true: results have the order that `fieldset` requires, and the values are not changed. A list that cannot
be indexed raises `ItemError`. A value of a type that its shape does not know counts as atomic.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.apply.fieldset import LEAF, SELF, Fields, ordered
from remuda.apiserver.apply.shape import DEDUCED, ItemError, Shape


def alike(one: Any, other: Any) -> bool:
    """Return whether two equal values also have the same types: to Python, `1` and `true` are equal."""
    kind = type(one)
    if kind is dict:
        return all(alike(item, other[key]) for key, item in one.items())
    if kind is list:
        return all(map(alike, one, other))
    return (kind is bool) == (type(other) is bool)


class Index:
    """Items of a list-map or set by their path elements. A repeated element is in `repeats` with all its items."""

    __slots__ = ("items", "repeats")

    def __init__(self, values: list[Any], shape: Shape) -> None:
        element_of = shape.element_of
        assert element_of is not None
        items: dict[str, Any] = {}
        repeats: dict[str, list[Any]] = {}
        position = 0
        try:
            for position, item in enumerate(values):  # noqa: B007  # read when an item is refused
                element = element_of(item)
                if element in items:
                    repeats.setdefault(element, [items[element]]).append(item)
                else:
                    items[element] = item
        except ItemError as error:
            raise ItemError(f"element {position}: {error}") from None
        self.items = items
        self.repeats = repeats


def claimed(value: Any, shape: Shape) -> Fields | None:
    """Return the fields that a configuration mentions; None if there are none (an empty list-map, for example)."""
    if isinstance(value, dict) and shape.is_map:
        return LEAF if shape.atomic_map else _claimed_map(value, shape) or None
    if isinstance(value, list) and shape.is_list:
        return LEAF if shape.element_of is None else _claimed_list(value, shape) or None
    return LEAF


def _as_member(fields: Fields | None) -> Fields:
    if not fields or SELF in fields:
        return fields or LEAF
    return {SELF: LEAF, **fields}


def _claimed_map(value: dict[str, Any], shape: Shape) -> Fields:
    out: Fields = {}
    for key in sorted(value):
        item = value[key]
        declared = shape.fields.get(key)
        name, sub = declared or ("f:" + key, shape.rest or DEDUCED)
        if not item or type(item) not in (dict, list):
            # Empty containers are claimed themselves; empty list-maps and sets claim nothing.
            if type(item) is not list or sub.element_of is None or declared is None:
                out[name] = LEAF
            continue
        fields = claimed(item, sub)
        if declared is None:
            fields = _as_member(fields)
        if fields is not None:
            out[name] = fields
    return out


def _claimed_list(value: list[Any], shape: Shape) -> Fields:
    index = Index(value, shape)
    item_shape = shape.item or DEDUCED
    out: Fields = {}
    for element, item in index.items.items():
        out[element] = LEAF if element in index.repeats else _as_member(claimed(item, item_shape))
    return ordered(out)


def everything(value: Any, shape: Shape) -> Fields:
    """Return all fields of a value that appeared or disappeared as a whole, including the value itself."""
    kind = type(value)
    if kind is dict:
        if not value or shape.atomic_map or not shape.is_map:
            return LEAF
        return _whole_map(value, shape)
    if kind is list:
        if not value or shape.element_of is None:
            return LEAF
        return _whole_list(value, shape)
    return LEAF


_KEPT_KEY_SETS = 32  # per flat shape: enough for structs, and for the labels of many similar objects
_KEPT_KEYS = 1024  # characters of one key set


def _flat_map(value: dict[str, Any], flat: dict[tuple[str, ...], Any]) -> Fields:
    keys = tuple(value)
    found: Fields | None = flat.get(keys)
    if found is None:
        found = {SELF: LEAF}
        for key in sorted(keys):
            found["f:" + key] = LEAF
        if len(flat) < _KEPT_KEY_SETS and sum(map(len, keys)) <= _KEPT_KEYS:
            flat[keys] = found
    return found


def _whole_map(value: dict[str, Any], shape: Shape) -> Fields:
    if shape.flat is not None:
        return _flat_map(value, shape.flat)
    fields = shape.fields
    rest = shape.rest or DEDUCED
    out: Fields = {SELF: LEAF}
    for key in sorted(value):
        item = value[key]
        declared = fields.get(key)
        kind = type(item)
        if declared is None:
            out["f:" + key] = everything(item, rest) if kind is dict or kind is list else LEAF
        else:
            out[declared[0]] = everything(item, declared[1]) if kind is dict or kind is list else LEAF
    return out


def _whole_list(value: list[Any], shape: Shape) -> Fields:
    index = Index(value, shape)
    item_shape = shape.item or DEDUCED
    out: Fields = {SELF: LEAF}
    for element, item in index.items.items():
        out[element] = LEAF if element in index.repeats else everything(item, item_shape)
    return ordered(out)


Difference = tuple[Fields | None, Fields | None]  # changed or new, removed; None: nothing

_ONE_PIECE: Difference = (LEAF, None)


def compare(old: Any, new: Any, shape: Shape) -> Difference:
    """Return the difference between two unequal values, from the first to the second."""
    was, now = type(old), type(new)
    if was is dict or now is dict:
        if (was is dict or old is None) and (now is dict or new is None):
            if shape.atomic_map or not shape.is_map or not (old or new):
                return _ONE_PIECE
            return compare_maps(old or {}, new or {}, shape)
    elif was is list or now is list:
        if (was is list or old is None) and (now is list or new is None):
            if shape.element_of is None or not (old or new):
                return _ONE_PIECE
            return _compare_lists(old or [], new or [], shape)
    else:
        return _ONE_PIECE
    gone = {key: sub for key, sub in everything(old, shape).items() if key != SELF}
    return everything(new, shape), gone or None


def compare_maps(
    old: dict[str, Any], new: dict[str, Any], shape: Shape, ignoring: frozenset[str] = frozenset()
) -> Difference:
    """Compare two granular maps, some fields of which may be ignored."""
    fields = shape.fields
    rest = shape.rest or DEDUCED
    loose = shape.loose
    changed: Fields = {}
    removed: Fields = {}
    for key, item in new.items():
        if key in ignoring:
            continue
        if key in old:
            before = old[key]
            if before is item or (before == item and not loose):
                continue
            name, sub = fields.get(key) or ("f:" + key, rest)
            if loose and before == item and (not sub.loose or alike(before, item)):
                continue
            fresh, gone = compare(before, item, sub)
            if fresh is not None:
                changed[name] = fresh
            if gone is not None:
                removed[name] = gone
        else:
            name, sub = fields.get(key) or ("f:" + key, rest)
            changed[name] = everything(item, sub)
    for key, before in old.items():
        if key not in new and key not in ignoring:
            name, sub = fields.get(key) or ("f:" + key, rest)
            removed[name] = everything(before, sub)
    return ordered(changed) or None, removed or None


def _compare_lists(old: list[Any], new: list[Any], shape: Shape) -> Difference:
    after = Index(new, shape)
    if len(old) == len(new) and not after.repeats:
        aligned = _compare_aligned(old, after, shape)
        if aligned is not None:
            return aligned
    before = Index(old, shape)
    item_shape = shape.item or DEDUCED
    changed: Fields = {}
    removed: Fields = {}
    for element, item in after.items.items():
        if element in before.repeats or element in after.repeats:
            _compare_repeated(element, before, after, item_shape, changed, removed)
        elif element not in before.items:
            changed[element] = everything(item, item_shape)
        elif before.items[element] != item or (item_shape.loose and not alike(before.items[element], item)):
            fresh, gone = compare(before.items[element], item, item_shape)
            if fresh is not None:
                changed[element] = fresh
            if gone is not None:
                removed[element] = gone
    for element, item in before.items.items():
        if element not in after.items:
            removed[element] = LEAF if element in before.repeats else everything(item, item_shape)
    return ordered(changed) or None, removed or None


def _compare_aligned(old: list[Any], after: Index, shape: Shape) -> Difference | None:
    """Compare position by position, without indexing the old list; None: items have moved."""
    element_of, item_shape = shape.element_of, shape.item or DEDUCED
    assert element_of is not None
    changed: Fields = {}
    removed: Fields = {}
    for (element, item), before in zip(after.items.items(), old, strict=True):
        if before is item or (before == item and (not item_shape.loose or alike(before, item))):
            continue
        if element_of(before) != element:
            return None
        fresh, gone = compare(before, item, item_shape)
        if fresh is not None:
            changed[element] = fresh
        if gone is not None:
            removed[element] = gone
    return ordered(changed) or None, removed or None


def _compare_repeated(
    element: str, before: Index, after: Index, shape: Shape, changed: Fields, removed: Fields
) -> None:
    """Compare repeated items, which are owned together, as an atomic value."""
    was, now = before.repeats.get(element), after.repeats.get(element)
    if was and now:
        if was != now:
            changed[element] = LEAF
    elif was:
        changed[element] = everything(after.items[element], shape)
        removed[element] = LEAF
    else:
        if element in before.items:
            removed[element] = everything(before.items[element], shape)
        changed[element] = LEAF
