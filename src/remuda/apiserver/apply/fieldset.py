"""Sets of field paths, stored in the form of their FieldsV1 document.

A set is a dict from path element to subset. An empty subset means that the element itself is a member. `"."` among
other keys means that the element is a member and also a parent of members; otherwise it is only a parent. So reading
and writing a stored set costs nothing, and two sets compare by dict equality.

What must stay true: sets are never changed in place (operations share subtrees with their operands), elements are
canonical, keys are in the order of `element.sort`, and no subset is without members. `parse` establishes this for
documents from outside. Limit: the set that contains the whole object (`"."` at the top) cannot be represented.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from remuda.apiserver.apply import element as elements

Fields = dict[str, Any]  # really dict[str, Fields]
Path = tuple[str, ...]

LEAF: Fields = {}
SELF = "."


def is_member(subset: Fields) -> bool:
    return not subset or SELF in subset


def ordered(fields: Fields) -> Fields:
    """Return the same set with its top-level keys in document order."""
    if len(fields) < 2:
        return fields
    keys = sorted(fields)
    if keys[-1] >= "g":  # some elements are no fields; fields sort as their strings do
        elements.sort(keys)
    return {key: fields[key] for key in keys}


def of_paths(paths: Iterable[Path]) -> Fields:
    """Build a set from paths of canonical elements."""
    whole: Fields = LEAF
    for path in paths:
        single: Fields = LEAF
        for step in reversed(path):
            single = {step: single}
        whole = union(whole, single)
    return whole


def fields_at(*paths: str) -> Fields:
    """Build a set from dotted field names, as `fields_at("metadata", "spec.replicas")`."""
    return of_paths(tuple(f"f:{name}" for name in path.split(".")) for path in paths)


def parse(document: Any) -> Fields:
    """Parse a FieldsV1 document from a client into a set. Raise BadElement."""
    if not isinstance(document, dict):
        raise elements.BadElement("expected an object")
    out: Fields = {}
    for key, sub in document.items():
        if key == SELF:
            continue
        try:
            name = elements.canonical(key)
        except elements.UnknownElement:
            continue
        _insert(out, name, _parse_child(sub))
    return ordered(out)


def _parse_child(document: Any) -> Fields:
    children = parse(document)
    return {SELF: LEAF, **children} if children and SELF in document else children


def _insert(into: Fields, name: str, subset: Fields) -> None:
    present = into.get(name)
    into[name] = subset if present is None else _union_subsets(present, subset)


def union(one: Fields, other: Fields) -> Fields:
    """Return the members of either set."""
    if not one or not other:
        return one or other
    out = dict(one)
    grown = False
    for key, sub in other.items():
        present = out.get(key)
        if present is None:
            out[key] = sub
            grown = True
        elif present is not sub and key != SELF:
            out[key] = _union_subsets(present, sub)
    return ordered(out) if grown else out


def _union_subsets(one: Fields, other: Fields) -> Fields:
    if not one:
        return other if is_member(other) else {SELF: LEAF, **other}
    if not other:
        return one if SELF in one else {SELF: LEAF, **one}
    return union(one, other)


def overlaid(one: Fields, changed: Fields) -> Fields:
    """Return a manager's fields after it changed some of them: `taken_away` and `union` in one step."""
    out = dict(one)
    grown = False
    for key, sub in changed.items():
        present = out.get(key)
        if present is None:
            out[key] = sub
            grown = True
        elif key != SELF:
            out[key] = _overlaid_subset(present, sub) if sub else LEAF
    return ordered(out) if grown else out


def _overlaid_subset(one: Fields, changed: Fields) -> Fields:
    if not one:
        return changed if SELF in changed else {SELF: LEAF, **changed}
    return overlaid(one, changed)


def difference(one: Fields, other: Fields) -> Fields:
    """Return the members of the first set that are not in the second. Children of removed members are judged
    separately.
    """
    out: Fields | None = None
    for key, sub in other.items():
        present = one.get(key)
        if present is None or key == SELF:
            continue
        left = _subset_difference(present, sub)
        if left is not present:
            out = _replaced(out if out is not None else dict(one), key, left)
    return one if out is None else out


def _replaced(out: Fields, key: str, left: Fields | None) -> Fields:
    if left is None:
        del out[key]
    else:
        out[key] = left
    return out


def _subset_difference(one: Fields, other: Fields) -> Fields | None:
    """Return the fields left of a subset, or None if none are left."""
    taken = is_member(other)
    if not one:
        return None if taken else one
    left = difference(one, other)
    if SELF not in left:
        return left or None
    if taken:
        return {key: sub for key, sub in left.items() if key != SELF} or None
    return left if len(left) > 1 else LEAF


def recursive_difference(one: Fields, other: Fields) -> Fields:
    """Return the members of the first set that are neither in the second nor below one of its members."""
    out: Fields | None = None
    for key, sub in other.items():
        present = one.get(key)
        if present is None or key == SELF:
            continue
        left: Fields | None = None
        if not is_member(sub):
            left = recursive_difference(present, sub) if present else present
            if left is present:
                continue
            left = _collapsed(left)
        out = _replaced(out if out is not None else dict(one), key, left)
    return one if out is None else out


def _collapsed(subset: Fields) -> Fields | None:
    """Return a subset after the removal of children: LEAF if only the element itself is left, None if nothing is."""
    if len(subset) == 1 and SELF in subset:
        return LEAF
    return subset or None


def taken_away(one: Fields, changed: Fields) -> Fields:
    """Return the fields that a manager keeps after others changed some of them.

    Like `difference`, but an atomic field is removed with everything below it. (Paths below an atomic field are left
    over from a schema in which the field was not yet atomic.)
    """
    out: Fields | None = None
    for key, sub in changed.items():
        present = one.get(key)
        if present is None or key == SELF:
            continue
        left = _subset_left(present, sub) if sub else None
        if left is not present:
            out = _replaced(out if out is not None else dict(one), key, left)
    return one if out is None else out


def _subset_left(present: Fields, changed: Fields) -> Fields | None:
    if not present:
        return None if SELF in changed else present
    left = taken_away(present, changed)
    if SELF not in left:
        return left or None
    if SELF in changed:
        return {key: sub for key, sub in left.items() if key != SELF} or None
    return left if len(left) > 1 else LEAF


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the members of both sets."""
    small, large = (one, other) if len(one) <= len(other) else (other, one)
    out: Fields = {}
    for key, sub in small.items():
        match = large.get(key)
        if match is None or key == SELF:
            continue
        both = intersection(sub, match) if sub and match else LEAF
        if is_member(sub) and is_member(match):
            out[key] = {SELF: LEAF, **both} if both else LEAF
        elif both:
            out[key] = both
    return ordered(out)


def has(fields: Fields, path: Path) -> bool:
    node = fields
    for step in path:
        found = node.get(step)
        if found is None:
            return False
        node = found
    return bool(path) and is_member(node)


def leaves(fields: Fields) -> Fields:
    """Return only the members that have no members below them."""
    return {key: leaves(sub) for key, sub in fields.items() if key != SELF}


def members(fields: Fields, prefix: Path = ()) -> Iterator[Path]:
    """Yield every member: those of one level before those below it, as conflicts are listed."""
    for key, sub in fields.items():
        if key != SELF and is_member(sub):
            yield (*prefix, key)
    for key, sub in fields.items():
        if sub:
            yield from members(sub, (*prefix, key))


def shown_path(path: Path) -> str:
    return "".join(map(elements.shown, path))
