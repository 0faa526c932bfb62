"""Hosts that are reached without the proxy of the environment: this machine, and those that NO_PROXY lists."""

from __future__ import annotations

from collections.abc import Mapping


def is_exempt(host: str, port: int, environment: Mapping[str, str]) -> bool:
    host = host.lower()
    if host in ("localhost", "::1") or host.startswith("127."):
        return True
    exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    for entry in exempt.lower().replace(",", " ").split():
        if entry == "*" or entry in (host, f"{host}:{port}"):
            return True
        if "/" in entry:
            if _is_within(host, entry):
                return True
        elif host.endswith("." + entry.lstrip("*").lstrip(".")):
            return True
    return False


def _is_within(host: str, network: str) -> bool:
    import ipaddress  # rarely needed

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
