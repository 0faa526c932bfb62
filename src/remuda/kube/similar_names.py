"""Names that a mistyped one probably meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LETTERS_PER_SLIP = 4  # how many letters allow one more slip than the first
_SHORTEST = 3  # a shorter word is like too many others
_MOST = 3


def similar(text: str, known: Iterable[str]) -> list[str]:
    """Return known names that differ from the text by few slips, the most similar first."""
    wanted = text.lower()
    if len(wanted) < _SHORTEST:
        return []
    allowed = max(len(wanted) // _LETTERS_PER_SLIP, 1)
    found = []
    for name in dict.fromkeys(known):
        if abs(len(name) - len(wanted)) <= allowed and (slips := _slips(wanted, name.lower())) <= allowed:
            found.append((slips, name))
    return [name for _, name in sorted(found)[:_MOST]]


def _slips(one: str, other: str) -> int:
    """Count the letters to add, drop, change or swap with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before, row = before, row, [at]
        for place, wanted in enumerate(other, 1):
            cost = min(before[place] + 1, row[-1] + 1, before[place - 1] + (letter != wanted))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == wanted:
                cost = min(cost, earlier[place - 2] + 1)
            row.append(cost)
    return row[-1]


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return the question for the end of an error message; empty without candidates."""
    return f"; did you mean {', '.join(dict.fromkeys(candidates))}?" if candidates else ""
