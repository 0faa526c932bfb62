"""Text in double quotes as the real server prints it (Go's %q): what can be printed stays, the rest is escaped.

Every message that shows a value a client chose goes through here, so that no value can forge a second line. A long text
is cut: to escape the three megabytes that a client may send would take a third of a second.
"""

from __future__ import annotations

_SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


SHOWN = 4 * 1024  # characters of a text; the real server shows it whole


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
