"""Hosts of nano that end with their test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lab.nano import NanoHosts


@pytest.fixture
async def nano_hosts(tmp_path: Path) -> AsyncIterator[NanoHosts]:
    nano_hosts = NanoHosts(tmp_path)
    try:
        yield nano_hosts
    finally:
        await nano_hosts.close()
