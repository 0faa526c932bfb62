"""The machine-state Secret: the state of a server, written by Jobs, read by the controller and by users.

It outlives every Job of its machine and is deleted with the machine. The private key is here and nowhere else. A Job
stores every change (`StateSecret`) before it continues.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS
from remuda.providers.shared.drivers.spi import Address, Order
from remuda.runtime.steps import Step, step

SAVE_RECORD = step("machinejob.save-record", "writes the driver's own record of its server")
SAVE_KEY = step("machinejob.save-private-key", "writes the private key of a server that is about to be created")

# Keys of the Secret's data.
STATE = "state"  # JSON of `State`
PRIVATE_KEY = "id_rsa"
KNOWN_HOSTS = "known_hosts"  # pinned host keys, as OpenSSH has them
EXTRACTED_CONFIG = "extractedConfig"  # the machine store of rancher-machine: a tar.gz it writes itself

Phase = Literal["", "creating", "created", "bootstrapped", "removed"]


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    driver: str = ""
    phase: Phase = ""  # bootstrapped: the script has ended well, as far as the Job can know (SSH)
    id: str = ""
    name: str = ""
    provider_id: str = ""
    addresses: Sequence[Address] = ()
    failure_domain: str = ""
    ssh_user: str = ""
    ssh_port: int = 0
    by_user_data: bool = False  # the server runs the script itself: only the first call of its agent proves that it did
    record: Mapping[str, Any] = {}  # the driver's own


def read(data: Mapping[str, bytes]) -> State:
    """Return the state in a Secret's data; an empty one if there is none. Raises ValueError if it cannot be decoded."""
    text = data.get(STATE, b"")
    if not text:
        return State()
    try:
        return msgspec.json.decode(text, type=State)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot decode the state of the machine: {error}") from None


def write(state: State) -> bytes:
    return msgspec.json.encode(state)


class StateSecret:
    """Writer of the state Secret; also the driver's `spi.Record`."""

    def __init__(self, client: Client, order: Order, data: Mapping[str, bytes]) -> None:
        self._client = client
        self._order = order
        self.state: State = read(data)
        self.private_key = data.get(PRIVATE_KEY, b"").decode("utf-8", "replace")
        self.known_hosts = data.get(KNOWN_HOSTS, b"").decode("utf-8", "replace")

    @classmethod
    async def open(cls, client: Client, order: Order) -> StateSecret:
        """Read the Secret of an order. Raises StatusError, and ValueError if it cannot be decoded."""
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
            data[STATE] = write(after)
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
        data = {STATE: base64.b64encode(write(blank)).decode(), KNOWN_HOSTS: None}
        async with act:
            await self._client.patch(SECRETS, *self._order.state_key, {"data": data})
        self.state, self.known_hosts = blank, ""
