"""`sim`: servers that are entries in a table, for tests, demonstrations of failures, and fleets of thousands.

The options of each server decide what succeeds and what fails, so that a test can make any step fail. These servers
have no agents: a simulation that holds a cloud in memory can listen to it and start an agent for each server that has
booted.

A cloud is in memory if Jobs are tasks of one process and a simulation has opened it by name (`clouds`); otherwise it is
a file below the drivers' directory that all processes share.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from remuda.kube.objects import Field
from remuda.providers.shared.drivers import simcloud
from remuda.providers.shared.drivers.simcloud import CloudRefused, FileCloud, ServerRequest, SimCloud, SimServer
from remuda.providers.shared.drivers.spi import (
    Address,
    BadOptions,
    Driver,
    DriverError,
    Needs,
    Options,
    Order,
    Server,
)
from remuda.runtime.steps import step

CREATE = step("simdriver.create-server", "the driver sim creates a server")
REMOVE = step("simdriver.remove-server", "the driver sim removes a server")

_WRONG = "wrong"

clouds: dict[str, SimCloud] = {}  # in memory, by name; opened by a simulation, closed by it


class SimOptions(Options):
    cloud: Annotated[
        str, Field("Name of the simulated cloud.", pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)
    ] = "default"
    token: Annotated[
        str, Field(f'Token of the account; the cloud accepts any value except "{_WRONG}".', format="password")
    ] = ""
    zone: Annotated[str, Field("Failure domain of the server.")] = ""
    boot_seconds: Annotated[float, Field("Seconds from the creation of the server until it is running.", minimum=0)] = (
        0.0
    )
    failures: Annotated[
        int, Field("Number of attempts to create the server that fail first and create nothing.", minimum=0)
    ] = 0
    answers_lost: Annotated[
        int, Field("Number of further attempts that create the server but lose the answer.", minimum=0)
    ] = 0
    remove_failures: Annotated[int, Field("Number of attempts to remove the server that fail first.", minimum=0)] = 0
    never_boots: Annotated[bool, Field("The server starts, but never reaches the state running.")] = False
    refuses: Annotated[str, Field("If set, the cloud refuses every server with this message.")] = ""


class Sim(Driver[SimOptions]):
    name: ClassVar[str] = "sim"
    doc: ClassVar[str] = (
        "Simulated servers. They need nothing, cost nothing and do nothing; their options control how they boot and "
        "fail."
    )
    options_type: ClassVar[type[SimOptions]] = SimOptions
    credential_fields: ClassVar[tuple[str, ...]] = ("token",)
    local: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(host_files=True)

    async def check(self, order: Order) -> None:
        if (self.options.token or self.context.credentials.get("token")) == _WRONG:
            raise BadOptions("the simulated cloud rejects the token")

    async def create(self, order: Order, user_data: bytes) -> Server:
        await self.check(order)
        options = self.options
        wish = ServerRequest(
            name=order.name,
            tags=order.tags,
            user_data=user_data,
            zone=options.zone,
            boot_seconds=None if options.never_boots else options.boot_seconds,
            failures=options.failures,
            answers_lost=options.answers_lost,
            refuses=options.refuses,
        )
        cloud = self._cloud()
        try:
            async with CREATE:
                made = await cloud.create(wish)
        except CloudRefused as error:
            raise DriverError(f"the simulated cloud did not create {order.name}: {error}") from None
        return self._server(made)

    async def find(self, order: Order) -> Server | None:
        found = await self._cloud().find(order.name, order.uid)
        return None if found is None else self._server(found)

    async def remove(self, order: Order) -> None:
        try:
            async with REMOVE:
                await self._cloud().remove(order.name, order.uid, self.options.remove_failures)
        except CloudRefused as error:
            raise DriverError(f"the simulated cloud did not remove {order.name}: {error}") from None

    async def owned(self, owner: str) -> list[Server]:
        return [self._server(server) for server in await self._cloud().servers() if server.owner == owner]

    def _cloud(self) -> simcloud.Cloud:
        name = self.options.cloud
        return clouds.get(name) or FileCloud(self.context.directory / "sim" / f"{name}.jsonl")

    def _server(self, server: SimServer) -> Server:
        return Server(
            id=str(server.number),
            name=server.name,
            state="running" if server.runs else "starting",
            provider_id=f"sim://{self.options.cloud}/{server.name}",
            addresses=[Address("InternalIP", server.address), Address("Hostname", server.name)],
            failure_domain=server.zone,
            tags=server.tags,
        )
