"""Real hosts. Root on Linux; elsewhere they skip and say so, and fail in CI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lab.hosts import Network, a_network


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    async with a_network(tmp_path) as network:
        yield network
