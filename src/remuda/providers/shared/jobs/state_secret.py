"""The machine-state Secret as a Job writes it: every change is stored before the Job continues."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS
from remuda.providers.shared.drivers.spi import Order
from remuda.providers.shared.jobs import state
from remuda.providers.shared.jobs.state import KNOWN_HOSTS, PRIVATE_KEY, STATE, State
from remuda.runtime.steps import Step, step

SAVE_RECORD = step("machinejob.save-record", "writes the driver's own record of its server")

SAVE_KEY = step("machinejob.save-private-key", "writes the private key of a server that is about to be created")


class Notebook:
    """Writer of the state Secret; also the driver's `spi.Record`."""

    def __init__(self, client: Client, order: Order, data: Mapping[str, bytes]) -> None:
        self._client = client
        self._order = order
        self.state: State = state.read(data)
        self.private_key = data.get(PRIVATE_KEY, b"").decode("utf-8", "replace")
        self.known_hosts = data.get(KNOWN_HOSTS, b"").decode("utf-8", "replace")

    @classmethod
    async def open(cls, client: Client, order: Order) -> Notebook:
        """Raises StatusError, and ValueError for what is not a state."""
        value = await client.get(SECRETS, *order.state_key)
        return cls(client, order, SECRET.decode(value).data)

    @property
    def value(self) -> Mapping[str, Any]:
        return self.state.record

    async def save(self, value: Mapping[str, Any]) -> None:
        await self.note(SAVE_RECORD, record=dict(value))

    async def save_private_key(self, private_key: str) -> None:
        await self.note(SAVE_KEY, private_key=private_key)

    async def note(self, act: Step, *, private_key: str = "", known_hosts: str = "", **changes: Any) -> None:
        """Write changed fields to the Secret; no request if nothing changed."""
        after = msgspec.structs.replace(self.state, **changes)
        data: dict[str, bytes] = {}
        if after != self.state:
            data[STATE] = state.write(after)
        if private_key and private_key != self.private_key:
            data[PRIVATE_KEY] = private_key.encode()
        if known_hosts and known_hosts != self.known_hosts:
            data[KNOWN_HOSTS] = known_hosts.encode()
        if not data:
            return
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        async with act:
            await self._client.patch(SECRETS, *self._order.state_key, {"data": encoded})
        self.state = after
        self.private_key = private_key or self.private_key
        self.known_hosts = known_hosts or self.known_hosts

    async def forget(self, act: Step) -> None:
        """Drop the recorded state and host keys: the server was replaced by another one."""
        blank = State(driver=self.state.driver, phase="creating", name=self.state.name, record=self.state.record)
        data = {STATE: base64.b64encode(state.write(blank)).decode(), KNOWN_HOSTS: None}
        async with act:
            await self._client.patch(SECRETS, *self._order.state_key, {"data": data})
        self.state, self.known_hosts = blank, ""
