"""`existing`: servers that you already own, managed over SSH and released as they were.

The driver creates no server: `create` claims one of the servers in the options, `remove` releases it. The claim is a
file on the server (`claims`), so that no other machine or management plane claims it too. The machine's record names
the server before it is claimed: a Job that was killed at any point continues with that server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import asyncssh
import msgspec

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.existing import claims, remote
from remuda.providers.shared.drivers.existing.claims import Claim
from remuda.providers.shared.drivers.existing.remote import Login, SshAddress
from remuda.providers.shared.drivers.spi import (
    Address,
    BadOptions,
    Driver,
    DriverError,
    Options,
    Order,
    Server,
    SshAccess,
)
from remuda.providers.shared.manager_address import is_address_here
from remuda.runtime.steps import step

TAKE = step("existingdriver.take-server", "the driver existing writes its claim on a server")
UNINSTALL = step("existingdriver.uninstall-agent", "the driver existing uninstalls the agent from a server")
RELEASE = step("existingdriver.release-server", "the driver `existing` removes its claim from a server")

_LOOK_SECONDS = 30.0
_UNINSTALL_SECONDS = 300.0
_SETTLE_SECONDS = 1.0  # a claim that was on its way when its Job was killed has arrived by then
_AT_A_TIME = 16


class ExistingOptions(Options):
    address: Annotated[str, Field("The server: host, host:port or [IPv6 address]:port.")] = ""
    addresses: Annotated[
        Sequence[str],
        Field("Several servers; the machine claims a free one.", list_type="atomic", max_items=1000),
    ] = ()
    ssh_user: Annotated[str, Field("SSH user. A user other than root needs sudo without a password.", min_length=1)] = (
        "root"
    )
    ssh_port: Annotated[int, Field("SSH port for addresses without a port.", minimum=1, maximum=65535)] = 22
    private_key: Annotated[str, Field("Private SSH key, in OpenSSH or PEM format.", format="password")] = ""
    host_keys: Annotated[
        Sequence[str],
        Field(
            "Host keys of the servers in OpenSSH format, each for all servers or prefixed with an address. Without "
            "any, "
            "the first key that a server shows is pinned.",
            list_type="atomic",
        ),
    ] = ()
    timeout_seconds: Annotated[int, Field("Connection timeout, in seconds.", minimum=1, maximum=300)] = 15


class ProbedServer(msgspec.Struct, frozen=True, kw_only=True):
    """Server that has answered, with its claim."""

    place: SshAddress
    hostname: str
    claim: Claim | None
    foreign: bool
    host_key: str

    @property
    def is_free(self) -> bool:
        return self.claim is None and not self.foreign

    @property
    def complaint(self) -> str:
        if self.claim is not None:
            return f"{self.place} is already claimed by {self.claim.machine}"
        return f"{self.place} runs an agent of another management server"


class Existing(Driver[ExistingOptions]):
    name: ClassVar[str] = "existing"
    doc: ClassVar[str] = (
        "Servers that already exist, over SSH. A machine claims a free server; when the machine is deleted, the agent "
        "is uninstalled and the server released. Needs an SSH key for root, or for a user with sudo."
    )
    options_type: ClassVar[type[ExistingOptions]] = ExistingOptions
    credential_fields: ClassVar[tuple[str, ...]] = ("privateKey",)
    address_options: ClassVar[tuple[str, ...]] = ("address", "addresses")
    user_data_format = "script"
    replaceable: ClassVar[bool] = False

    @classmethod
    def shares_loopback(cls, options: Mapping[str, Any]) -> bool:
        given = [options.get("address"), *(options.get("addresses") or ())]
        try:
            return all(is_address_here(remote.place(str(text), 22, "").host) for text in given if text)
        except BadOptions:
            return True  # the driver itself explains what is wrong with it

    @property
    def takes_user_data(self) -> bool:
        return False

    async def check(self, order: Order) -> None:
        self._places()
        for text in self.options.host_keys:
            remote.host_key(text)
        await self._login()

    async def create(self, order: Order, user_data: bytes) -> Server:
        await self.check(order)
        mine = await self._recorded_one(order)
        if mine is None:
            seen, complaints = await self._look_at_all()
            mine = _of(seen, order) or await self._take_one(order, seen, complaints)
        return self._server(mine)

    async def find(self, order: Order) -> Server | None:
        mine = await self._mine(order)
        return None if mine is None else self._server(mine)

    async def remove(self, order: Order) -> None:
        mine = await self._mine(order)
        if mine is None and self._recorded() is not None:
            await asyncio.sleep(_SETTLE_SECONDS)
            mine = await self._mine(order)
        if mine is not None:
            async with UNINSTALL:
                await self._do(mine, claims.uninstall(), "cannot uninstall the agent", _UNINSTALL_SECONDS)
            async with RELEASE:
                await self._do(mine, claims.release(), "cannot remove the claim", _LOOK_SECONDS)
            self.context.say(f"{mine.place} is released")
        if self.context.record.value:
            await self.context.record.save({})

    async def owned(self, owner: str) -> list[Server]:
        seen, _ = await self._look_at_all()
        return [self._server(each) for each in seen if each.claim is not None and each.claim.owner == owner]

    # Which one.

    async def _mine(self, order: Order) -> ProbedServer | None:
        """Return the server that carries this machine's claim."""
        recorded = await self._recorded_one(order)
        return recorded or _of((await self._look_at_all())[0], order)

    async def _recorded_one(self, order: Order) -> ProbedServer | None:
        """Return the server recorded as about to be claimed, if it carries the claim. It must answer."""
        recorded = self._recorded()
        return None if recorded is None else _of([await self._look(recorded)], order)

    async def _take_one(self, order: Order, seen: Sequence[ProbedServer], complaints: list[str]) -> ProbedServer:
        for each in _in_turn(seen, order.uid):
            if each.is_free:
                await self.context.record.save({"address": str(each.place), "hostKeys": [each.host_key]})
                async with TAKE:
                    each = await self._ask(each.place, claims.take(claims.of_order(order)))
                if _of([each], order):
                    self.context.say(f"claimed {each.place}; its host key is {_fingerprint(each.host_key)}")
                    return each
            complaints.append(each.complaint)
        if self.context.record.value:
            await self.context.record.save({})
        raise DriverError(f"no free server: {'; '.join(complaints)}")

    async def _look_at_all(self) -> tuple[list[ProbedServer], list[str]]:
        """Return the hosts that answer, and error messages for the others."""
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def look(place: SshAddress) -> ProbedServer | str:
            async with gate:
                try:
                    return await self._look(place)
                except DriverError as error:
                    return str(error)

        found = await asyncio.gather(*(look(place) for place in self._places()))
        return [each for each in found if isinstance(each, ProbedServer)], [
            each for each in found if isinstance(each, str)
        ]

    def _recorded(self) -> SshAddress | None:
        text = self.context.record.value.get("address")
        return remote.place(text, 22, "the recorded address") if text else None

    # -- requests to a server

    async def _look(self, place: SshAddress) -> ProbedServer:
        return await self._ask(place, claims.look())

    async def _ask(self, place: SshAddress, script: str) -> ProbedServer:
        answer = await remote.run(place, await self._login(), self._trusted(place), script, _LOOK_SECONDS)
        if answer.code:
            raise DriverError(f"{place}: the command failed: {remote.last_output(answer)}")
        try:
            sight = claims.read(answer.output)
        except claims.Unreadable as error:
            raise DriverError(f"{place}: {error}") from None
        return ProbedServer(
            place=place,
            hostname=sight.hostname,
            claim=sight.claim,
            foreign=sight.foreign,
            host_key=answer.host_key,
        )

    async def _do(self, seen: ProbedServer, script: str, failing: str, seconds: float) -> None:
        answer = await remote.run(seen.place, await self._login(), self._trusted(seen.place), script, seconds)
        if answer.code:
            raise DriverError(f"{seen.place}: {failing}: {remote.last_output(answer)}")

    # -- options

    def _places(self) -> list[SshAddress]:
        options = self.options
        given = [remote.place(text, options.ssh_port, "addresses") for text in options.addresses]
        if options.address:
            given.insert(0, remote.place(options.address, options.ssh_port, "address"))
        if not given:
            raise BadOptions("addresses: no server is given; set address or addresses")
        return list(dict.fromkeys(given))

    async def _login(self) -> Login:
        text = self.options.private_key or self.context.credentials.get("privateKey", "")
        key = await asyncio.to_thread(remote.private_key, text)  # a long RSA key takes its time to be checked
        options = self.options
        return Login(user=options.ssh_user, key=key, patience=float(options.timeout_seconds))

    def _trusted(self, place: SshAddress) -> list[asyncssh.SSHKey] | None:
        """Return the accepted host keys; None: any key."""
        if self.options.host_keys:
            known = [remote.host_key(text) for text in self.options.host_keys]
            return [key for address, key in known if address in ("", place.host, str(place))]
        if self._recorded() == place:
            return [remote.host_key(text)[1] for text in self.context.record.value.get("hostKeys", ())]
        return None

    def _server(self, seen: ProbedServer) -> Server:
        options = self.options
        kind: Any = "InternalIP" if seen.place.is_ip else "InternalDNS"
        access = SshAccess(
            user=options.ssh_user,
            port=seen.place.port,
            private_key=options.private_key or self.context.credentials.get("privateKey", ""),
            host_keys=[seen.host_key],
        )
        return Server(
            id=str(seen.place),
            name=seen.claim.name if seen.claim is not None else "",
            state="running",
            provider_id=f"existing://{seen.place}",
            addresses=[Address(kind, seen.place.host), Address("Hostname", seen.hostname)],
            ssh=access,
            tags=seen.claim.tags if seen.claim is not None else {},
        )


def _of(seen: Sequence[ProbedServer], order: Order) -> ProbedServer | None:
    """Return the server with the claim of this machine."""
    return next((each for each in seen if each.claim is not None and each.claim.uid == order.uid), None)


def _in_turn(seen: Sequence[ProbedServer], uid: str) -> Sequence[ProbedServer]:
    """Order the servers differently for each machine, so that concurrent machines do not all try the same one."""
    first = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4], "big") % max(1, len(seen))
    return [*seen[first:], *seen[:first]]


def _fingerprint(host_key: str) -> str:
    return asyncssh.import_public_key(host_key).get_fingerprint()
