from __future__ import annotations

import pytest

from remuda.capi.machineset import members
from tests.unit.capi.machineset.objects import good, machine


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
def test_machine_is_healthy_with_node_and_no_failed_conditions(
    conditions: dict[str, bool], node: bool, healthy: bool
) -> None:
    assert members.is_healthy(machine(conditions=conditions, node=node)) is healthy


def test_machine_availability_requires_available_condition() -> None:
    assert members.is_available(good())
    assert not members.is_available(machine())
    assert not members.is_available(machine(conditions={"Available": False}))


def test_deleting_machine_is_neither_ready_nor_available() -> None:
    leaving = good(deleted="2026-01-01T00:00:00Z")
    assert not members.is_available(leaving)
    assert not members.is_ready(leaving)
    assert members.is_ready(good())


def test_machine_with_failed_health_check_is_not_available() -> None:
    assert not members.is_available(machine(conditions={"Available": True, "HealthCheckSucceeded": False}))


def test_machine_up_to_date_requires_its_condition() -> None:
    assert members.is_up_to_date(good())
    assert not members.is_up_to_date(machine())
