"""One API server for all tests of the agent as a process; each has a Secret and a host of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab.ours import Ours
from tests.unit.agent.host import Host, PlanSecret, account, host

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Ours]:
    found = Ours()
    yield found
    found.stop()


class Pair(NamedTuple):
    secret: PlanSecret
    host: Host


@pytest.fixture
def secret(server: Ours) -> PlanSecret:
    return PlanSecret(server, f"host-{next(_numbers)}")


@pytest.fixture
def pair(server: Ours, secret: PlanSecret, tmp_path: Path) -> Iterator[Pair]:
    """The Secret exists and is empty; the agent is not started yet."""
    secret.create()
    with host(tmp_path / "host", account(server, secret.name), secret.name) as found:
        yield Pair(secret, found)
