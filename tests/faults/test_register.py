"""No step is without a suite that kills at it, and no suite is named that is not there."""

from __future__ import annotations

from pathlib import Path

from tests.faults import register

_ROOT = Path(__file__).parent.parent.parent


def test_every_crash_step_has_a_test_suite() -> None:
    assert [step.name for step in register.steps() if not register.place(step)] == []


def test_every_registered_suite_exists_and_has_steps() -> None:
    taken = {
        max((one for one in register.PLACES if step.name.startswith(one)), key=len, default="")
        for step in register.steps()
    }
    assert set(register.PLACES) - taken == set(), "no step begins like this any more"
    assert [place for place in set(register.PLACES.values()) if not (_ROOT / place).exists()] == []
