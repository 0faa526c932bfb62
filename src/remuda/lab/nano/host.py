"""Host that nano runs on: a real one, or a folder with its own address.

On a folder (REMUDA_HOST_ROOT) every path is below it, and everything listens on the one address (REMUDA_HOST_ADDRESS),
ports of loopback included, so that many hosts share a machine. Nothing else in nano knows the difference.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what a server of a cluster listens on


class NanoHost(msgspec.Struct, frozen=True):
    root: str = ""
    address: str = ""

    def path(self, path: str | Path) -> Path:
        """Return the real path of a path of the host. A path already below the root is kept: plans may use such."""
        text = str(path)
        if not self.root or text == self.root or text.startswith(self.root.rstrip("/") + "/"):
            return Path(text)
        return Path(self.root) / text.lstrip("/")

    @property
    def loopback(self) -> str:
        """Return the address for servers that only this host may reach."""
        return self.address or LOOPBACK

    @property
    def everywhere(self) -> str:
        return self.address or EVERYWHERE

    def own_address(self) -> str:
        """Return the address at which other hosts reach this one, unless configured: the one it would send from."""
        if self.address:
            return self.address
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing
                return str(probe.getsockname()[0])
            except OSError:
                return LOOPBACK


def this_host(environment: Mapping[str, str] = os.environ) -> NanoHost:
    return NanoHost(environment.get("REMUDA_HOST_ROOT", ""), environment.get("REMUDA_HOST_ADDRESS", ""))
