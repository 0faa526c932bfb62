"""The request that becomes a WebSocket: what is accepted, what is refused, and that the reason is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.tunnel.handshake import ClientHandshake, HandshakeError, HandshakeRefused, accept_value, accepted

_REQUEST = {
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


def _headers(request: bytes) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in request.decode().strip().split("\r\n")[1:])


def test_accept_value_matches_rfc_6455_example() -> None:
    assert accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_handshake_completes_and_keeps_bytes_after_the_response() -> None:
    opening = ClientHandshake("manager:8443", "/v3/connect?x=1", [("X-Tunnel-ID", "c-1")])
    assert opening.request.startswith(b"GET /v3/connect?x=1 HTTP/1.1\r\nHost: manager:8443\r\n")
    headers = _headers(opening.request)
    assert headers["X-Tunnel-ID"] == "c-1"
    answer = accepted("GET", headers) + b"frames"
    assert [opening.feed(answer[at : at + 1]) for at in range(len(answer) - 6)] == [False] * (len(answer) - 7) + [True]
    assert opening.rest == b""
    again = ClientHandshake("manager", "/")
    assert again.feed(accepted("GET", _headers(again.request)) + b"frames")
    assert (again.done, again.rest) == (True, b"frames")


def test_each_handshake_request_has_a_new_key() -> None:
    assert ClientHandshake("a", "/").request != ClientHandshake("a", "/").request


@pytest.mark.parametrize(
    ("answer", "text", "wait"),
    [
        (b"401 Unauthorized\r\nContent-Length: 21\r\n\r\nfailed authentication", "failed authentication", None),
        (b"503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", "", 7.0),
        (b"503 Busy\r\nretry-after: soon\r\nContent-Length: 4\r\n\r\nbusy", "busy", None),
        (
            b"400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno \r\n6;x\r\ntunnel\r\n0\r\n\r\n",
            "no tunnel",
            None,
        ),
    ],
)
def test_handshake_rejection_carries_status_text_and_retry_after(answer: bytes, text: str, wait: float | None) -> None:
    whole = b"HTTP/1.1 " + answer
    opening = ClientHandshake("manager", "/")
    assert not opening.feed(whole[:-1])
    with pytest.raises(HandshakeRefused) as caught:
        opening.feed(whole[-1:])
    assert (caught.value.status, caught.value.text, caught.value.retry_after) == (int(answer[:3]), text, wait)


def test_handshake_rejection_without_length_is_reported_at_connection_end() -> None:
    opening = ClientHandshake("manager", "/")
    assert not opening.feed(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>no manager</html>")
    assert str(opening.ended()) == "502: <html>no manager</html>"
    assert "before the server responded" in str(ClientHandshake("manager", "/").ended())


def test_long_handshake_rejection_text_is_truncated() -> None:
    opening = ClientHandshake("manager", "/")
    with pytest.raises(HandshakeRefused) as caught:
        opening.feed(b"HTTP/1.1 500 Oh\r\n\r\n" + b"x" * 100_000)
    assert len(caught.value.text) == 4096


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 101 x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_non_websocket_response_raises_handshake_error(answer: bytes) -> None:
    with pytest.raises(HandshakeError):
        ClientHandshake("manager", "/").feed(answer)


def test_unrequested_websocket_extension_raises_handshake_error() -> None:
    opening = ClientHandshake("manager", "/")
    answer = accepted("GET", _headers(opening.request))
    with pytest.raises(HandshakeError, match="extension"):
        opening.feed(answer[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")


def test_handshake_header_with_line_break_is_rejected() -> None:
    with pytest.raises(ValueError, match="contains a line break"):
        ClientHandshake("manager", "/", [("Authorization", "Bearer x\r\nX-Tunnel-ID: other")])


@pytest.mark.parametrize(
    "change",
    [
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "c2hvcnQ="},
        {"Sec-WebSocket-Key": "é not base64"},
    ],
)
def test_non_websocket_request_is_rejected(change: dict[str, str]) -> None:
    with pytest.raises(HandshakeError):
        accepted("GET", {**_REQUEST, **change})
    with pytest.raises(HandshakeError):
        accepted("POST", _REQUEST)


@given(st.binary(max_size=300))
def test_arbitrary_handshake_response_raises_only_handshake_errors(answer: bytes) -> None:
    opening = ClientHandshake("manager", "/")
    try:
        opening.feed(b"HTTP/1.1 " + answer)
    except (HandshakeRefused, HandshakeError):
        pass
