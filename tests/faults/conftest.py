"""How many rounds a campaign runs: `pytest tests/faults --rounds=300`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=300, help="rounds of each fault campaign")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("rounds", 300))
