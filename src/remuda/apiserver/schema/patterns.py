"""The `pattern` of a schema, compiled once. Matching crosses into C and copies the text, so answers for short texts are
remembered, a bounded number per pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from remuda.kube.patterns import BadPattern, compile_pattern

__all__ = ["BadPattern", "Matcher", "matcher"]

_REMEMBERED_LENGTH = 256
_REMEMBERED_COUNT = 512

Matcher = Callable[[str], bool]


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Matcher:
    """Return a function that tests whether a text contains a match. Raises BadPattern."""
    search = compile_pattern(pattern).search
    known: dict[str, bool] = {}
    lookup = known.get

    def matches(text: str) -> bool:
        answer = lookup(text)
        if answer is None:
            answer = search(text) is not None
            if len(text) <= _REMEMBERED_LENGTH:
                if len(known) >= _REMEMBERED_COUNT:
                    known.clear()
                known[text] = answer
        return answer

    return matches
