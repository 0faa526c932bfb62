"""Absolute URLs and absolute paths, parsed as Go's net/url parses them."""

from __future__ import annotations

import json
import re
from urllib.parse import quote, unquote_plus

from remuda.apiserver.cel import cost
from remuda.apiserver.cel.functions import Library
from remuda.apiserver.cel.values import CelError, Opaque

LIBRARY = Library()


class Url(Opaque):
    __slots__ = ("host", "path", "query", "scheme", "text")
    type_name = "kubernetes.URL"

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.S)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.S)
_PORT = re.compile(r"(?::[0-9]*)?")
# Characters that a host may contain besides letters and digits.
_BAD_HOST = re.compile(r"[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")


def parse(text: str) -> Url:
    """Parse a URL. Raise ValueError with Go's error message."""
    if not text:
        raise ValueError("empty url")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("net/url: invalid control character in URL")
    scheme, rest = _scheme(text)
    before_fragment = rest.partition("#")[0]
    rest, _, query = before_fragment.partition("?")
    if not rest.startswith("/"):
        raise ValueError("invalid URI for request")
    host = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _host(authority), slash + path
    escape = _BAD_ESCAPE.search(rest)
    if escape:
        raise ValueError(f"invalid URL escape {json.dumps(escape.group())}")
    return Url(text, scheme.lower(), host, rest, query)


def _scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    match = _SCHEME.fullmatch(text)
    if match:
        return match[1], match[2]
    head = re.split(r"[/?#]", text, maxsplit=1)[0]
    if ":" in head and not head[:1].isalpha():
        raise ValueError("first path segment in URL cannot contain colon")
    return "", text


def _host(authority: str) -> str:
    host = authority.rpartition("@")[2]
    port = host[host.rfind("]") + 1 :] if host.startswith("[") else host[host.rfind(":") :] if ":" in host else ""
    if host.startswith("[") and "]" not in host:
        raise ValueError("missing ']' in host")
    if not _PORT.fullmatch(port):
        raise ValueError(f"invalid port {json.dumps(port)} after host")
    bad = _BAD_HOST.search(host)
    if bad:
        raise ValueError(f"invalid character {json.dumps(bad.group())} in host name")
    return host


def go_error(text: str, wrong: ValueError) -> str:
    return f"parse {json.dumps(text)}: {wrong}"


def _url(text: str) -> Url:
    try:
        return parse(text)
    except ValueError as wrong:
        raise CelError(f"URL parse error during conversion from string: {go_error(text, wrong)}") from None


def _is_url(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _hostname(url: Url) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.find("]")]
    return host.rpartition(":")[0] if ":" in host else host


def _port(url: Url) -> str:
    tail = url.host[url.host.rfind("]") + 1 :]
    return tail.rpartition(":")[2] if ":" in tail else ""


def _escaped_path(url: Url) -> str:
    return quote(url.path, safe="/%$&+,:;=@!'()*-_.~[]")


def _query(url: Url) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, value = pair.partition("=")
        found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


LIBRARY.function("url(string): kubernetes.URL", _url, cost=cost.of_first)
LIBRARY.function("isURL(string): bool", _is_url)
LIBRARY.method("kubernetes.URL.getScheme(): string", lambda url: url.scheme)
LIBRARY.method("kubernetes.URL.getHost(): string", lambda url: url.host)
LIBRARY.method("kubernetes.URL.getHostname(): string", _hostname)
LIBRARY.method("kubernetes.URL.getPort(): string", _port)
LIBRARY.method("kubernetes.URL.getEscapedPath(): string", _escaped_path)
LIBRARY.method("kubernetes.URL.getQuery(): map(string, list(string))", _query)
