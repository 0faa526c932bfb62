"""Driver under test, and a view of its infrastructure that does not depend on the driver.

Statements about the infrastructure must come from the infrastructure itself: its own API, its directories, its
processes. A subject that asked the driver would repeat the driver's errors.
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

# With characters that are easily lost on the way, also at the end.
_USER_DATA = (
    b"#!/bin/sh\n# \xc3\xa9t\xc3\xa9, a tab\there, $HOME `not run` \\n, a line that ends in Windows\r\nexit 0\n\n"
)


class Subject:
    """Driver under test, one per test: every test starts with empty infrastructure. `directory` is private
    to the test.
    """

    driver: ClassVar[type[Driver[Any]]]
    options: Mapping[str, Any] = {}  # valid ones, by their JSON names
    credentials: Mapping[str, str] = {}
    secrets: Sequence[str] = ()  # texts that must never be printed: credentials, keys
    user_data: bytes = _USER_DATA  # user data that the servers of this driver can start with
    bad_options: Mapping[str, Mapping[str, Any]] = {}  # option → options that are invalid because of it
    boot_seconds: float = 10.0  # until a server runs
    capacity: int = 3  # maximum number of servers at a time
    by_the_clock: Sequence[float] = (0.2, 0.5, 0.8)  # also killed after these shares of a create's duration

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self._numbers = itertools.count(1)

    async def servers(self) -> Sequence[str]:
        """Return the ids of all servers."""
        raise NotImplementedError

    async def things(self) -> Sequence[str]:
        """Return everything that drivers have created: servers, and their keys, directories and processes."""
        return await self.servers()

    async def received(self, server: Server) -> bytes:
        """Return the user data as the server received it. Not called for a driver that takes none."""
        raise NotImplementedError

    def refusing(self) -> AbstractAsyncContextManager[None] | None:
        """Return a context in which the infrastructure refuses every request; None: it never does."""
        return None

    # -- derived by the tests

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
        """Return a driver as a Job creates it: new, knowing only the recorded state."""
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
