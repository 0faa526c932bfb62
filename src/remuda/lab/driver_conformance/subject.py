"""A driver under test, and the infrastructure as somebody sees it who does not ask the driver.

What is said here of the infrastructure must come from the infrastructure: an API of its own, its directories, its
processes. A subject that asked the driver would believe whatever the driver believes.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from remuda.lab.driver_conformance.worker import FileRecord
from remuda.providers.shared.drivers.spi import Context, Driver, Order, Server

# With all that is easily lost on the way, also at the end.
_USER_DATA = (
    b"#!/bin/sh\n# \xc3\xa9t\xc3\xa9, a tab\there, $HOME `not run` \\n, a line that ends in Windows\r\nexit 0\n\n"
)


class Subject:
    """One per test: every test finds the infrastructure empty. `directory` is the test's own."""

    driver: ClassVar[type[Driver[Any]]]
    options: Mapping[str, Any] = {}  # good ones, by their JSON names
    credentials: Mapping[str, str] = {}
    secrets: Sequence[str] = ()  # whatever must never be printed: credentials, keys
    user_data: bytes = _USER_DATA  # something the servers of this driver can start with
    bad_options: Mapping[str, Mapping[str, Any]] = {}  # option → options that are bad because of it
    boot_seconds: float = 10.0  # until a server runs
    capacity: int = 3  # how many servers there can be at a time
    by_the_clock: Sequence[float] = (0.2, 0.5, 0.8)  # also killed after so much of the time a create takes

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self._numbers = itertools.count(1)

    async def servers(self) -> Sequence[str]:
        """Ids of all servers there are."""
        raise NotImplementedError

    async def things(self) -> Sequence[str]:
        """Everything that drivers have made: servers, and keys, directories, processes that belong to them."""
        return await self.servers()

    async def received(self, server: Server) -> bytes:
        """The user data as the server has got it. Not asked of a driver that takes none."""
        raise NotImplementedError

    def refusing(self) -> AbstractAsyncContextManager[None] | None:
        """The infrastructure says no to whatever is asked of it; None: this one never does."""
        return None

    # What the tests make of it.

    def order(self, **changes: Any) -> Order:
        number = next(self._numbers)
        base = Order(
            driver=self.driver.name,
            action="create",
            name=f"conformance-{number}",
            hostname=f"conformance-{number}",
            namespace="default",
            machine=f"conformance-{number}",
            uid=str(uuid.uuid4()),
            cluster="conformance",
            owner="0a3c5f8e-conformance",
            options=self.options,
        )
        return msgspec.structs.replace(base, **changes)

    def record(self, order: Order, *, lost: bool = False) -> FileRecord:
        """Return what an earlier Job of the same machine has recorded, unless that was lost."""
        path = self.directory / "records" / f"{order.uid}.json"
        record = FileRecord(path)
        if lost:
            record.lose()
        return record

    def act(self, order: Order, *, lost: bool = False) -> Driver[Any]:
        """A driver as a Job has it: new, knowing only what is recorded."""
        options = msgspec.convert(dict(order.options), self.driver.options_type)
        context = Context(
            credentials=self.credentials,
            record=self.record(order, lost=lost),
            say=self.said.append,
            directory=self.hosts,
        )
        return self.driver(options, context)

    @property
    def hosts(self) -> Path:
        path = self.directory / "hosts"
        path.mkdir(exist_ok=True, mode=0o700)
        return path
