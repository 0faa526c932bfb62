"""WebSocket handshake over HTTP/1.1, for both ends, without I/O.

`HandshakeRefused` carries the status, the text of the response and its Retry-After. Redirects are not followed; an
extension or protocol that was not requested is an error. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping

from remuda.tunnel import TunnelError

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_HEAD = 64 * 1024
_LONGEST_TEXT = 4 * 1024


class HandshakeError(TunnelError):
    """Error for a request or an answer that does not lead to a WebSocket."""


class HandshakeRefused(TunnelError):
    """The server responded and refused the connection."""

    def __init__(self, status: int, text: str, retry_after: float | None) -> None:
        super().__init__(f"{status}: {text}" if text else str(status))
        self.status = status
        self.text = text
        self.retry_after = retry_after


def accept_value(key: str) -> str:
    """Return the Sec-WebSocket-Accept value, which proves that a server has read the key as a WebSocket's."""
    # RFC 6455 prescribes SHA-1, and the value is no security measure. The flag lets Python builds that block SHA-1
    # for security purposes compute it.
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()).decode()


class ClientHandshake:
    """Handshake of a client: send `request`, feed the response until `done`; `rest` then has the first bytes of
    frames."""

    def __init__(self, host: str, target: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        self._key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers),
        ]
        # A token or header value with a line break would add headers of its own to the request.
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header of the tunnel's request contains a line break")
        self.request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.done = False
        self.rest = b""
        self._received = bytearray()

    def feed(self, data: bytes) -> bool:
        """Process received bytes; return whether the handshake is complete. Raises `HandshakeRefused` with the server's
        reason."""
        self._received += data
        head, separator, body = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            if len(head) > _LONGEST_HEAD:
                raise HandshakeError("the header of the server's response is too long")
            return False
        status, headers = _parsed(head)
        if status != 101:
            if _is_complete(headers, body):
                raise _refusal(status, headers, body)
            return False
        if headers.get("upgrade", "").lower() != "websocket" or "upgrade" not in _tokens(headers.get("connection", "")):
            raise HandshakeError("the server switched to another protocol than WebSocket")
        if headers.get("sec-websocket-accept") != accept_value(self._key):
            raise HandshakeError(
                "Sec-WebSocket-Accept does not match the request: a proxy may have answered instead of the server"
            )
        if "sec-websocket-extensions" in headers or "sec-websocket-protocol" in headers:
            raise HandshakeError("the server uses an extension or sub-protocol that was not requested")
        self.done, self.rest = True, body
        return True

    def ended(self) -> Exception:
        """Return the error for a connection that ended before the handshake was complete."""
        head, separator, body = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            return HandshakeError("the connection ended before the server responded")
        status, headers = _parsed(head)
        return _refusal(status, headers, body)


def accepted(method: str, headers: Mapping[str, str]) -> bytes:
    """Return the server's complete response to a WebSocket request."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in accepted_headers(method, headers))
    return f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n".encode()


def accepted_headers(method: str, headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers of the answer, beside `Connection: Upgrade`. Header names in the request may have any case."""
    lower = {name.lower(): value for name, value in headers.items()}
    if method != "GET" or lower.get("upgrade", "").lower() != "websocket":
        raise HandshakeError("websocket: the client is not using the websocket protocol")
    if "upgrade" not in _tokens(lower.get("connection", "")):
        raise HandshakeError("websocket: 'upgrade' token not found in 'Connection' header")
    if lower.get("sec-websocket-version") != "13":
        raise HandshakeError("websocket: only version 13 is supported")
    key = lower.get("sec-websocket-key", "")
    if not _is_key(key):
        raise HandshakeError("websocket: 'Sec-WebSocket-Key' must be 16 bytes in base64")
    return [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept_value(key))]


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key.encode(), validate=True)) == 16
    except ValueError:
        return False


def _tokens(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (words[1].isdecimal() and len(words[1]) == 3):
        raise HandshakeError("the server does not speak HTTP/1.1")
    pairs = (line.partition(":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _is_complete(headers: Mapping[str, str], body: bytes) -> bool:
    if len(body) >= _LONGEST_TEXT:
        return True
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return body.endswith(b"0\r\n\r\n")
    length = headers.get("content-length", "")
    return length.isdecimal() and len(body) >= int(length[:9])


def _refusal(status: int, headers: Mapping[str, str], body: bytes) -> HandshakeRefused:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = _without_chunks(body)
    text = body[:_LONGEST_TEXT].decode(errors="replace")
    wait = headers.get("retry-after", "")
    return HandshakeRefused(status, " ".join(text.split()), float(wait) if wait.isdecimal() and len(wait) < 6 else None)


def _without_chunks(body: bytes) -> bytes:
    """Decode a chunked body as far as possible: the text is only shown to people."""
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            break
        whole, body = whole + body[:length], body[length + 2 :]
    return whole
