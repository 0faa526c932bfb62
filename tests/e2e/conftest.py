"""Servers for the e2e tests. Each lives in a folder of its own and is gone when its test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.program import Running, serving

Launch = Callable[..., Running]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts a server on a data directory; every one that still runs is killed at the end."""
    with ExitStack() as servers:
        yield lambda data, *flags: servers.enter_context(serving(data, *flags))
