"""Execution of one machine order by one driver: intent, server and script are each recorded before the next step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.providers.shared.drivers.spi import BadOptions, Context, Driver, DriverError, Order, Server
from remuda.providers.shared.jobs import login, user_data
from remuda.providers.shared.jobs.log_redaction import Scrubber
from remuda.providers.shared.jobs.state import StateSecret
from remuda.runtime.steps import step

RECORD_INTENT = step("machinejob.record-intent", "records that a server is about to be created")
FORGET = step("machinejob.forget-server", "drops the state of a server that was replaced by another one")
CREATE = step("machinejob.create-server", "the driver creates the server")
RECORD_SERVER = step("machinejob.record-server", "writes the created server to its state Secret")
PIN = step("machinejob.pin-host-key", "pins the first host key that a server presents")
BOOTSTRAP = step("machinejob.run-script", "runs the bootstrap script over SSH")
RECORD_BOOTSTRAP = step("machinejob.record-bootstrap", "records that the bootstrap script has succeeded")
REMOVE = step("machinejob.remove-server", "the driver removes the server")
RECORD_REMOVAL = step("machinejob.record-removal", "records that the server is removed")

_RUNNING_SECONDS = 600.0
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.2, 3.0

Say = Callable[[str], None]


class Job:
    """One order with its inputs."""

    def __init__(
        self, order: Order, driver: type[Driver[Any]], credentials: Mapping[str, str], client: Client, directory: Path,
        say: Say, scrubber: Scrubber,
    ) -> None:  # fmt: skip
        self._order = order
        self._type = driver
        self._credentials = credentials
        self._client = client
        self._directory = directory
        self._scrubber = scrubber
        self._say = say

    async def run(self, script: bytes) -> None:
        """Raises DriverError."""
        secret = await self._open_state()
        if self._order.action == "create":
            await self._create(self._driver(secret), secret, script)
            return
        try:
            await self._remove(self._driver(secret), secret)
        except BadOptions as error:
            if secret.state.phase:
                raise
            # No intent is recorded, so the driver has never sent a request with these options.
            self._say(f"no server was ever requested: {error}")

    async def _open_state(self) -> StateSecret:
        try:
            secret = await StateSecret.open(self._client, self._order)
        except (StatusError, ValueError) as error:
            raise DriverError(f"cannot read Secret {self._order.state_secret}: {error}") from None
        self._scrubber.add(secret.private_key)
        return secret

    def _driver(self, secret: StateSecret) -> Driver[Any]:
        context = Context(credentials=self._credentials, record=secret, say=self._say, directory=self._directory)
        return self._type(options(self._order, self._type), context)

    # create

    async def _create(self, driver: Driver[Any], secret: StateSecret, script: bytes) -> None:
        order = self._order
        await driver.check(order)
        # The intent comes before the request: after a kill in between, the removal knows that a server may exist.
        if secret.state.phase not in ("created", "bootstrapped"):
            await secret.note(RECORD_INTENT, driver=order.driver, phase="creating", name=order.name)
        self._say(f"requesting server {order.name} from driver {order.driver}")
        async with CREATE:
            server = await driver.create(order, self._user_data(driver, script))
        # This is another server than the recorded one: its host keys and its progress do not apply.
        if secret.state.id not in ("", server.id):
            await secret.forget(FORGET)
        await self._record(secret, driver, server)
        server = await self._until_running(driver, secret, server)
        if secret.state.phase == "bootstrapped":
            self._say("the bootstrap script has already run")
        elif server.bootstrapped:
            await secret.note(RECORD_BOOTSTRAP, phase="bootstrapped")
        elif not driver.takes_user_data:
            await self._bootstrap(secret, server, script)
        self._say(f"server {order.name} is created")

    def _user_data(self, driver: Driver[Any], script: bytes) -> bytes:
        if not driver.takes_user_data:
            return b""
        if driver.user_data_format == "script":
            return script
        own = getattr(driver.options, "userdata", "")
        return user_data.compose(script, self._order.hostname, own if isinstance(own, str) else "")

    async def _record(self, secret: StateSecret, driver: Driver[Any], server: Server) -> None:
        access = server.ssh
        pinned = ""
        if access is not None:
            self._scrubber.add(access.private_key)
            pinned = login.known_hosts(_login(server, secret))
        await secret.note(
            RECORD_SERVER,
            phase="bootstrapped" if secret.state.phase == "bootstrapped" else "created",
            id=server.id,
            name=server.name,
            provider_id=server.provider_id,
            addresses=list(server.addresses),
            failure_domain=server.failure_domain,
            ssh_user=access.user if access is not None else "",
            ssh_port=access.port if access is not None else 0,
            by_user_data=driver.takes_user_data and not server.bootstrapped,
            private_key=access.private_key if access is not None else "",
            known_hosts=pinned,
        )

    async def _until_running(self, driver: Driver[Any], secret: StateSecret, server: Server) -> Server:
        loop = asyncio.get_running_loop()
        deadline, delay, reported = loop.time() + _RUNNING_SECONDS, _FIRST_LOOK_SECONDS, ""
        while server.state != "running":
            if server.state == "failed":
                raise DriverError(f"server {server.name} ({server.id}) has failed")
            if loop.time() > deadline:
                raise DriverError(f"server {server.name} ({server.id}) is still {server.state} after 10 minutes")
            if server.state != reported:
                reported = server.state
                self._say(f"server {server.name} is {server.state}; waiting until it is running")
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LOOK_SECONDS)
            found = await driver.find(self._order)
            if found is None:
                raise DriverError(f"server {server.name} ({server.id}) disappeared while it was starting")
            server = msgspec.structs.replace(
                found, ssh=found.ssh or server.ssh, bootstrapped=found.bootstrapped or server.bootstrapped
            )
        await self._record(secret, driver, server)
        return server

    async def _bootstrap(self, secret: StateSecret, server: Server, script: bytes) -> None:
        if server.ssh is None:
            raise DriverError(f"driver {self._order.driver} reported no SSH access to server {server.name}")
        if not script:
            raise DriverError("no bootstrap script to run")

        async def pin(seen: login.Login) -> None:
            await secret.note(PIN, known_hosts=login.known_hosts(seen))

        from remuda.providers.shared.jobs import ssh  # takes a while, and most drivers do without

        async with BOOTSTRAP:
            await ssh.run_script(_login(server, secret), script, self._say, pin)
        await secret.note(RECORD_BOOTSTRAP, phase="bootstrapped")

    # remove

    async def _remove(self, driver: Driver[Any], secret: StateSecret) -> None:
        self._say(f"removing server {self._order.name} with driver {self._order.driver}")
        async with REMOVE:
            await driver.remove(self._order)
        await secret.note(RECORD_REMOVAL, phase="removed")
        self._say(f"server {self._order.name} is removed")


def _login(server: Server, secret: StateSecret) -> login.Login:
    """Return the SSH login that the driver reports for a server; missing keys come from the secret."""
    access = server.ssh
    if access is None:
        raise DriverError(f"cannot connect to server {server.name} over SSH")
    return login.Login(
        addresses=login.reachable(server.addresses),
        port=access.port,
        user=access.user,
        private_key=access.private_key or secret.private_key,
        host_keys=list(access.host_keys) or login.host_keys(secret.known_hosts),
    )


def options(order: Order, driver: type[Driver[Any]]) -> Any:
    """Return an order's options in the driver's type. Raises BadOptions that names the invalid option."""
    return convert(order.driver, order.options, driver.options_type)


def convert(driver: str, given: Mapping[str, Any], wanted: type[Any]) -> Any:
    """Raises BadOptions."""
    given = {name: value for name, value in given.items() if value is not None}
    if wanted is dict:
        return given
    known = set(wanted.__struct_encode_fields__)
    for name in given:
        if name not in known:
            raise BadOptions(f"driver {driver} has no option {name}")
    try:
        return msgspec.convert(given, wanted)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        name = where.rstrip("`").lstrip(".")
        raise BadOptions(f"{name}: {what[:1].lower()}{what[1:]}" if name else what) from None
