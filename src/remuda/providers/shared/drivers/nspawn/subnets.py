"""Allocation of a subnet for a cluster's own bridge, where the user has chosen none.

Several management planes may share a machine, so the machine records which cluster has which subnet: below /run, a
link per subnet points to the folder of the cluster. Like bridges, these links are lost on reboot. A link whose folder
is deleted does not reserve its subnet. A subnet in which this machine itself has an address or a route is never
allocated.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from pathlib import Path

from remuda.providers.shared.drivers.nspawn.commands import run
from remuda.providers.shared.drivers.nspawn.locks import folder_entries, locked
from remuda.providers.shared.drivers.spi import DriverError
from remuda.runtime.steps import step

_BOOK = Path("/run/remuda/subnets")
_POOL = ipaddress.IPv4Network("198.19.0.0/16")  # for benchmarks (RFC 2544), and apart from the default subnet of hosts
_PREFIX = 24

TAKE_SUBNET = step("nspawn.take-subnet", "reserves a cluster's subnet on this machine")
GIVE_BACK_SUBNET = step("nspawn.give-back-subnet", "releases a cluster's subnet on this machine")


async def take(folder: Path) -> ipaddress.IPv4Network:
    """Return the folder's subnet, or reserve a free one. Raises DriverError."""
    async with locked(_BOOK):
        for link, owner in _entries():
            if owner == folder:
                return _network(link)
        free = await _free(folder)
        async with TAKE_SUBNET:
            link = _BOOK / str(free).replace("/", "-")
            link.unlink(missing_ok=True)  # of a deleted cluster
            link.symlink_to(folder)
        return free


async def give_back(folder: Path) -> None:
    if not any(owner == folder for _, owner in _entries()):
        return
    async with locked(_BOOK), GIVE_BACK_SUBNET:
        for link, owner in _entries():
            if owner == folder:
                link.unlink()


async def _free(folder: Path) -> ipaddress.IPv4Network:
    taken = [_network(link) for link, owner in _entries() if owner.exists()]
    taken += await _known_here()
    candidates = list(_POOL.subnets(new_prefix=_PREFIX))
    first = int.from_bytes(hashlib.sha256(os.fsencode(folder)).digest()[:4], "big")
    for number in range(len(candidates)):
        candidate = candidates[(first + number) % len(candidates)]
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    raise DriverError(f"no free subnet of {_POOL} on this machine; set the option subnet")


async def _known_here() -> list[ipaddress.IPv4Network]:
    """Return the networks that this machine has routes to, without the default route."""
    routes = json.loads(await run("ip", "-json", "-4", "route", "show", "table", "all") or "[]")
    found = []
    for route in routes:
        try:
            network = ipaddress.IPv4Network(route.get("dst", ""))
        except ValueError:
            continue  # "default"
        if network.prefixlen > 0:
            found.append(network)
    return found


def _entries() -> list[tuple[Path, Path]]:
    if not _BOOK.is_dir():
        return []
    return [(link, Path(os.readlink(link))) for link in folder_entries(_BOOK) if link.is_symlink()]


def _network(link: Path) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(link.name.replace("-", "/"))
