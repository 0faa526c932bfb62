"""The whole life of one machine as its user sees it, on `remuda up` as a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.ours import Ours
from tests.lab.process_machines import ProcessMachines
from tests.lab.server import tail


class Up(Ours):
    command = "up"


@pytest.fixture
def process_machines() -> Iterator[ProcessMachines]:
    up = Up()
    process_machines = ProcessMachines(up, up.data / "hosts", lambda: tail(up.log, 40))
    try:
        yield process_machines
        process_machines.clear()
    finally:
        up.stop()


def test_machine_becomes_managed_host_and_deletion_leaves_nothing(process_machines: ProcessMachines) -> None:
    process_machines.apply_example()
    process_machines.becomes_a_host("horse")
    process_machines.follows_a_plan("horse")
    process_machines.delete_machine("horse")
    process_machines.has_nothing_left("horse")
