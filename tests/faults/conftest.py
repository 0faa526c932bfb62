"""Random campaigns: their seed, their length, and the record of what was run.

    make faults                      short campaigns with a new seed each time: what the gate runs
    make faults ROUNDS=full          each campaign at its full length; or a number of rounds for each of them
    REMUDA_SEED=7 REMUDA_ROUNDS=1 pytest -s tests/faults/tunnel/test_campaign.py        repeat one seed

A short campaign runs at least one round, and starts no further one once it has run for `SHARE_SECONDS`: a slow machine
runs fewer rounds, and the gate does not get longer. Seed, rounds run and rounds of the full campaign are printed at the
end of every test run, so that nobody believes that more was run than was. Kills at named points are not random: they
are always run whole.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.lab.reported import properties

SHARE_SECONDS = 30.0  # of a short campaign; what has begun by then still ends, within two minutes
_PROPERTY = "campaign"


class Campaign:
    def __init__(self) -> None:
        self.seed = _requested_seed() or random.SystemRandom().randrange(1_000_000)
        self._deadline = time.monotonic() + SHARE_SECONDS
        self._planned = 0
        self.done = 0  # rounds that were run
        self.notes: list[str] = []  # of rounds, for the end of the run
        self._full = 0

    def use_seed(self, seed: int) -> None:
        """Run with this seed every time, unless the user requested another one."""
        self.seed = _requested_seed() or seed

    @property
    def chance(self) -> random.Random:
        return random.Random(self.seed)

    @property
    def short(self) -> bool:
        """Return whether this is a share of the gate: nobody has asked for a number of rounds."""
        return not _requested_rounds()

    def note(self, text: str) -> None:
        """Print what a round came to, now and at the end of the run."""
        print(text)
        self.notes.append(text)

    def plan(self, short: int, full: int) -> int:
        """Return how many rounds to run, unless `is_over` ends them early; set `done` to how many were run."""
        asked = _requested_rounds()
        self._planned = full if asked == "full" else int(asked or short)
        self._full = full
        if asked:
            self._deadline = float("inf")
        return self._planned

    def is_over(self) -> bool:
        """Return whether the time share is used up; never before one round was run, however slow the machine is."""
        return self.done > 0 and time.monotonic() > self._deadline

    def rounds(self, short: int, full: int) -> Iterator[int]:
        """Yield the number of each round; at least one."""
        for number in range(self.plan(short, full)):
            if self.is_over():
                return
            yield number
            self.done = number + 1

    def __str__(self) -> str:
        return f"REMUDA_SEED={self.seed}, {self.done} of {self._planned} rounds (full: {self._full})"


@pytest.fixture
def campaign(record_property: Callable[[str, object], None]) -> Iterator[Campaign]:
    campaign = Campaign()
    yield campaign
    print(campaign)
    record_property(_PROPERTY, "\n  ".join([str(campaign), *campaign.notes]))


def _requested_seed() -> int:
    return int(os.environ.get("REMUDA_SEED") or 0)


def _requested_rounds() -> str:
    return os.environ.get("REMUDA_ROUNDS", "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found := properties(terminalreporter, _PROPERTY):
        terminalreporter.section("random campaigns")
        for nodeid, text in sorted(found):
            terminalreporter.write_line(f"{nodeid}: {text}")
