"""Regular expressions in Go's syntax, in linear time.

Patterns come from whoever may create a CRD, texts from whoever may create an object, so every one goes through RE2 and
never through Python's backtracking engine. Faults are named as Go's `regexp` names them, which clients know.
"""

from __future__ import annotations

from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False

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
    "pattern too large - compile failed": "expression too large",
}


class BadPattern(ValueError):
    """The pattern is not a regular expression; the text is what Go would say."""


def compile_pattern(pattern: str | bytes) -> Any:
    """A compiled pattern, over bytes (UTF-8) when given bytes, which re2 matches far faster. Raises BadPattern."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raise BadPattern(_go_message(error)) from None


def _go_message(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    fault, _, fragment = text.partition(": ")
    at = f": `{fragment}`" if fragment else ""
    return f"error parsing regexp: {_GO_WORDS.get(fault, fault)}{at}"
