"""A cluster's whole life on hosts that are processes: one server and its worker. The same with three servers and two
workers is in tests/e2e/test_scenarios.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster_life import live
from tests.lab.clusters import NEWER, VERSION, Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path, VERSION, NEWER)
        yield fleet
    finally:
        fleet.stop()


def test_declared_cluster_keeps_its_machines_until_deleted(fleet: Fleet) -> None:
    live(fleet, "prairie", servers=1, workers=1)
