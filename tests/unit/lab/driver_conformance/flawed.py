"""A driver whose servers are directories, with a disk each, and a way to spoil it for each thing the suite seeks."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.spi import Address, BadOptions, Driver, DriverError, Options, Order, Server
from remuda.runtime.steps import step
from tests.lab.conformance import Subject

MAKE_DISK = step("flawed.make-disk", "makes a disk")
MAKE_SERVER = step("flawed.make-server", "makes a server")
REMOVE = step("flawed.remove", "removes both")

log = logging.getLogger(__name__)


class FlawedOptions(Options):
    flaw: Annotated[str, Field("What is wrong with the driver.")] = ""
    token: Annotated[str, Field("Opens the cloud.", format="password")] = ""
    size: Annotated[int, Field("Of the server.", minimum=1)] = 1


class Undocumented(Options):
    size: int = 1


class BadDefault(Options):
    size: Annotated[int, Field("Of the server.", minimum=1)] = 0


class Unwritten(Options, rename=None):
    server_size: Annotated[int, Field("Of the server.")] = 1


class Flawed(Driver[FlawedOptions]):
    name: ClassVar[str] = "flawed"
    doc: ClassVar[str] = "Directories."
    options_type: ClassVar[type[Any]] = FlawedOptions
    credential_fields: ClassVar[tuple[str, ...]] = ("token",)

    @property
    def flaw(self) -> str:
        return self.options.flaw

    def __repr__(self) -> str:
        return f"<{self.context.credentials}>" if self.flaw == "repr" else "<Flawed>"

    async def check(self, order: Order) -> None:
        if self.options.size > 100 and self.flaw != "takes anything":
            raise BadOptions("no" if self.flaw == "unnamed" else "size: there are no servers that large")

    async def create(self, order: Order, user_data: bytes) -> Server:
        self._talk()
        if (self.context.directory / "full").exists() and self.flaw != "does not notice":
            self._refuse()
        folder = self._folder(order)
        if self.flaw == "makes another":
            folder = folder.with_name(f"{folder.name}.{len(list(self.context.directory.glob('*.server')))}.server")
        if self.flaw == "no steps":
            folder.mkdir(exist_ok=True)
        else:
            async with MAKE_DISK:
                folder.with_suffix(".disk").touch()
            async with MAKE_SERVER:
                folder.mkdir(exist_ok=True)
        if self.flaw == "forgets its half":
            assert not self.context.record.value.get("begun")
            await self.context.record.save({"begun": True})
        (folder / "data").write_bytes(user_data.strip() if self.flaw == "strips" else user_data)
        (folder / "tags").write_text(json.dumps(order.tags))
        return self._server(folder)

    async def find(self, order: Order) -> Server | None:
        folder = self._folder(order)
        return self._server(folder) if folder.exists() else None

    async def remove(self, order: Order) -> None:
        folder = self._folder(order)
        if self.flaw == "wants something to remove" and not folder.exists():
            raise DriverError("there is nothing to remove")
        if self.flaw == "keeps the disk" and not folder.exists():
            return  # takes a half-made one for none
        async with REMOVE:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_suffix(".disk").unlink(missing_ok=True)

    async def owned(self, owner: str) -> list[Server]:
        found = [self._server(folder) for folder in self.context.directory.glob("*.server")]
        return [each for each in found if self.flaw == "claims all" or each.tags["remuda-owner"] == owner]

    def _folder(self, order: Order) -> Path:
        key = order.name if self.flaw == "goes by the name" else f"{order.name}-{order.uid}"
        return self.context.directory / f"{key}.server"

    def _server(self, folder: Path) -> Server:
        tags = json.loads((folder / "tags").read_text()) if (folder / "tags").exists() else {}
        return Server(
            id=folder.name,
            name=tags.get("remuda-machine", "/").partition("/")[2],
            state="starting" if self.flaw == "never runs" else "running",
            provider_id=f"flawed://{folder.name}",
            addresses=[] if self.flaw == "no address" else [Address("InternalIP", f"10.{folder.name}")],
            tags=tags,
        )

    def _talk(self) -> None:
        token = self.context.credentials["token"]
        if self.flaw == "says":
            self.context.say(f"with {token}")
        if self.flaw == "logs":
            log.debug("with %s", token)

    def _refuse(self) -> None:
        if self.flaw == "raw":
            raise RuntimeError("full")
        if self.flaw == "behind the error":
            try:
                raise ValueError(f"403 for {self.context.credentials['token']}")
            except ValueError as error:
                raise DriverError("the cloud is full") from error
        raise DriverError("the cloud is full")


class Flawless(Subject):
    driver = Flawed
    credentials: Mapping[str, str] = {"token": "open-sesame"}
    boot_seconds = 0.2

    def __init__(self, directory: Path, flaw: str) -> None:
        super().__init__(directory)
        self.options = {"flaw": flaw}
        self.bad_options = {"size": {"flaw": flaw, "size": 101}}

    async def servers(self) -> list[str]:
        return sorted(path.name for path in self.hosts.glob("*.server"))

    async def things(self) -> list[str]:
        return sorted(path.name for path in self.hosts.iterdir())

    async def received(self, server: Server) -> bytes:
        return (self.hosts / server.id / "data").read_bytes()

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        (self.hosts / "full").touch()
        yield
        (self.hosts / "full").unlink()
