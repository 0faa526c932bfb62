"""The whole story of one machine as its user sees it, on `remuda up` as a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.ours import Ours
from tests.lab.prairie import Prairie
from tests.lab.server import tail


class Up(Ours):
    command = "up"


@pytest.fixture
def prairie() -> Iterator[Prairie]:
    up = Up()
    prairie = Prairie(up, up.data / "hosts", lambda: tail(up.log, 40))
    try:
        yield prairie
        prairie.clear()
    finally:
        up.stop()


def test_machine_becomes_managed_host_and_deletion_leaves_nothing(prairie: Prairie) -> None:
    prairie.apply_example()
    prairie.becomes_a_host("horse")
    prairie.follows_a_plan("horse")
    prairie.delete_machine("horse")
    prairie.has_nothing_left("horse")
