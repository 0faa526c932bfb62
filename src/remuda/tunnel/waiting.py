"""What a client waits for on its own host before it opens a tunnel: that somebody accepts connections there, or that an
HTTPS server answers. Servers of k3s accept connections long before their API serves, and say 503 until then: a tunnel
that leads there would be taken for a good one.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

from remuda.tunnel import dialing, reaching
from remuda.tunnel.allow import Target

_LONGEST_LINE = 1024


class WaitFor(NamedTuple):
    target: Target
    url: str = ""  # asked there; empty: who accepts connections is there
    authorities: str = ""  # that vouch for whoever answers


def missing(wanted: WaitFor, seconds: float) -> str:
    """What is not there yet, in words; empty: it is there. Whoever answers is there, whatever they say of who asks, as
    long as it is no trouble of their own."""
    try:
        made = dialing.connect(wanted.target, seconds)
    except OSError as error:
        target = wanted.target
        return f"nobody accepts connections at {target.network}/{target.host}:{target.port}: {dialing.in_words(error)}"
    with made:
        if not wanted.url:
            return ""
        try:
            line = _asked(made, wanted, seconds)
        except ssl.SSLCertVerificationError as error:
            return f"{wanted.url}: its certificate is not accepted: {error.verify_message}"
        except OSError as error:
            return f"{wanted.url}: {dialing.in_words(error)}"
    code = line.partition(" ")[2]
    return "" if line.startswith("HTTP/1.") and "100" <= code < "500" else f"{wanted.url} answers {code or 'nothing'}"


def _asked(made: socket.socket, wanted: WaitFor, seconds: float) -> str:
    """The first line of the answer."""
    place = reaching.parse(wanted.url)
    until = time.monotonic() + seconds
    made.settimeout(seconds)
    with reaching.trust(wanted.authorities).wrap_socket(made, server_hostname=place.host) as wire:
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
