"""What an agent makes of a plan."""

from __future__ import annotations

import calendar
import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.simulator import plans
from remuda.simulator.plans import Instruction, Probe, Result, Verdict

NOW = 1_767_225_600.0
PLAN = b'{"instructions": [ {"name":"a"} ]}'
SUM = hashlib.sha256(PLAN).hexdigest().encode()


def data(**keys: bytes) -> dict[str, bytes]:
    return {"plan": PLAN} | {name.replace("_", "-"): value for name, value in keys.items()}


def test_the_checksum_is_over_the_very_bytes() -> None:
    assert plans.checksum(PLAN).encode() == SUM
    assert plans.checksum(PLAN.replace(b" ", b"")).encode() != SUM


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, Verdict(True)),
        ({"applied_checksum": SUM}, Verdict(False)),
        ({"applied_checksum": b"other"}, Verdict(True)),
        ({"failure_count": b"2", "failed_checksum": b"other"}, Verdict(True)),
        ({"failure_count": b"x", "failed_checksum": SUM}, Verdict(True)),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"2"}, Verdict(False)),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"-1"}, Verdict(True)),
    ],
)
def test_when_a_plan_is_applied(keys: dict[str, bytes], expected: Verdict) -> None:
    assert plans.verdict(data(**keys), NOW, first_pass=False) == expected


def test_after_a_failure_there_is_a_pause() -> None:
    failed = data() | plans.failed(data(), {}, NOW)
    assert plans.verdict(failed, NOW + 10, first_pass=False) == Verdict(False, 20.0)
    assert plans.verdict(failed, NOW + 30, first_pass=False) == Verdict(True)


def test_an_agent_that_starts_applies_its_plan_again() -> None:
    assert plans.verdict(data(applied_checksum=SUM), NOW, first_pass=True) == Verdict(True)


def test_a_success_resets_failures_and_keeps_saved_outputs() -> None:
    before = data(failure_count=b"3", failed_checksum=SUM, success_count=b"1")
    before["applied-output"] = plans.pack({"old": "b2xk", "new": "b2xk"})
    written = plans.succeeded(before, {"new": b"news"}, NOW)
    assert written["applied-checksum"] == SUM
    assert (written["failure-count"], written["success-count"], written["failed-checksum"]) == (b"0", b"2", b"")
    assert plans.unpack(written["applied-output"]) == {"old": "b2xk", "new": "bmV3cw=="}
    assert written["last-apply-time"] == b"Thu Jan  1 00:00:00 UTC 2026"


def test_failures_of_one_plan_add_up_and_another_plan_starts_over() -> None:
    once = data() | plans.failed(data(), {}, NOW)
    twice = once | plans.failed(once, {}, NOW)
    assert (once["failure-count"], twice["failure-count"]) == (b"1", b"2")
    other = twice | {"plan": b"{}"}
    assert plans.failed(other, {}, NOW)["failure-count"] == b"1"


def test_periodic_instructions_are_due_by_their_period_and_by_their_failures() -> None:
    often = Instruction(name="p", period_seconds=60)
    assert plans.seconds_until(None, often, NOW) == 0
    well = plans.recorded(None, "p", Result(), NOW)
    assert plans.seconds_until(well, often, NOW + 10) == 50
    assert plans.seconds_until(well, Instruction(name="p"), NOW) == 600
    record, pauses = well, []
    for _ in range(8):
        record = plans.recorded(record, "p", Result(exit_code=1), NOW)
        pauses.append(plans.seconds_until(record, often, NOW))
    assert pauses == [30, 60, 90, 120, 150, 180, 180, 180]
    assert record["lastSuccessfulRunTime"] == well["lastSuccessfulRunTime"]
    assert plans.recorded(record, "p", Result(), NOW)["failures"] == 0


def test_probes_change_their_mind_at_thresholds() -> None:
    probe = Probe(success_threshold=2, failure_threshold=3)
    status: plans.Json = {}
    healthy = []
    for well in (True, True, False, False, False, True):
        status = plans.probed(status, probe, well)
        healthy.append(status.get("healthy", False))
    assert healthy == [False, True, True, True, False, False]
    assert plans.probed({}, Probe(), False) == {"failureCount": 1}
    assert plans.probed({}, Probe(), True) == {"healthy": True, "successCount": 1}


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4))
def test_outputs_are_packed_the_same_way_every_time(outputs: dict[str, str]) -> None:
    assert plans.unpack(plans.pack(outputs)) == outputs
    assert plans.pack(outputs) == plans.pack(dict(outputs))


@given(st.integers(0, 4_000_000_000))
def test_dates_are_read_as_they_are_written(seconds: int) -> None:
    text = plans.unix_date(seconds)
    assert calendar.timegm(time.strptime(text, "%a %b %d %H:%M:%S UTC %Y")) == seconds
    assert len(text) == len("Thu Jan  1 00:00:00 UTC 2026")
