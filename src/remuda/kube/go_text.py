"""Text and decoded JSON as Go prints them, because kube-apiserver's messages contain them in Go's notation.

`quoted` is Go's %q: printable characters stay, others are escaped. Every message that shows a client's value uses it,
so that no value can forge a second line. A long text is cut: escaping the three megabytes that a client may send would
take a third of a second. `go_type`, `decoder_type` and `go_value` name and print decoded JSON.
"""

from __future__ import annotations

from typing import Any

_SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


SHOWN = 4 * 1024  # characters of a text; kube-apiserver shows it whole


def shortened(text: str) -> str:
    """Return the beginning of a text that is too long to be shown."""
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def quoted(text: str) -> str:
    """Return a text in quotes, cut if it is long."""
    text = shortened(text)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(char if char.isprintable() and char not in '"\\' else _escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    code = ord(char)
    if code in _SHORT:
        return _SHORT[code]
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    type(None): "%!s(<nil>)",
}
_DECODER_TYPES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def go_type(value: Any) -> str:
    """Return the Go type of a decoded value, as errors of patches name it."""
    return _TYPES[type(value)]


def decoder_type(value: Any) -> str:
    """Return the type name that Go's JSON decoder uses in its errors: `cannot unmarshal object into ...`."""
    return _DECODER_TYPES.get(type(value), "null")


def go_value(value: Any) -> str:
    """Return a value as Go's %v prints it: maps sorted by key, no quotes."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_value(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)
