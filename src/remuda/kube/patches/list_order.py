"""Order of a list after a strategic merge: elements in the patch follow the patch's order, others keep their place.

Both groups keep their own sequence. An element that the patch does not name goes before the first named one that it
preceded in the live list. The time is linear in the lengths of the lists.
"""

from __future__ import annotations

from typing import Any


class KeyOf:
    """Identity of a list element: its merge key's value, or the element itself in a list of scalars.

    The type is part of the identity, because Python treats 1, 1.0 and True as equal.
    """

    __slots__ = ("merge_key",)

    def __init__(self, merge_key: str) -> None:
        self.merge_key = merge_key

    @staticmethod
    def scalar(value: Any) -> Any:
        # Objects and lists cannot be keys; their text replaces them, so that hostile input cannot break hashing.
        return (type(value), value if value.__hash__ else repr(value))

    def find(self, element: Any) -> Any:
        """Return the identity; None if the element lacks the key."""
        if not self.merge_key:
            return self.scalar(element)
        if type(element) is not dict or self.merge_key not in element:
            return None
        return self.scalar(element[self.merge_key])


def interleaved(merged: list[Any], order: list[Any], live: list[Any], key_of: KeyOf) -> list[Any]:
    """Return the elements of `merged`: those in `order` by that order, the others by their place in `live`."""
    ordered_at, live_at = _places(order, key_of), _places(live, key_of)
    named: list[Any] = []
    others: list[Any] = []
    for element in merged:
        (named if key_of.find(element) in ordered_at else others).append(element)
    named.sort(key=lambda element: ordered_at[key_of.find(element)])
    others.sort(key=lambda element: live_at.get(key_of.find(element), len(live)))
    result: list[Any] = []
    following = iter(others)
    other = next(following, None)
    for element in named:
        place = live_at.get(key_of.find(element))
        while other is not None and place is not None and live_at.get(key_of.find(other), place) < place:
            result.append(other)
            other = next(following, None)
        result.append(element)
    if other is not None:
        result.append(other)
    return result + list(following)


def _places(items: list[Any], key_of: KeyOf) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for index, item in enumerate(items):
        places.setdefault(key_of.find(item), index)
    return places
