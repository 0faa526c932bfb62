"""Regular expressions in Go's syntax, in linear time.

Every `pattern` of a schema goes through RE2, never through Python's backtracking engine: a pattern comes from
whoever may create a CRD, a value from whoever may create an object. Matching crosses into C and copies the text, so
answers for short texts are remembered, a bounded number per pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import re2

_REMEMBERED_LENGTH = 256
_REMEMBERED_COUNT = 512

Matcher = Callable[[str], bool]


class BadPattern(ValueError):
    """The pattern is not a regular expression; the text is what Go would say."""


_options = re2.Options()
_options.log_errors = False

# RE2's C++ and Go implementations name the same faults differently.
_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Matcher:
    """Whether a text contains a match. Raises BadPattern."""
    try:
        search = re2.compile(pattern, _options).search
    except re2.error as error:
        raise BadPattern(_go_message(error)) from None
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


def _go_message(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    fault, _, fragment = text.partition(": ")
    return f"error parsing regexp: {_GO_WORDS.get(fault, fault)}: `{fragment}`"
