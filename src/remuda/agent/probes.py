"""HTTP probes of the node's components, all at once, with the kubelet's rules.

An answer from 200 to 299 is a success. Redirects are followed on the same host; a redirect to another host is a
failure. A probe with its own CA trusts only that CA, others those of this system; `insecure` trusts any. No proxy is
used. On a host that is a folder with an address, paths are below the folder and loopback means that address.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import NamedTuple

from remuda.agent import log, web
from remuda.agent.plan import Probe

_MOST_SECONDS = 30.0  # for probes that set no limit
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProbedHost(NamedTuple):
    root: str = ""
    address: str = ""


def look(
    probes: Mapping[str, Probe], host: ProbedHost, stop: threading.Event, *, delayed: bool
) -> dict[str, bool] | None:
    """Run all probes and return whether each one succeeded; None when stopped.

    `delayed`: a plan was just applied, so each probe waits for its initial delay.
    """
    found: dict[str, str] = {}
    threads = [
        threading.Thread(target=_look_into, args=(probe, host, stop, delayed, found), daemon=True)
        for probe in probes.values()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return None if stop.is_set() else {name: not found.get(name, "no result") for name in probes}


def _look_into(probe: Probe, host: ProbedHost, stop: threading.Event, delayed: bool, found: dict[str, str]) -> None:
    if delayed and probe.initial_delay_seconds > 0 and stop.wait(probe.initial_delay_seconds):
        return
    found[probe.name] = trouble(probe, host)


def trouble(probe: Probe, host: ProbedHost) -> str:
    """Return why the probe fails; empty when it succeeds."""
    try:
        url = probe.url
        place = web.parse(url)
        trust = _trust(probe, host) if place.scheme == "https" else None
        first = place.host
        for _ in range(_MOST_REDIRECTS):
            code, location = _ask(place, trust, host, probe.timeout_seconds or _MOST_SECONDS)
            if code not in _REDIRECTS or not location:
                return "" if 200 <= code < 300 else f"answers {code}"
            place = web.parse(_joined(place, location))
            if place.host != first:
                return "redirects to another host"
            if place.scheme == "https" and trust is None:
                trust = _trust(probe, host)
        return "redirects without an end"
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = web.describe(error) if not isinstance(error, ValueError) or isinstance(error, OSError) else str(error)
        log.debug(f"probe {probe.name}: {text}")
        return text


def _ask(place: web.ServerUrl, trust: ssl.SSLContext | None, host: ProbedHost, seconds: float) -> tuple[int, str]:
    there = host.address if host.address and place.host in _LOOPBACK else place.host
    sock: socket.socket = socket.create_connection((there, place.port), seconds)
    try:
        if trust is not None:
            # Verify the host of the URL, although the connection may go to another address.
            sock = trust.wrap_socket(sock, server_hostname=place.host)
        connection = http.client.HTTPConnection(place.host, place.port)
        connection.sock = sock
        connection.request("GET", place.path, headers={"User-Agent": web.USER_AGENT, "Connection": "close"})
        response = connection.getresponse()
        return response.status, response.getheader("Location") or ""
    finally:
        sock.close()


def _joined(place: web.ServerUrl, location: str) -> str:
    from urllib.parse import urljoin

    name = f"[{place.host}]" if ":" in place.host else place.host
    return urljoin(f"{place.scheme}://{name}:{place.port}{place.path}", location)


def _trust(probe: Probe, host: ProbedHost) -> ssl.SSLContext:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if probe.insecure:
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    elif probe.ca_cert:
        trust.load_verify_locations(_below(probe.ca_cert, host.root))
    else:
        trust.load_default_certs()
    if probe.client_cert and probe.client_key:
        trust.load_cert_chain(_below(probe.client_cert, host.root), _below(probe.client_key, host.root))
    return trust


def _below(path: str, root: str) -> str:
    return os.path.join(root, path.lstrip("/")) if root else path
