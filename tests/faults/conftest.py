"""Campaigns of chance: what decides one, and what was run of it.

    make faults                      short ones, with a new seed each time: what the gate runs
    make faults ROUNDS=full          each at its full length; or a number of rounds, for each of them
    REMUDA_SEED=7 REMUDA_ROUNDS=1 pytest -s tests/faults/tunnel/test_campaign.py        the same chance again

The seed and the number of rounds of each are printed at the end of a run, whatever came of it, so that nobody believes
that more was run than was. What is no matter of chance, as a kill at every named point, is always whole.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

_TOLD = "campaign"


class Campaign:
    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seed = _asked_for() or random.SystemRandom().randrange(1_000_000)
        self._tell = tell

    def usually(self, seed: int) -> None:
        """The same chance every time, unless another was asked for."""
        self.seed = _asked_for() or seed

    @property
    def chance(self) -> random.Random:
        return random.Random(self.seed)

    def rounds(self, short: int, full: int) -> int:
        """How many this run has."""
        asked = os.environ.get("REMUDA_ROUNDS")
        chosen = full if asked == "full" else int(asked or short)
        self._tell(f"REMUDA_SEED={self.seed}, {chosen} rounds (full: {full})")
        return chosen


@pytest.fixture
def campaign(record_property: Callable[[str, object], None]) -> Campaign:
    def tell(text: str) -> None:
        print(text)
        record_property(_TOLD, text)

    return Campaign(tell)


def _asked_for() -> int:
    return int(os.environ.get("REMUDA_SEED") or 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = {
        f"{report.nodeid}: {text}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, text in report.user_properties
        if name == _TOLD
    }
    if told:
        terminalreporter.section("campaigns of chance")
        terminalreporter.write_line("\n".join(sorted(told)))
