from __future__ import annotations

import pytest

from remuda.capi.machineset import health
from tests.unit.capi.machineset.herd import good, machine


@pytest.mark.parametrize(
    ("conditions", "node", "healthy"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NodeHealthy": False}, True, False),
        ({"HealthCheckSucceeded": False}, True, False),
        ({"NodeHealthy": True, "HealthCheckSucceeded": True}, True, True),
    ],
)
def test_healthy(conditions: dict[str, bool], node: bool, healthy: bool) -> None:
    assert health.is_healthy(machine(conditions=conditions, node=node)) is healthy


def test_available() -> None:
    assert health.is_available(good())
    assert not health.is_available(machine())
    assert not health.is_available(machine(conditions={"Available": False}))


def test_one_being_deleted_counts_neither_as_ready_nor_as_available() -> None:
    leaving = good(deleted="2026-01-01T00:00:00Z")
    assert not health.is_available(leaving)
    assert not health.is_ready(leaving)
    assert health.is_ready(good())


def test_one_that_failed_its_check_is_not_available_whatever_it_says() -> None:
    assert not health.is_available(machine(conditions={"Available": True, "HealthCheckSucceeded": False}))


def test_up_to_date() -> None:
    assert health.is_up_to_date(good())
    assert not health.is_up_to_date(machine())
