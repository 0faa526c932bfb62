"""`process`: hosts that are processes of this machine. No root, no containers, nothing to install: the demo's default.

A host is a directory with a root of its own, an address of its own out of 127.64.0.0/10, and whatever its bootstrap
script leaves running. The script runs here, told by REMUDA_HOST_ROOT and REMUDA_HOST_ADDRESS where "here" is; it is in
a session of its own and goes on when the Job that started it has ended. There is no wall between a host and this
machine: whoever may write plans for it may run commands as this user.

Nothing starts a host again when this machine has been restarted.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Annotated, Any, ClassVar

from remuda.kube.objects import Field
from remuda.providers.shared.drivers import proc
from remuda.providers.shared.drivers.process.cluster import ProcessCluster
from remuda.providers.shared.drivers.process.host import NETWORK, Details, Hosts, ProcessHost, check_address, do
from remuda.providers.shared.drivers.spi import (
    DIRECTORY,
    TAG_OWNER,
    TAG_UID,
    Address,
    BadOptions,
    ClusterDriver,
    Driver,
    DriverError,
    Needs,
    Options,
    Order,
    Server,
)
from remuda.runtime.steps import step

CLAIM = step("processdriver.claim-name", "the `process` driver creates the directory of a host")
WRITE = step("processdriver.write-script", "the `process` driver writes a host's bootstrap script")
START = step("processdriver.start-script", "the `process` driver starts a host's bootstrap script")
STOP = step("processdriver.stop-processes", "the `process` driver ends the processes of a host")
DELETE = step("processdriver.delete-directory", "the `process` driver deletes the directory of a host")

_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LOOK_SECONDS = 0.05
_LOOKS = 10
_GRACE_SECONDS = 5.0  # from TERM to KILL
_LONGEST_END_SECONDS = 15.0


class ProcessOptions(Options):
    address: Annotated[
        str, Field("The address of the host, from 127.0.0.0/8. If empty, a free address of 127.64.0.0/10.")
    ] = ""
    timeout_seconds: Annotated[
        int, Field("Time limit of the bootstrap script, in seconds.", minimum=1, maximum=86400)
    ] = 1200


class Process(Driver[ProcessOptions]):
    name: ClassVar[str] = "process"
    doc: ClassVar[str] = (
        "Hosts that are processes on the manager's machine, each with its own root directory and loopback address. "
        "Needs Linux, but neither root nor any package. For trials and tests: nothing isolates such a host from the "
        "machine."
    )
    options_type: ClassVar[type[ProcessOptions]] = ProcessOptions
    user_data_format = "script"
    local: ClassVar[bool] = True
    on_manager: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(host_files=True)
    cluster: ClassVar[type[ClusterDriver[Any]] | None] = ProcessCluster

    async def check(self, order: Order) -> None:
        if not proc.available():
            raise BadOptions(
                f"process hosts need Linux: {sys.platform} has no /proc, which is needed to tell hosts apart"
            )
        if not _LABEL.fullmatch(order.name):
            raise BadOptions(f"{order.name!r} is not a valid host name")
        if self.options.address:
            check_address(self.options.address)

    async def create(self, order: Order, user_data: bytes) -> Server:
        await self.check(order)
        if not user_data.startswith(b"#!"):
            raise DriverError("a process host needs a script as bootstrap data, and this does not start with #!")
        host, wanted = self._host(order), self._details(order)
        await self.context.record.save({DIRECTORY: str(host.directory)})
        async with CLAIM:
            details = await do(self._hosts.claim, wanted, NETWORK)
        async with WRITE:
            await do(host.write_script, user_data)
        if await do(host.needs_start):
            async with START:
                await do(host.start, details)
            self.context.say(f"host {order.name}, {details.address}: started the bootstrap script")
        await self._finish(host)
        return await self._settled(host, details)

    async def find(self, order: Order) -> Server | None:
        host = self._host(order)
        details = await do(host.details)
        if details is None or details.tags.get(TAG_UID) != order.uid:
            return None
        return await do(_server, host, details)

    async def remove(self, order: Order) -> None:
        host = self._host(order)
        details = await do(host.details)
        if details is not None and details.tags.get(TAG_UID) != order.uid:
            return
        async with STOP:
            await self._stop(host)
        async with DELETE:
            await do(self._hosts.delete, host)

    async def owned(self, owner: str) -> list[Server]:
        return await do(self._owned, owner)

    @property
    def _hosts(self) -> Hosts:
        return Hosts(self.context.directory / self.name)

    def _host(self, order: Order) -> ProcessHost:
        if not _LABEL.fullmatch(order.name):
            raise BadOptions(f"{order.name!r} is not a valid host name")
        return self._hosts.host(order.name)

    def _details(self, order: Order) -> Details:
        return Details(name=order.name, hostname=order.hostname, address=self.options.address, tags=order.tags)

    def _owned(self, owner: str) -> list[Server]:
        found = [(host, details) for host in self._hosts.all() if (details := host.details()) is not None]
        ours = [(host, details) for host, details in found if details.tags.get(TAG_OWNER) == owner]
        return [_server(host, details) for host, details in ours if not details.balancer]

    async def _finish(self, host: ProcessHost) -> None:
        """Wait for the script, also one that an earlier Job started, and repeat its output."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.timeout_seconds
        output = host.output()
        runs = True
        while runs:
            runs = await do(host.script_runs)
            for line in await do(output.lines, ended=not runs):
                self.context.say(line)
            if runs and loop.time() > deadline:
                limit = f"{self.options.timeout_seconds} s (timeoutSeconds)"
                raise DriverError(
                    f"the bootstrap script of {host.name} is still running after {limit}. {host.last_output()}"
                )
            if runs:
                await asyncio.sleep(_LOOK_SECONDS)
        code = host.exit_code()
        if code != 0:
            how = "was killed" if code is None else f"ended with {code}"
            raise DriverError(f"the bootstrap script of {host.name} {how}. {host.last_output()}")

    async def _settled(self, host: ProcessHost, details: Details) -> Server:
        """Return whether a process of the host keeps running; one that calls exec is invisible for a moment."""
        for _ in range(_LOOKS):
            server = await do(_server, host, details)
            if server.state != "stopped":
                return server
            await asyncio.sleep(_LOOK_SECONDS)
        raise DriverError(f"the bootstrap script of {host.name} succeeded, but left no process running on the host")

    async def _stop(self, host: ProcessHost) -> None:
        """End every process of the host, by force if needed. It is done after two checks find none and the script's
        lock is free: a script that is just starting is not visible otherwise.
        """
        loop = asyncio.get_running_loop()
        started, quiet, hard = loop.time(), 0, False
        members = proc.HostProcesses(host.root)
        left = await do(members.end, hard=False)
        while left or quiet < 2:
            await asyncio.sleep(_LOOK_SECONDS)
            waited = loop.time() - started
            if waited > _LONGEST_END_SECONDS:
                which = ", ".join(map(str, left)) or "the process that starts its script"
                raise DriverError(f"processes of host {host.name} do not exit: {which}")
            if left and waited > _GRACE_SECONDS and not hard:
                self.context.say(f"killing {len(left)} processes of {host.name} that ignored SIGTERM")
                hard = True
            left = await do(members.end, hard=hard)
            starting = await do(host.script_runs)
            quiet = 0 if left or starting else quiet + 1


def _server(host: ProcessHost, details: Details) -> Server:
    return Server(
        id=details.name,
        name=details.name,
        state=host.state(),
        provider_id=f"process://{details.name}",
        addresses=[Address("InternalIP", details.address), Address("Hostname", details.hostname)],
        tags=details.tags,
    )
