"""One order for a cluster as a whole, carried out by one driver, in the same program as orders for machines.

What is intended is in the cluster-state Secret before the infrastructure is asked, and what came of it right after; it
may be killed anywhere and is then started anew.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from remuda.kube.client import Client
from remuda.kube.core import SECRET, SECRETS
from remuda.kube.errors import StatusError
from remuda.providers.shared.drivers.spi import (
    BadOptions,
    ClusterDriver,
    ClusterEndpoint,
    ClusterInfrastructure,
    ClusterOrder,
    Context,
    DriverError,
)
from remuda.providers.shared.jobs.execution import convert
from remuda.providers.shared.jobs.log_redaction import Scrubber
from remuda.providers.shared.jobs.state import PRIVATE_KEY, STATE
from remuda.runtime.steps import Step, step

RECORD_INTENT = step("clusterjob.record-intent", "records that a cluster's infrastructure is about to be created")
ENSURE = step("clusterjob.ensure", "the driver creates or updates a cluster's infrastructure")
RECORD = step("clusterjob.record", "writes a cluster's infrastructure to its state Secret")
REMOVE = step("clusterjob.remove", "the driver removes a cluster's infrastructure")
RECORD_REMOVAL = step("clusterjob.record-removal", "records that a cluster's infrastructure is removed")
SAVE = step("clusterjob.save-record", "writes the driver's own record of a cluster's infrastructure")
SAVE_KEY = step("clusterjob.save-private-key", "writes a private key of a cluster's infrastructure")

Phase = Literal["", "creating", "created", "removed"]
Say = Callable[[str], None]


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """In the cluster-state Secret, under `state`."""

    driver: str = ""
    phase: Phase = ""
    id: str = ""
    name: str = ""
    endpoint: ClusterEndpoint | None = None
    network: Mapping[str, str] = {}
    record: Mapping[str, Any] = {}  # the driver's own


def read(data: Mapping[str, bytes]) -> ClusterState:
    """Raises ValueError for what is not a state."""
    try:
        return msgspec.json.decode(data.get(STATE) or b"{}", type=ClusterState)
    except msgspec.MsgspecError as error:
        raise ValueError(f"cannot decode the state of the cluster: {error}") from None


class ClusterStateSecret:
    """The cluster-state Secret as a Job keeps it. Implements `spi.Record` for the driver's own part of it."""

    def __init__(self, client: Client, order: ClusterOrder, data: Mapping[str, bytes]) -> None:
        self._client = client
        self._order = order
        self.state = read(data)
        self.private_key = data.get(PRIVATE_KEY, b"").decode("utf-8", "replace")

    @property
    def value(self) -> Mapping[str, Any]:
        return self.state.record

    async def save(self, value: Mapping[str, Any]) -> None:
        await self.note(SAVE, record=dict(value))

    async def save_private_key(self, private_key: str) -> None:
        if private_key != self.private_key:
            await self._write(SAVE_KEY, PRIVATE_KEY, private_key.encode())
            self.private_key = private_key

    async def note(self, act: Step, **changes: Any) -> None:
        """Write changed fields to the Secret; no request if nothing changed."""
        after = msgspec.structs.replace(self.state, **changes)
        if after != self.state:
            await self._write(act, STATE, msgspec.json.encode(after))
            self.state = after

    async def _write(self, act: Step, key: str, content: bytes) -> None:
        data = {key: base64.b64encode(content).decode()}
        async with act:
            await self._client.patch(SECRETS, *self._order.state_key, {"data": data})


class ClusterJob:
    """One order with its inputs."""

    def __init__(
        self, order: ClusterOrder, driver: type[ClusterDriver[Any]], credentials: Mapping[str, str], client: Client,
        directory: Path, say: Say, scrubber: Scrubber,
    ) -> None:  # fmt: skip
        self._order = order
        self._type = driver
        self._credentials = credentials
        self._client = client
        self._directory = directory
        self._say = say
        self._scrubber = scrubber

    async def run(self) -> None:
        """Raises DriverError."""
        notes = await self._notes()
        try:
            context = Context(credentials=self._credentials, record=notes, say=self._say, directory=self._directory)
            driver = self._type(convert(self._order.driver, self._order.options, self._type.options_type), context)
            if self._order.action == "ensure":
                await self._ensure(driver, notes)
            else:
                await self._remove(driver, notes)
        except BadOptions as error:
            if self._order.action == "ensure" or notes.state.phase:
                raise
            # No intent is recorded, so the driver has never sent a request with these options.
            self._say(f"no infrastructure was ever requested: {error}")

    async def _notes(self) -> ClusterStateSecret:
        order = self._order
        try:
            value = await self._client.get(SECRETS, *order.state_key)
            notes = ClusterStateSecret(self._client, order, SECRET.decode(value).data)
        except (StatusError, ValueError) as error:
            raise DriverError(f"cannot read Secret {order.state_secret}: {error}") from None
        self._scrubber.add(notes.private_key)
        return notes

    async def _ensure(self, driver: ClusterDriver[Any], notes: ClusterStateSecret) -> None:
        order = self._order
        await driver.check(order)
        if notes.state.phase != "created":
            await notes.note(RECORD_INTENT, driver=order.driver, phase="creating", name=order.name)
        async with ENSURE:
            made: ClusterInfrastructure = await driver.ensure(order)
        await notes.note(
            RECORD, phase="created", id=made.id, name=made.name, endpoint=made.endpoint, network=dict(made.network)
        )

    async def _remove(self, driver: ClusterDriver[Any], notes: ClusterStateSecret) -> None:
        async with REMOVE:
            await driver.remove(self._order)
        await notes.note(RECORD_REMOVAL, phase="removed")
        self._say(f"the infrastructure of cluster {self._order.cluster} is removed")
