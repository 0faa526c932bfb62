"""Address of the manager and the CA that hosts verify it with, as sent to hosts. Decided once, at start."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from urllib.parse import urlsplit

import msgspec

TUNNEL = "/v3/connect"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    server_url: str  # https://host:port, without a slash at the end; reachable from hosts
    ca_pem: bytes  # what its certificate is verified with; PEM, ends with one newline

    @property
    def only_here(self) -> str:
        """Return the URL if it is a loopback address, which only this machine can use; else an empty string."""
        return self.server_url if is_loopback(urlsplit(self.server_url).hostname or "") else ""

    @property
    def ca_checksum(self) -> str:
        """Return the checksum that hosts pin: they compare `/cacerts` with it before they trust anything else."""
        return hashlib.sha256(self.ca_pem).hexdigest()

    @property
    def tunnel_url(self) -> str:
        """Return the URL at which nodes open their tunnels; its path is upstream's."""
        return f"wss://{self.server_url.removeprefix('https://')}{TUNNEL}"

    @property
    def digest(self) -> str:
        """Return a digest that changes when hosts need new connection settings."""
        return hashlib.sha256(f"{self.server_url}\n{self.ca_checksum}".encode()).hexdigest()[:16]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address_here(host: str) -> bool:
    """Return whether the host is an address of this machine, loopback or not. Names are not resolved."""
    if is_loopback(host):
        return True
    try:
        family = socket.AF_INET if ipaddress.ip_address(host).version == 4 else socket.AF_INET6
    except ValueError:
        return False
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
