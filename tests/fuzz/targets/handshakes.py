"""The HTTP request and answer that lead to a tunnel."""

from __future__ import annotations

from remuda.tunnel.handshake import ClientHandshake, HandshakeError, HandshakeRefused, accepted_headers
from tests.fuzz.source import Source

_STARTS = (b"", b"HTTP/1.1 101 Switching Protocols\r\n", b"HTTP/1.1 503 No\r\nRetry-After: 5\r\n", b"HTTP/1.1 401 ")
_LINES = (
    *(b"Upgrade: websocket\r\n", b"Connection: Upgrade\r\n", b"Sec-WebSocket-Accept: x\r\n", b"\r\n", b"0\r\n\r\n"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"-5\r\nabc", b"ffffffffff\r\n"),
)
_HEADERS = ("upgrade", "Connection", "Sec-WebSocket-Version", "sec-websocket-key", "x")
_VALUES = ("websocket", "Upgrade", "keep-alive, upgrade", "13", "AAAAAAAAAAAAAAAAAAAAAA==", "AAA")


def check(data: bytes) -> None:
    """Raise if an answer is neither accepted nor refused, or a refusal shows more than some kilobytes."""
    source = Source(data)
    if source.flag():
        headers = {source.pick(_HEADERS): source.pick(_VALUES) if source.flag() else source.text() for _ in range(6)}
        try:
            answered = accepted_headers(source.pick(("GET", "POST")), headers)
        except HandshakeError:
            return
        assert all(value.isprintable() for _, value in answered)
        return
    handshake = ClientHandshake("a", "/v3/connect", [("Authorization", "Bearer x")])
    answer = source.pick(_STARTS) + b"".join(source.pick(_LINES) for _ in range(source.byte() % 12)) + source.rest()
    try:
        for at in range(0, len(answer), 64):
            if handshake.feed(answer[at : at + 64]):
                raise AssertionError("accepted without the proof that the key was read")
        ended = handshake.ended()
        assert isinstance(ended, HandshakeError | HandshakeRefused)
    except (HandshakeError, HandshakeRefused) as error:
        assert len(str(error)) <= 5000
