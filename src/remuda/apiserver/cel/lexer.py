"""Lexer: splits text into tokens, and converts literals to values.

One regular expression matches every token. Where it matches nothing, the error quotes the unreadable text and the lexer
continues after it, so one stray character gives one error. The lexer takes time linear in the length of the text, which
the caller limits.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from remuda.apiserver.cel.source import Complaint
from remuda.apiserver.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint


class LexerToken(NamedTuple):
    kind: str  # the operator or keyword itself, or one of: ident, quoted, int, uint, float, string, bytes, eof
    text: str
    at: int


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING = (
    rf"[rR]\"\"\"(?s:.*?)\"\"\"|[rR]'''(?s:.*?)'''|[rR]\"[^\"\n\r]*\"|[rR]'[^'\n\r]*'"
    rf"|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_TOKENS = re.compile(
    rf"""(?P<skip>[\t \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<ident>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{{}}().,\-!?:+*/%<>])""",
    re.VERBOSE,
)
_BROKEN_STRING = re.compile(rf"\"(?:{_ESCAPE}|[^\\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*")
_WORDS = frozenset(("true", "false", "null", "in"))


def tokens(source: str) -> tuple[list[LexerToken], list[Complaint]]:
    found: list[LexerToken] = []
    complaints: list[Complaint] = []
    at, end = 0, len(source)
    while at < end:
        match = _TOKENS.match(source, at)
        if match is None:
            broken = _unreadable(source, at)
            complaints.append(Complaint(at, f"Syntax error: token recognition error at: '{broken}'"))
            at += len(broken)
            continue
        at = match.end()
        if match.lastgroup != "skip":
            found.append(_token(match))
    found.append(LexerToken("eof", "<EOF>", end))
    return found, complaints


def _token(match: re.Match[str]) -> LexerToken:
    text, kind = match.group(), match.lastgroup or ""
    if kind == "op" or (kind == "ident" and text in _WORDS):
        kind = text
    return LexerToken(kind, text, match.start())


def _unreadable(source: str, at: int) -> str:
    """Return the text up to and including the character that no token can contain at this point."""
    if source[at] in "\"'":
        broken = _BROKEN_STRING.match(source, at)
        stopped = broken.end() if broken else at
        if source[stopped : stopped + 1] == "\\":
            stopped += 1
    else:
        stopped = at + 1 if source[at] in "&|=" else at
    return source[at : stopped + 1]


class LiteralError(ValueError):
    """Malformed literal; the message is the complaint."""


def number(token: LexerToken, negative: bool) -> Any:
    """Return the value of an int, uint or float token, with the sign before it."""
    if token.kind == "float":
        value = float(token.text)
        if math.isinf(value):
            raise LiteralError("invalid double literal")
        return -value if negative else value
    text = token.text[:-1] if token.kind == "uint" else token.text
    digits = text[2:] if text.startswith("0x") else text.lstrip("0") or "0"
    # Such a text is longer than any 64-bit number, and int() of a huge text is slow.
    whole = int(digits, 16 if text.startswith("0x") else 10) if len(digits) <= 20 else UINT_MAX + 1
    if token.kind == "uint":
        if whole > UINT_MAX:
            raise LiteralError("invalid uint literal")
        return Uint(whole)
    signed = -whole if negative else whole
    if not INT_MIN <= signed <= INT_MAX:
        raise LiteralError("invalid int literal")
    return signed


_ESCAPED = re.compile(_ESCAPE)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def string(text: str) -> str:
    body, raw = _unquoted(text)
    return body if raw or "\\" not in body else _ESCAPED.sub(_character, body)


def byte_string(text: str) -> bytes:
    body, raw = _unquoted(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPED.finditer(body):
        parts += (body[at : match.start()].encode(), _byte(match.group()))
        at = match.end()
    return b"".join((*parts, body[at:].encode()))


def _unquoted(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


def _code(escape: str) -> int:
    return int(escape[2:], 16) if escape[1] in "xXuU" else int(escape[1:], 8)


def _character(match: re.Match[str]) -> str:
    escape = match.group()
    if escape[1] not in "xXuU0123":
        return _SIMPLE.get(escape[1], escape[1])
    code = _code(escape)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("invalid unicode code point")
    return chr(code)


def _byte(escape: str) -> bytes:
    if escape[1] in "uU":
        raise LiteralError("unable to unescape string")
    if escape[1] not in "xX0123":
        return _SIMPLE.get(escape[1], escape[1]).encode()
    return bytes((_code(escape),))
