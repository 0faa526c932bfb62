"""Cluster infrastructure of `nspawn`: a bridge with its own subnet, and a balancer in front of the control plane.

The balancer runs in the machine's own network, at an address of its own on the bridge. The bridge's book lists it as
one more host, so no other host gets its address and the bridge lives for as long as the balancer does. Machines of the
cluster get bridge and subnet with their orders, unless their own options name another bridge.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.balancer_process import Balancing
from remuda.providers.shared.drivers.nspawn import subnets
from remuda.providers.shared.drivers.nspawn.bridges import Bridge
from remuda.providers.shared.drivers.nspawn.commands import judge_machine
from remuda.providers.shared.drivers.nspawn.folder import keep
from remuda.providers.shared.drivers.nspawn.options import judge_subnet
from remuda.providers.shared.drivers.spi import (
    TAG_OWNER,
    TAG_UID,
    BadOptions,
    ClusterDriver,
    ClusterEndpoint,
    ClusterInfrastructure,
    ClusterOrder,
    DriverError,
    Needs,
    Options,
)
from remuda.runtime.steps import step

RESERVE = step("nspawn.reserve-cluster", "records the cluster that a bridge and a load balancer belong to")
DELETE = step("nspawn.delete-cluster", "deletes the folder of a cluster's bridge and load balancer")

_CLUSTERS = ".clusters"  # beside the folders of hosts, whose names never begin like this
_ABOUT = "cluster.json"
_SMALLEST_SUBNET = 29  # room for the bridge, the balancer and a few hosts


class NspawnClusterOptions(Options):
    subnet: Annotated[
        str, Field("The network of the cluster's machines. If empty, a free subnet of 198.19.0.0/16.")
    ] = ""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """cluster.json: there from the first moment to the last."""

    name: str
    tags: Mapping[str, str]
    bridge: str
    subnet: str
    address: str = ""  # of the balancer; empty until it has one


class NspawnCluster(ClusterDriver[NspawnClusterOptions]):
    options_type: ClassVar[type[NspawnClusterOptions]] = NspawnClusterOptions
    local: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(root=True)
    own_loopback: ClassVar[bool] = True

    async def check(self, order: ClusterOrder) -> None:
        judge_machine()
        self._folder(order)
        if self.options.subnet:
            judge_subnet(self.options.subnet, _SMALLEST_SUBNET)

    async def ensure(self, order: ClusterOrder) -> ClusterInfrastructure:
        await self.check(order)
        folder = self._folder(order)
        about = await self._reserve(folder, order)
        bridge = Bridge(about.bridge)
        place = await bridge.join(folder, ipaddress.IPv4Network(about.subnet))
        if about.address != str(place.address):
            about = msgspec.structs.replace(about, address=str(place.address))
            _write(folder, about)
        await bridge.also(place)
        await Balancing(folder).ensure(about.address, order.ports, order.backends)
        self.context.say(
            f"bridge {about.bridge} has subnet {about.subnet}; the load balancer listens at {about.address}; backends: "
            f"{', '.join(order.backends) or 'none yet'}"
        )
        return _infrastructure(about, order.ports[0])

    async def _reserve(self, folder: Path, order: ClusterOrder) -> ClusterRecord:
        about = _read(folder)
        if about is None:
            subnet = self.options.subnet or str(await subnets.take(folder))
            name = "rm-" + hashlib.sha256(f"{order.owner}/{order.uid}".encode()).hexdigest()[:9]
            about = ClusterRecord(name=order.name, tags=order.tags, bridge=name, subnet=subnet)
            async with RESERVE:
                _write(folder, about)
        if about.tags.get(TAG_UID) != order.uid:
            raise DriverError(f"{order.name} belongs to another cluster (uid {about.tags.get(TAG_UID, 'unknown')})")
        return about

    async def remove(self, order: ClusterOrder) -> None:
        folder = self._folder(order)
        about = _read(folder)
        if about is not None and about.tags.get(TAG_UID) == order.uid:
            judge_machine()
            await Balancing(folder).stop()
            if about.address:
                await Bridge(about.bridge).not_also(about.address)
            await Bridge(about.bridge).leave(folder)
        if about is None or about.tags.get(TAG_UID) == order.uid:
            if folder.is_dir():
                async with DELETE:
                    await asyncio.to_thread(_delete, folder)
            await subnets.give_back(folder)

    async def owned(self, owner: str) -> Sequence[ClusterInfrastructure]:
        if not self._clusters.is_dir():
            return []
        found = [about for path in sorted(self._clusters.iterdir()) if (about := _read(path)) is not None]
        return [_infrastructure(about) for about in found if about.tags.get(TAG_OWNER) == owner]

    @property
    def _clusters(self) -> Path:
        return self.context.directory.resolve() / "nspawn" / _CLUSTERS

    def _folder(self, order: ClusterOrder) -> Path:
        if not order.name or "/" in order.name or order.name.startswith("."):
            raise BadOptions(f"{order.name!r} is not a valid name for a bridge's folder")
        return self._clusters / order.name


def _infrastructure(about: ClusterRecord, port: int = 0) -> ClusterInfrastructure:
    return ClusterInfrastructure(
        id=about.bridge,
        name=about.name,
        endpoint=ClusterEndpoint(about.address, port) if port else None,
        network={"bridge": about.bridge, "subnet": about.subnet},
        tags=about.tags,
    )


def _read(folder: Path) -> ClusterRecord | None:
    try:
        return msgspec.json.decode((folder / _ABOUT).read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise DriverError(f"{folder} is readable by root only") from None
    except msgspec.MsgspecError as error:
        raise DriverError(f"{folder / _ABOUT} is damaged: {error}") from None


def _write(folder: Path, about: ClusterRecord) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keep(folder / _ABOUT, msgspec.json.encode(about))


def _delete(folder: Path) -> None:
    """Delete everything, cluster.json last: it marks the rest as ours."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == _ABOUT):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    folder.rmdir()
