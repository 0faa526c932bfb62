"""A herd of hosts that ends with its test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lab.nano import Herd


@pytest.fixture
async def herd(tmp_path: Path) -> AsyncIterator[Herd]:
    herd = Herd(tmp_path)
    try:
        yield herd
    finally:
        await herd.close()
