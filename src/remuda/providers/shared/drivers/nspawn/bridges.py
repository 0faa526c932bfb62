"""Bridges, and the addresses of the hosts on them.

Several management planes may share a bridge, so the machine records which host has which address: below /run, a folder
per bridge with a link per address that points to the host's folder. Like bridges, these links are lost on reboot. A
link whose host is deleted does not reserve its address. All changes are made under the bridge's lock.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from pathlib import Path
from typing import NamedTuple

from remuda.providers.shared.drivers.nspawn.commands import attempt, run
from remuda.providers.shared.drivers.nspawn.locks import delete_locked_folder, folder_entries, locked
from remuda.providers.shared.drivers.spi import BadOptions, DriverError
from remuda.runtime.steps import step

_BOOK = Path("/run/remuda/bridges")
_OURS = "made"  # marks a bridge that was created here and is deleted with its last host

MAKE_BRIDGE = step("nspawn.make-bridge", "creates the bridge with its address")
TAKE_ADDRESS = step("nspawn.take-address", "reserves the host's address on this machine")
GIVE_BACK = step("nspawn.give-back-address", "releases the host's address, and deletes the bridge after the last host")

ADD_ADDRESS = step("nspawn.add-address", "adds the address of a control plane's load balancer to the bridge")
REMOVE_ADDRESS = step("nspawn.remove-address", "removes the address of a control plane's load balancer from the bridge")


class NetworkAddress(NamedTuple):
    """Network address of a host, with its gateway and prefix length."""

    address: ipaddress.IPv4Address
    gateway: ipaddress.IPv4Address
    prefix: int


class Bridge:
    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = _BOOK / name

    async def join(self, host: Path, network: ipaddress.IPv4Network) -> NetworkAddress:
        """Return the host's address: the one it has, or a free one. Raises DriverError."""
        async with locked(self._folder):
            gateway = await self._ensure(network)
            address = self._address_of(host, network)
            if address is None:
                address = self._free(network, gateway)
                async with TAKE_ADDRESS:
                    _point(self._folder / str(address), host)
            return NetworkAddress(address, gateway, network.prefixlen)

    async def also(self, place: NetworkAddress) -> None:
        """Add a further address to the bridge, for a program of this machine that listens there."""
        async with locked(self._folder):
            if place.address not in [address.ip for address in await self._addresses()]:
                async with ADD_ADDRESS:
                    await run("ip", "address", "add", f"{place.address}/32", "dev", self.name)

    async def not_also(self, address: str) -> None:
        if not self._folder.is_dir() or not await self._exists():
            return
        if address in [str(found.ip) for found in await self._addresses()]:
            async with REMOVE_ADDRESS:
                await run("ip", "address", "delete", f"{address}/32", "dev", self.name)

    async def leave(self, host: Path) -> None:
        """Release the host's address; delete a bridge of ours with its last host."""
        if not self._folder.is_dir():
            return
        async with locked(self._folder), GIVE_BACK:
            for link in self._links():
                if _target(link) == host:
                    link.unlink()
            if not any(_target(link).exists() for link in self._links()):
                await self._remove()

    async def _remove(self) -> None:
        if (self._folder / _OURS).exists() and await self._exists():
            await run("ip", "link", "delete", self.name)
        for entry in folder_entries(self._folder):
            entry.unlink()
        delete_locked_folder(self._folder)

    async def _ensure(self, network: ipaddress.IPv4Network) -> ipaddress.IPv4Address:
        """Create the bridge if needed and return its own address in the network."""
        ours = self._folder / _OURS
        if not await self._exists():
            ours.touch()  # before the bridge: after a crash, a bridge without the mark would never be deleted
            async with MAKE_BRIDGE:
                await run("ip", "link", "add", self.name, "address", _own_hardware_address(self.name), "type", "bridge")
        addresses = await self._addresses()
        for address in addresses:
            if network.subnet_of(address.network) and address.ip in network:  # not one that was added with a /32
                await run("ip", "link", "set", self.name, "up")
                return address.ip
        if addresses or not ours.exists():
            has = ", ".join(map(str, addresses)) or "no address"
            raise BadOptions(f"subnet: {network} does not match the bridge {self.name}, which has {has}")
        first = next(network.hosts())
        await run("ip", "address", "add", f"{first}/{network.prefixlen}", "dev", self.name)
        await run("ip", "link", "set", self.name, "up")
        return first

    async def _exists(self) -> bool:
        code, printed, _ = await attempt("ip", "-json", "-details", "link", "show", "dev", self.name)
        if code != 0:
            return False
        kind = json.loads(printed)[0].get("linkinfo", {}).get("info_kind", "")
        if kind != "bridge":
            raise BadOptions(f"bridge: interface {self.name} of this machine is not a bridge")
        return True

    async def _addresses(self) -> list[ipaddress.IPv4Interface]:
        printed = await run("ip", "-json", "-4", "address", "show", "dev", self.name)
        return [
            ipaddress.IPv4Interface((entry["local"], entry["prefixlen"]))
            for link in json.loads(printed or "[]")
            for entry in link.get("addr_info", ())
        ]

    def _links(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if path.is_symlink()]

    def _address_of(self, host: Path, network: ipaddress.IPv4Network) -> ipaddress.IPv4Address | None:
        for link in self._links():
            address = ipaddress.IPv4Address(link.name)
            if _target(link) == host and address in network:
                return address
        return None

    def _free(self, network: ipaddress.IPv4Network, gateway: ipaddress.IPv4Address) -> ipaddress.IPv4Address:
        taken = {link.name for link in self._links() if _target(link).exists()}
        for address in network.hosts():
            if address != gateway and str(address) not in taken:
                return address
        raise DriverError(
            f"no free address: hosts use all {len(taken)} addresses of subnet {network} on bridge {self.name}; remove "
            "hosts, or choose a larger subnet"
        )


def _own_hardware_address(name: str) -> str:
    """Return a fixed hardware address for a bridge. Without one, a bridge takes the address of a host's interface and
    loses it with that host: all other hosts would lose their gateway until their ARP entries expire."""
    digest = hashlib.sha256(name.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))  # 02: locally administered unicast address


def _target(link: Path) -> Path:
    try:
        return Path(os.readlink(link))
    except FileNotFoundError:
        return Path("/nonexistent")


def _point(link: Path, host: Path) -> None:
    link.unlink(missing_ok=True)  # of a deleted host
    link.symlink_to(host)
