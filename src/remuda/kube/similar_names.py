"""Names that a mistyped one probably meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_ALIKE = 0.7  # of 1: below that, a suggestion rather confuses
_MOST = 3


def similar(text: str, known: Iterable[str]) -> list[str]:
    """Return known names like the text, the most similar first."""
    wanted = text.lower()
    ranked = [(_likeness(wanted, name.lower()), name) for name in dict.fromkeys(known)]
    found = sorted((one for one in ranked if one[0] >= _ALIKE), key=lambda one: (-one[0], one[1]))
    return [name for _, name in found[:_MOST]]


def _likeness(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other)
    # The cheap upper bounds first: a server may have thousands of names.
    if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
        return 0.0
    return matcher.ratio()


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return the question for the end of an error message; empty without candidates."""
    return f"; did you mean {', '.join(dict.fromkeys(candidates))}?" if candidates else ""
