"""Servers for the e2e tests. Each lives in a folder of its own and is gone when its test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.program import Running, serving
from tests.lab.clusters import NEWER, VERSION, Fleet

Launch = Callable[..., Running]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts a server on a data directory; every one that still runs is killed at the end."""
    with ExitStack() as servers:
        yield lambda data, *flags: servers.enter_context(serving(data, *flags))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path_factory.mktemp("bundles"), VERSION, NEWER)
        yield fleet
    finally:
        fleet.stop()
