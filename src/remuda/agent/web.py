"""HTTPS client of the agent: always verified, through the proxy of the environment, with a deadline on every wait.

Errors are messages for people. If a wrong clock is the cause, the message names it: certificates and tokens have a
validity period, and look invalid to a host whose clock is wrong. Only for that message, the server's time is read
without verification, and used for nothing else.
"""

from __future__ import annotations

import calendar
import http.client
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from remuda.agent import AgentError
from remuda.tunnel.proxies import is_exempt

USER_AGENT = "remuda-agent"
_NOTABLE_SKEW_SECONDS = 60
_CHUNK = 1 << 16
_NOT_YET_VALID, _EXPIRED = 9, 10  # OpenSSL's codes
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ServerUnreachable(AgentError):
    """Missing answer; the text says what was tried and why it failed."""


class HttpResponse(NamedTuple):
    code: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


class ServerUrl(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


def parse(url: str) -> ServerUrl:
    """Parse a URL. Raise ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL with http or https and a host")
    path = parts.path or "/"
    if parts.query:
        path += "?" + parts.query
    return ServerUrl(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), path)


def context(ca_pem: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts these authorities only, or those of the system if there are none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem:
        try:
            made.load_verify_locations(cadata=ca_pem)
        except ssl.SSLError:
            raise ValueError("the certificate authority is not PEM") from None
    else:
        made.load_default_certs()
    return made


def connect(place: ServerUrl, trust: ssl.SSLContext, seconds: float) -> http.client.HTTPSConnection:
    """Open a connection. Each wait on it is limited to `seconds`."""
    proxy = proxy_for(place, os.environ)
    if proxy is None:
        connection = http.client.HTTPSConnection(place.host, place.port, timeout=seconds, context=trust)
    else:
        connection = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=seconds, context=trust)
        connection.set_tunnel(place.host, place.port)
    try:
        connection.connect()
        keep_alive(connection.sock)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ServerUnreachable(f"{place.host}:{place.port}: {describe(error, place)}") from None
    return connection


def keep_alive(sock: socket.socket) -> None:
    """Make the kernel detect a dead peer within half a minute, also while nothing is sent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    most: int = 16 << 20,
) -> HttpResponse:
    """Send one request on an open connection, which can be used again afterwards."""
    connection.request(method, path, body=body, headers={"User-Agent": USER_AGENT, **headers})
    response = connection.getresponse()
    content = bytearray()
    while len(content) <= most:
        chunk = response.read(_CHUNK)  # Python 3.9 allocates the requested size at once
        if not chunk:
            headers_there = {name.lower(): value for name, value in response.getheaders()}
            return HttpResponse(response.status, headers_there, bytes(content))
        content += chunk
    connection.close()
    raise ServerUnreachable(f"the answer is larger than {most} bytes")


def get(
    url: str, trust: ssl.SSLContext, headers: Mapping[str, str], *, seconds: float, most: int = 16 << 20
) -> HttpResponse:
    """Send one GET request on a new connection."""
    place = parse(url)
    if place.scheme != "https":
        raise ServerUnreachable(f"{url} is not https")
    connection = connect(place, trust, seconds)
    try:
        return exchange(connection, "GET", place.path, headers, most=most)
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(f"{place.host}:{place.port}: {describe(error, place)}") from None
    finally:
        connection.close()


def describe(error: BaseException, place: ServerUrl | None = None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"cannot verify its certificate: {error.verify_message}"
        if error.verify_code in (_NOT_YET_VALID, _EXPIRED) and place is not None:
            text += f"; {_clock_of(place)}"
        return text
    if is_late(error):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the name ({error.strerror})"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__} {error}".strip()


def is_late(error: BaseException) -> bool:
    return isinstance(error, (socket.timeout, TimeoutError))  # two things before Python 3.10


# Clocks


def skew(answer_headers: Mapping[str, str], now: float) -> float | None:
    """Return by how many seconds this host's clock is ahead of the server's; None if that is unknown."""
    there = http_date(answer_headers.get("date", ""))
    return None if there is None else now - there


def skew_in_words(seconds: float | None) -> str:
    """Describe the skew; empty if it is too small to matter."""
    if seconds is None or abs(seconds) < _NOTABLE_SKEW_SECONDS:
        return ""
    return f"the clock of this host is {_duration(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} the server's"


def _duration(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"


def http_date(date: str) -> float | None:
    words = date.split()
    try:
        _, day, month, year, clock, _ = words
        hour, minute, second = clock.split(":")
        moment = (int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
        return float(calendar.timegm(moment))
    except (ValueError, OverflowError):
        return None


def _clock_of(place: ServerUrl) -> str:
    now = time.time()
    here = time.strftime("this host's clock says %Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    try:
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(place.host, place.port, timeout=5, context=anyone)
        try:
            answer = exchange(connection, "GET", "/healthz", {}, most=1 << 16)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ServerUnreachable):
        return here
    return skew_in_words(skew(answer.headers, now)) or here


# Proxies


def proxy_for(place: ServerUrl, environment: Mapping[str, str]) -> ServerUrl | None:
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    if not url or place.scheme != "https":
        return None
    if is_exempt(place.host, place.port, environment):
        return None
    try:
        return parse(url if "://" in url else f"http://{url}")
    except ValueError:
        raise ServerUnreachable("HTTPS_PROXY is not a URL") from None
