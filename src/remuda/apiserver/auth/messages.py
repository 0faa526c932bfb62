"""Sentences about access, worded as the real API server words them, because people and programs grep for them.

Values a client chose (names, groups, paths) appear quoted and escaped, so that they cannot forge a second line or
look like markup. No sentence ever contains a token or a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.apiserver.auth.user import Attributes, User
from remuda.kube import errors

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def quote(text: str) -> str:
    """In double quotes, everything unprintable escaped (the form Go programs print with %q)."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote_list(texts: Iterable[str]) -> str:
    """`["a" "b"]`: a list without commas, as the real server prints lists of strings."""
    return "[" + " ".join(quote(text) for text in texts) + "]"


def joined(sentences: Sequence[str]) -> str:
    """Several complaints as one text: each said once, in brackets when there are more than one."""
    unique = list(dict.fromkeys(sentences))
    return unique[0] if len(unique) == 1 else "[" + ", ".join(unique) + "]"


def denial(user: User, attributes: Attributes) -> str:
    """`User "jane" cannot list resource "pods" in API group "" in the namespace "x"`."""
    who = f"User {quote(user.name)} cannot {attributes.verb}"
    if attributes.path:
        return f"{who} path {quote(attributes.path)}"
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    what = f"{who} resource {quote(resource)} in API group {quote(attributes.group)}"
    if attributes.namespace:
        return f"{what} in the namespace {quote(attributes.namespace)}"
    return f"{what} at the cluster scope"


def forbidden(user: User, attributes: Attributes, reason: str = "") -> errors.StatusError:
    """The 403 for a question the authoriser answered with no; `reason` is what it said about it."""
    why = denial(user, attributes).translate(_MARKUP)
    if reason:
        why = f"{why}: {reason}"
    if attributes.path:
        return errors.forbidden_request("", "", "", why)
    return errors.forbidden_request(attributes.group, attributes.resource, attributes.name, why)
