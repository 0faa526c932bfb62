"""Readiness check of a local service, which a client makes before it opens a tunnel.

The service is ready when it accepts connections or, with a URL, when it answers over HTTPS. A k3s server accepts
connections long before its API is ready, and answers 503 until then: a tunnel to it would look usable and not be.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

from remuda.tunnel import dialer, websocket_client
from remuda.tunnel.allow import DialTarget

_LONGEST_LINE = 1024


class WaitFor(NamedTuple):
    target: DialTarget
    url: str = ""  # must answer a GET; empty: the target must only accept connections
    authorities: str = ""  # PEM, to verify the server of the URL


def missing(wanted: WaitFor, seconds: float) -> str:
    """Return what is not ready yet, as a message; empty: it is ready. Any answer below 500 means ready, even one that
    denies this client."""
    try:
        made = dialer.connect(wanted.target, seconds)
    except OSError as error:
        target = wanted.target
        place = f"{target.network}/{target.host}:{target.port}"
        return f"nothing accepts connections at {place}: {dialer.describe_error(error)}"
    with made:
        if not wanted.url:
            return ""
        try:
            line = _status_line(made, wanted, seconds)
        except ssl.SSLCertVerificationError as error:
            return f"{wanted.url}: cannot verify its certificate: {error.verify_message}"
        except OSError as error:
            return f"{wanted.url}: {dialer.describe_error(error)}"
    code = line.partition(" ")[2]
    return "" if line.startswith("HTTP/1.") and "100" <= code < "500" else f"{wanted.url} answers {code or 'nothing'}"


def _status_line(made: socket.socket, wanted: WaitFor, seconds: float) -> str:
    """Send a GET request and return the first line of the response."""
    place = websocket_client.parse(wanted.url)
    until = time.monotonic() + seconds
    made.settimeout(seconds)
    with websocket_client.trust(wanted.authorities).wrap_socket(made, server_hostname=place.host) as wire:
        request = f"GET {place.target} HTTP/1.1\r\nHost: {place.authority}\r\nConnection: close\r\n\r\n"
        wire.sendall(request.encode("ascii"))
        answer = b""
        while b"\r\n" not in answer and len(answer) < _LONGEST_LINE:
            wire.settimeout(max(0.001, until - time.monotonic()))
            data = wire.recv(_LONGEST_LINE)
            if not data:
                break
            answer += data
    return answer.partition(b"\r\n")[0].decode("latin-1")
