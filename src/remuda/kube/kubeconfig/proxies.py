"""Proxy selection from the environment: HTTPS_PROXY, HTTP_PROXY and NO_PROXY as kubectl reads them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_of_environment(server: str, environ: Mapping[str, str]) -> str:
    """Empty for none, and always for this machine itself."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper()) or ""
    if not proxy or _is_loopback(host) or _bypasses(host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bypasses(host: str, listed: str) -> bool:
    for entry in filter(None, (part.strip().lower() for part in listed.split(","))):
        if entry == "*" or host == entry or host.endswith("." + entry.lstrip(".").removeprefix("*.")):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False
