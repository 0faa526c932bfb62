"""Error messages of the real server for malformed JSON: where Go's decoder stops, and what it expected there.

A second parser, which reports positions byte by byte as Go does, reads the body again; only rejected bodies come here.
"""

from __future__ import annotations

import json

from remuda.kube.go_text import quoted

_AFTER = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Illegal trailing comma before end of array": "looking for beginning of value",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
}


def json_complaint(body: bytes, otherwise: str) -> str:
    """Return the error in the body; `otherwise` if none is found here."""
    text = body.decode("latin-1")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        at = error.pos
        if at >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        after = _AFTER.get(error.msg)
        if error.msg == "Expecting ',' delimiter":
            after = "after object key:value pair" if _is_in_object(body, at) else "after array element"
        if error.msg == "Expecting value" and text[at] in _LITERALS:
            return _bad_literal(text, at, _LITERALS[text[at]])
        return f"invalid character {_shown(text[at])} {after or 'in string literal'}"
    except (ValueError, RecursionError):
        pass
    return otherwise


_LITERALS = {"n": "null", "t": "true", "f": "false"}


def _bad_literal(text: str, at: int, literal: str) -> str:
    for offset, expected in enumerate(literal):
        if at + offset >= len(text):
            break
        if text[at + offset] != expected:
            return f"invalid character {_shown(text[at + offset])} in literal {literal} (expecting '{expected}')"
    return "unexpected end of JSON input"


def _is_in_object(body: bytes, at: int) -> bool:
    """Return whether the innermost container that is open at a position is an object."""
    opened = open_containers(body[:at])
    return bool(opened) and opened[-1] == "{"


def open_containers(body: bytes, limit: int = 0) -> list[str]:
    """Return the brackets that are open at the end of a body, or as soon as there are more than `limit`."""
    opened: list[str] = []
    in_text = False
    characters = iter(body.decode("latin-1"))
    for char in characters:
        if in_text:
            if char == "\\":
                next(characters, None)
            in_text = char != '"'
        elif char == '"':
            in_text = True
        elif char in "{[":
            opened.append(char)
            if limit and len(opened) > limit:
                break
        elif char in "}]" and opened:
            opened.pop()
    return opened


def _shown(char: str) -> str:
    return f"'{char}'" if char == '"' else "'\\''" if char == "'" else f"'{quoted(char)[1:-1]}'"
