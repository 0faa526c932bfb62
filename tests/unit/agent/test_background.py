"""What goes on beside a plan."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

import pytest

from remuda.agent import background, formats, rules
from remuda.agent.background import Periodic
from remuda.agent.channel import PlanRevision
from remuda.agent.config import Config
from remuda.agent.plan import Instruction, Plan
from tests.lab.limits import LIMIT_SECONDS

BASIS = PlanRevision("uid", "checksum")
PLAN = Plan(periodic_instructions=[Instruction(name="look", command="true", period_seconds=3600)])


def test_unstartable_periodic_instructions_are_retried_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full, or gone: nobody is served by an agent that tries as often as it can."""
    monkeypatch.setattr(background, "_AGAIN_SECONDS", LIMIT_SECONDS)
    place = tmp_path / "work"
    place.write_text("no folder can be made here")
    told: queue.Queue[formats.Json | None] = queue.Queue()
    config = Config(work_directory=str(place / "below"))
    periodic = Periodic(config, threading.Event(), lambda basis, found: told.put(found))
    periodic.all_due = True
    assert periodic.run_due(PLAN, BASIS, {}) is None
    assert told.get(timeout=LIMIT_SECONDS) is None
    periodic.ended(BASIS, None)
    left = periodic.run_due(PLAN, BASIS, {})
    assert left is not None
    assert left > 0
    assert not periodic.busy
    place.unlink()
    periodic._not_before = 0.0  # as time passes
    just_now = rules.recorded(None, PLAN.periodic_instructions[0], rules.Result(0, b"", b""), time.time())
    assert periodic.run_due(PLAN, BASIS, {"look": just_now}) is None  # the plan has just been applied, still
    found = told.get(timeout=LIMIT_SECONDS)
    assert found is not None
    assert found["look"]["exitCode"] == 0
    periodic.ended(BASIS, found)
    assert not periodic.all_due
