"""WebSocket connection of the client: through the proxy of the environment if there is one, always with verified TLS,
and within a time limit. Errors name the address at which they happened.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from remuda.tunnel import TunnelError
from remuda.tunnel.dialer import describe_error
from remuda.tunnel.handshake import ClientHandshake, HandshakeError, HandshakeRefused
from remuda.tunnel.proxies import is_exempt

_CHUNK = 16 * 1024
_LONGEST_PROXY_ANSWER = 64 * 1024


class TunnelUnreachable(TunnelError):
    """Failed connection; the text says where and why. `retry_after`: seconds that the server asks to wait."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class TunnelEndpoint(NamedTuple):
    host: str
    port: int
    target: str  # path and query

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 443 else f"{host}:{self.port}"


class Proxy(NamedTuple):
    host: str
    port: int
    authorization: str


def parse(url: str) -> TunnelEndpoint:
    """Parse the URL of a tunnel, which must use TLS. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("wss", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not a wss or https URL of the form https://host[:port]/path")
    return TunnelEndpoint(
        parts.hostname, parts.port or 443, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    )


def trust(authorities: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only these authorities (PEM), or those of the system if there are none. Raises
    ValueError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities:
        try:
            made.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError):
            raise ValueError("the certificate authorities are not PEM") from None
    else:
        made.load_default_certs()
    return made


def reach(
    url: str, context: ssl.SSLContext, headers: Iterable[tuple[str, str]], seconds: float
) -> tuple[ssl.SSLSocket, bytes]:
    """Open a WebSocket; return the socket and the bytes that followed the response. Raises TunnelUnreachable and
    ValueError."""
    place = parse(url)
    until = time.monotonic() + seconds
    raw: socket.socket | None = None
    try:
        raw = _connect(place, proxy_for(place, os.environ), seconds)
        wire = raw = context.wrap_socket(raw, server_hostname=place.host)
        handshake = ClientHandshake(place.authority, place.target, headers)
        wire.sendall(handshake.request)
        while not handshake.done:
            wire.settimeout(max(0.001, until - time.monotonic()))  # also limits a server that answers byte by byte
            data = wire.recv(_CHUNK)
            if not data:
                raise handshake.ended()
            handshake.feed(data)
        return wire, handshake.rest
    except HandshakeRefused as error:
        reason = TunnelUnreachable(f"{url}: {error}", error.retry_after)
    except HandshakeError as error:
        reason = TunnelUnreachable(f"{url}: {error}")
    except ssl.SSLCertVerificationError as error:
        reason = TunnelUnreachable(f"{url}: cannot verify its certificate: {error.verify_message}")
    except OSError as error:
        reason = TunnelUnreachable(f"{url}: {describe_error(error)}")
    except BaseException:
        if raw is not None:
            raw.close()
        raise
    if raw is not None:
        raw.close()
    raise reason


def _connect(place: TunnelEndpoint, proxy: Proxy | None, seconds: float) -> socket.socket:
    if proxy is None:
        return socket.create_connection((place.host, place.port), seconds)
    made = socket.create_connection((proxy.host, proxy.port), seconds)
    try:
        _connect_through_proxy(made, place, proxy)
    except BaseException:
        made.close()
        raise
    return made


def _connect_through_proxy(made: socket.socket, place: TunnelEndpoint, proxy: Proxy) -> None:
    host = f"[{place.host}]" if ":" in place.host else place.host
    lines = [f"CONNECT {host}:{place.port} HTTP/1.1", f"Host: {host}:{place.port}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    made.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = made.recv(1)  # the TLS layer must read what follows the header
        if not byte or len(answer) > _LONGEST_PROXY_ANSWER:
            raise HandshakeError(f"proxy {proxy.host}:{proxy.port} closed the connection")
        answer += byte
    words = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    if len(words) < 2 or words[1] != "200":
        raise HandshakeError(f"proxy {proxy.host}:{proxy.port} answered {' '.join(words[1:]) or 'nothing'}")


def proxy_for(place: TunnelEndpoint, environment: Mapping[str, str]) -> Proxy | None:
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    if not url or is_exempt(place.host, place.port, environment):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise TunnelUnreachable("HTTPS_PROXY must be an http URL with a host")
    authorization = ""
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = "Basic " + base64.b64encode(credentials).decode()
    return Proxy(parts.hostname, parts.port or 80, authorization)
