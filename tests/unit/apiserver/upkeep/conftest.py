from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.apiserver.engine import Engine


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """With upkeep, and a namespace `ns`."""
    engine = await Engine.open(tmp_path / "data")
    await engine.namespace("ns")
    yield engine
    await engine.close()


@pytest.fixture
async def idle_engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """With everything but upkeep, which a test starts by a restart: what it finds is what a crash left."""
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await engine.namespace("ns")
    yield engine
    await engine.close()
