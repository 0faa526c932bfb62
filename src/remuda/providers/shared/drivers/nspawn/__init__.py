"""Hosts in systemd-nspawn on the manager's machine; they behave like real servers.

Each host has systemd, sshd and its own address on a bridge; its file system is a layer over the machine's own or over
an image. It outlives the Job that created it and the management plane. Hosts do not isolate the machine from their root
user: they have all capabilities, because a kubelet needs them. Removal leaves nothing of a host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import asyncssh
import msgspec

from remuda.providers.shared.drivers.nspawn import contents, groups, layers
from remuda.providers.shared.drivers.nspawn.bridges import Bridge, NetworkAddress
from remuda.providers.shared.drivers.nspawn.cluster import NspawnCluster
from remuda.providers.shared.drivers.nspawn.commands import attempt, judge_machine
from remuda.providers.shared.drivers.nspawn.folder import Folder, HostRecord
from remuda.providers.shared.drivers.nspawn.layers import Layer
from remuda.providers.shared.drivers.nspawn.options import NspawnOptions, bind_flags, judge, net, system_call_flags
from remuda.providers.shared.drivers.spi import (
    TAG_MACHINE,
    TAG_OWNER,
    TAG_UID,
    Address,
    BadOptions,
    ClusterDriver,
    Driver,
    DriverError,
    Needs,
    Order,
    Server,
    ServerState,
    SshAccess,
)
from remuda.runtime.steps import step

_BOOT_SECONDS = 90.0
_SSH_PORT = 22
_IMAGES = ".images"

RESERVE = step("nspawn.reserve-host", "records the machine that a host belongs to")
FILL = step("nspawn.fill-host", "writes the files of a host into its folder")
BOOT = step("nspawn.boot-host", "starts the host")
STOP = step("nspawn.stop-host", "stops every process of the host")
DELETE = step("nspawn.delete-host", "deletes the host's folder")


class Nspawn(Driver[NspawnOptions]):
    name: ClassVar[str] = "nspawn"
    doc: ClassVar[str] = (
        "Hosts in systemd-nspawn on the manager's machine, each with systemd, sshd and its own address on a bridge. "
        "Needs root on Linux with systemd-container, iproute2 and overlayfs."
    )
    options_type: ClassVar[type[NspawnOptions]] = NspawnOptions
    local: ClassVar[bool] = True
    on_manager: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(root=True)
    own_loopback: ClassVar[bool] = True
    cluster: ClassVar[type[ClusterDriver[Any]] | None] = NspawnCluster

    @property
    def takes_user_data(self) -> bool:
        return self.options.bootstrap == "cloud-init"

    async def check(self, order: Order) -> None:
        judge_machine()
        judge(self.options)
        if not self.options.image and (lacking := contents.lacking()):
            raise BadOptions(
                f"image: {', '.join(lacking)} of this machine are on separate file systems, so the machine cannot "
                "serve as the image; set image to a directory or a tarball"
            )
        if not _has_overlay():
            await attempt("modprobe", "overlay")
            if not _has_overlay():
                raise BadOptions("the kernel of this machine has no overlay file system, which hosts need")

    async def create(self, order: Order, user_data: bytes) -> Server:
        await self.check(order)
        folder = self._folder(order.name)
        about = await self._reserve(folder, order)
        place = await Bridge(about.bridge).join(folder.path, net(self.options, order.network).subnet)
        if not folder.started:
            about = await self._fill(folder, order, about, place, user_data)
        if not folder.leader:
            self.context.say(f"starting {order.name} at {place.address}")
            await self._boot(folder, about)
        await self._booted(folder, about)
        return await self._server(folder, about)

    async def _reserve(self, folder: Folder, order: Order) -> HostRecord:
        about = folder.read()
        if about is None:
            about = HostRecord(
                name=order.name,
                hostname=order.hostname or order.name,
                tags=order.tags,
                bridge=net(self.options, order.network).bridge,
                ssh_user=self.options.ssh_user,
            )
            async with RESERVE:
                folder.write(about)
        if about.tags.get(TAG_UID) != order.uid:
            raise DriverError(
                f"host {order.name} already exists, created for {about.tags.get(TAG_MACHINE, 'another owner')} "
                f"(uid {about.tags.get(TAG_UID, 'unknown')}); remove it first"
            )
        return about

    async def _fill(
        self, folder: Folder, order: Order, about: HostRecord, place: NetworkAddress, user_data: bytes
    ) -> HostRecord:
        lower = layers.image_folder(self.options.image, self._home / _IMAGES)
        about = msgspec.structs.replace(about, image=str(lower))
        await folder.stop()  # a killed Job may have been about to start it
        async with FILL:
            folder.write(about)
            if lower.parent == self._home / _IMAGES:
                self.context.say(f"unpacking {self.options.image}")
                await layers.unpack_image(Path(self.options.image), lower)
            return await asyncio.to_thread(self._write, folder, order, about, place, user_data)

    def _write(
        self, folder: Folder, order: Order, about: HostRecord, place: NetworkAddress, user_data: bytes
    ) -> HostRecord:
        lower = Path(about.image)
        client = asyncssh.generate_private_key("ssh-ed25519", comment=order.name)
        host = asyncssh.generate_private_key("ssh-ed25519", comment=order.name)
        folder.blank()
        contents.write(
            Layer(folder.upper, lower),
            contents.Contents(
                uid=order.uid,
                hostname=about.hostname,
                place=place,
                ssh_user=about.ssh_user,
                client_public_key=client.export_public_key().decode().strip(),
                host_private_key=host.export_private_key().decode(),
                dns=self.options.dns,
                user_data=user_data if self.takes_user_data else None,
                hidden=(str(self.context.directory.resolve()),),
                whole_machine=lower == Path("/"),
            ),
        )
        folder.keep_key(client.export_private_key().decode())
        about = msgspec.structs.replace(
            about,
            address=str(place.address),
            host_key=" ".join(host.export_public_key().decode().split()[:2]),
        )
        folder.write(about)
        return about

    async def _boot(self, folder: Folder, about: HostRecord) -> None:
        limits = groups.ResourceLimits(self.options.memory, self.options.cpus)
        async with BOOT:
            complaints = await folder.start(
                Path(about.image),
                limits,
                [
                    f"--hostname={about.hostname}",
                    f"--network-bridge={about.bridge}",
                    *bind_flags(self.options),
                    *system_call_flags(self.options),
                ],
            )
        for complaint in complaints:
            self.context.say(complaint)

    async def _booted(self, folder: Folder, about: HostRecord) -> None:
        """Once its sshd listens. Raises DriverError with the end of its console."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not await asyncio.to_thread(groups.listens, folder.machine, _SSH_PORT):
            if not folder.leader:
                raise DriverError(f"host {about.name} exited while it was starting: {folder.last_output()}")
            if loop.time() - begun > _BOOT_SECONDS:
                raise DriverError(
                    f"sshd of host {about.name} does not listen at {about.address} after {_BOOT_SECONDS:g} s; "
                    f"end of its console: {folder.last_output()}"
                )
            await asyncio.sleep(0.1)

    async def find(self, order: Order) -> Server | None:
        folder = self._folder(order.name)
        about = folder.read()
        if about is None or about.tags.get(TAG_UID) != order.uid:
            return None
        return await self._server(folder, about)

    async def remove(self, order: Order) -> None:
        folder = self._folder(order.name)
        about = folder.read()
        if about is None:
            await asyncio.to_thread(folder.delete_unowned)
            return
        if about.tags.get(TAG_UID) != order.uid:
            return
        judge_machine()
        self.context.say(f"removing {order.name}")
        async with STOP:
            await folder.stop()
        await Bridge(about.bridge).leave(folder.path)
        async with DELETE:
            await asyncio.to_thread(folder.delete)
        await layers.clear_images(self._home / _IMAGES, self._images_in_use)

    async def owned(self, owner: str) -> Sequence[Server]:
        found = []
        for folder in self._folders():
            about = folder.read()
            if about is not None and about.tags.get(TAG_OWNER) == owner:
                found.append(await self._server(folder, about))
        return found

    async def _server(self, folder: Folder, about: HostRecord) -> Server:
        key = folder.key()
        state: ServerState = "stopped"
        if folder.leader:
            listens = await asyncio.to_thread(groups.listens, folder.machine, _SSH_PORT)
            state = "running" if listens else "starting"
        return Server(
            id=about.name,
            name=about.name,
            state=state,
            provider_id=f"nspawn://{about.name}",
            addresses=[Address("InternalIP", about.address), Address("Hostname", about.hostname)]
            if about.address
            else (),
            ssh=SshAccess(user=about.ssh_user, port=_SSH_PORT, private_key=key, host_keys=[about.host_key])
            if key and about.host_key
            else None,
            tags=about.tags,
        )

    # Where things are.

    @property
    def _home(self) -> Path:
        return self.context.directory.resolve() / "nspawn"

    def _folder(self, name: str) -> Folder:
        if not name or "/" in name or name.startswith("."):
            raise BadOptions(f"{name!r} is not a valid host name")
        return Folder(self._home / name)

    def _folders(self) -> list[Folder]:
        if not self._home.is_dir():
            return []
        return [Folder(path) for path in sorted(self._home.iterdir()) if not path.name.startswith(".")]

    def _images_in_use(self) -> set[str]:
        return {about.image for folder in self._folders() if (about := folder.read()) is not None}


def _has_overlay() -> bool:
    return "overlay" in Path("/proc/filesystems").read_text().split()
