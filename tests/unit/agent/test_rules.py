"""When a plan is applied, and what is written about it."""

from __future__ import annotations

import base64
import calendar
import gzip
import hashlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import formats, rules
from remuda.agent.plan import Instruction, Probe
from remuda.agent.rules import ApplyDecision, Result

NOW = 1_767_225_600.0
DATE = "Thu Jan  1 00:00:00 UTC 2026"
PLAN = b'{"instructions": [ {"name":"a"} ]}'
SUM = hashlib.sha256(PLAN).hexdigest().encode()
FIRST = ApplyDecision(True, attempt=1, attempt_id="attempt-1")
THIRD = ApplyDecision(True, attempt=3, attempt_id="attempt-3")


def data(**keys: bytes) -> dict[str, bytes]:
    return {"plan": PLAN} | {name.replace("_", "-"): value for name, value in keys.items()}


def test_plan_checksum_covers_exact_bytes() -> None:
    assert rules.checksum(PLAN).encode() == SUM
    assert rules.checksum(PLAN.replace(b" ", b"")).encode() != SUM


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, FIRST),
        ({"applied_checksum": SUM}, ApplyDecision(False)),
        ({"applied_checksum": b"other"}, FIRST),
        ({"applied_checksum": b""}, FIRST),
        ({"failure_count": b"2", "failed_checksum": b"other"}, FIRST),
        ({"failure_count": b"x", "failed_checksum": SUM}, FIRST),
        ({"failure_count": b"2", "failed_checksum": SUM}, THIRD),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"2"}, ApplyDecision(False)),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"3"}, THIRD),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"-1"}, THIRD),
        ({"failure_count": b"2", "failed_checksum": SUM, "max_failures": b"many"}, THIRD),
        ({"failure_count": b"2", "failed_checksum": SUM, "last_apply_time": DATE.encode()}, ApplyDecision(False, 30.0)),
        ({"failure_count": b"2", "failed_checksum": SUM, "last_apply_time": b"yesterday"}, THIRD),
        ({"plan_state": b"pending"}, ApplyDecision(False, claim=True, attempt_id="revision-1")),
        ({"plan_state": b"pending", "plan_revision": b"4"}, ApplyDecision(False, claim=True, attempt_id="revision-5")),
        ({"plan_state": b"in-progress", "plan_revision": b"4"}, ApplyDecision(True, attempt_id="revision-4")),
        (
            {"plan_state": b"in-progress", "plan_revision": b"4", "failure_count": b"2", "failed_checksum": SUM},
            ApplyDecision(True, attempt=1, attempt_id="revision-4"),
        ),
        ({"plan_state": b"succeeded"}, ApplyDecision(False)),
        ({"plan_state": b"failed", "failure_count": b"1", "failed_checksum": SUM}, ApplyDecision(False)),
        ({"plan_state": b"cancelled"}, ApplyDecision(False)),
    ],
)
def test_verdict_decides_whether_plan_is_applied(keys: dict[str, bytes], expected: ApplyDecision) -> None:
    assert rules.verdict(data(**keys), NOW) == expected


def test_failed_plan_is_retried_after_a_pause() -> None:
    failed = data() | rules.failed(data(), {}, NOW)
    assert rules.verdict(failed, NOW + 10) == ApplyDecision(False, 20.0)
    assert rules.verdict(failed, NOW + 30).apply


@given(st.floats(min_value=1, max_value=1e9))
def test_last_apply_time_in_the_future_does_not_delay(ahead: float) -> None:
    failed = data() | rules.failed(data(), {}, NOW + ahead)
    assert rules.verdict(failed, NOW).apply
    record = rules.recorded(None, Instruction(name="p"), Result(), NOW + ahead + 1)
    assert rules.seconds_until(record, Instruction(name="p"), NOW) == 0


def test_success_resets_failures_and_keeps_saved_outputs() -> None:
    before = data(failure_count=b"3", failed_checksum=SUM, success_count=b"1", failed_message=b"no")
    before["applied-output"] = formats.pack({"old": "b2xk", "new": "b2xk"})
    written = rules.succeeded(before, {"new": b"news"}, NOW)
    assert written["applied-checksum"] == SUM
    assert (written["failure-count"], written["success-count"], written["failed-checksum"]) == (b"0", b"2", b"")
    assert written["failed-message"] == b""
    assert json.loads(gzip.decompress(written["applied-output"])) == {"old": "b2xk", "new": "bmV3cw=="}
    assert written["last-apply-time"] == DATE.encode()
    assert "plan-state" not in written
    assert rules.succeeded(before | {"plan-state": b"in-progress"}, {}, NOW)["plan-state"] == b"succeeded"


def test_failure_count_accumulates_per_plan_and_resets_for_new_plan() -> None:
    once = data() | rules.failed(data(), {"a": b"1"}, NOW, "first")
    twice = once | rules.failed(once, {"b": b"2"}, NOW, "second")
    assert (once["failure-count"], twice["failure-count"]) == (b"1", b"2")
    assert formats.unpack(twice["failed-output"]) == {"a": "MQ==", "b": "Mg=="}
    assert twice["failed-message"] == b"second"
    other = twice | {"plan": b"{}"}
    assert rules.failed(other, {}, NOW)["failure-count"] == b"1"
    assert formats.unpack(rules.failed(other, {}, NOW)["failed-output"]) == {}
    assert rules.failed(data(plan_state=b"in-progress"), {}, NOW)["plan-state"] == b"failed"


def test_return_to_applied_plan_clears_failures_of_other_plan() -> None:
    tried = data(applied_checksum=SUM, failure_count=b"2", failed_checksum=b"other", failed_output=b"x")
    assert rules.settled(tried) == {"failure-count": b"0", "failed-checksum": b"", "failed-output": b""}
    assert rules.settled(data(applied_checksum=SUM)) == {}
    assert rules.settled(tried | {"plan-state": b"succeeded"}) == {}
    assert rules.settled(tried | {"applied-checksum": b"else"}) == {}


def test_result_does_not_overwrite_new_pending_request() -> None:
    pending = data(plan_state=b"pending")
    assert rules.is_superseded(pending, {"plan-state": b"succeeded"})
    assert not rules.is_superseded(pending, {"plan-state": b"in-progress"})
    assert not rules.is_superseded(pending, {"probe-statuses": b"{}"})
    assert not rules.is_superseded(data(plan_state=b"in-progress"), {"plan-state": b"failed"})


def test_periodic_instruction_due_time_depends_on_period_and_failures() -> None:
    often = Instruction(name="p", period_seconds=10)
    assert rules.seconds_until(None, often, NOW) == 0
    well = rules.recorded(None, often, Result(), NOW)
    assert rules.seconds_until(well, often, NOW + 4) == 6
    assert rules.seconds_until(well, Instruction(name="p"), NOW) == 600
    record, pauses = well, []
    for _ in range(8):
        record = rules.recorded(record, often, Result(exit_code=1), NOW)
        pauses.append(rules.seconds_until(record, often, NOW))
    assert pauses == [30, 60, 90, 120, 150, 180, 180, 180]
    assert record["lastSuccessfulRunTime"] == well["lastSuccessfulRunTime"]
    assert rules.recorded(record, often, Result(), NOW)["failures"] == 0
    assert rules.seconds_until(record, Instruction(name="p", period_seconds=900), NOW) == 900  # both must be over


def test_periodic_record_includes_stderr_only_when_requested() -> None:
    result = Result(1, b"out", b"err")
    assert rules.recorded(None, Instruction(name="p"), result, NOW)["stderr"] == ""
    assert rules.recorded(None, Instruction(name="p", save_stderr=True), result, NOW)["stderr"] == "ZXJy"


def test_probe_health_changes_at_thresholds() -> None:
    probe = Probe(success_threshold=2, failure_threshold=3)
    status: formats.Json = {}
    healthy = []
    for well in (True, True, False, False, False, True):
        status = rules.probed(status, probe, well)
        healthy.append(status.get("healthy", False))
    assert healthy == [False, True, True, True, False, False]
    assert rules.probed({}, Probe(), False) == {"failureCount": 1}
    assert rules.probed({}, Probe(), True) == {"healthy": True, "successCount": 1}


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 4), st.integers(0, 4))
def test_probe_health_follows_consecutive_success_and_failure_thresholds(
    looks: list[bool], successes: int, failures: int
) -> None:
    probe, status, healthy, row = Probe(success_threshold=successes, failure_threshold=failures), {}, False, 0
    last = None
    for well in looks:
        status = rules.probed(status, probe, well)
        row, last = (row + 1 if well == last else 1), well
        if row >= ((successes or 1) if well else (failures or 3)):
            healthy = well
        assert status.get("healthy", False) == healthy


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"2", 2.0), (b"0.5", 0.5), (b"", 5.0), (b"0", 5.0), (b"-1", 5.0), (b"x", 5.0), (b"nan", 5.0)],
)
def test_probe_period_falls_back_to_default_when_invalid(text: bytes, expected: float) -> None:
    assert rules.probe_period({"probe-period-seconds": text}, 5.0) == expected


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4))
def test_packed_outputs_are_deterministic_and_round_trip(outputs: dict[str, str]) -> None:
    assert formats.unpack(formats.pack(outputs)) == outputs
    assert formats.pack(outputs) == formats.pack(dict(reversed(outputs.items())))
    assert json.loads(gzip.decompress(formats.pack(outputs))) == outputs


@given(st.binary(max_size=200))
def test_corrupt_packed_data_is_treated_as_empty(junk: bytes) -> None:
    assert formats.unpack(junk) == {}
    assert rules.probe_statuses({"probe-statuses": b"[" + junk}) == {}


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 700_000), max_size=4),
    st.integers(0, 450_000),
    st.integers(0, 300_000),
)
def test_plan_secret_stays_below_size_limit(sizes: dict[str, int], plan: int, other: int) -> None:
    """Whatever outputs there are, and with the copy of the plan that the server makes."""
    noise = hashlib.shake_128(b"seed").digest(700_000)
    outputs = {name: noise[:size] for name, size in sizes.items()}
    before = {"plan": noise[:plan], "something": noise[:other]}
    for written in (rules.succeeded(before, outputs, NOW), rules.failed(before, outputs, NOW, "x" * 9000)):
        after = before | written
        if plan * 2 + other < 900_000:
            assert sum(map(len, after.values())) + plan < 1 << 20
        assert gzip.decompress(written.get("applied-output") or written["failed-output"])


def test_shortened_text_keeps_both_ends_and_reports_omitted_bytes() -> None:
    assert formats.shortened(b"short", 100) == b"short"
    found = formats.shortened(b"a" * 50 + b"b" * 1000 + b"c" * 50, 100)
    assert found == b"a" * 50 + b"\n[1000 bytes left out]\n" + b"c" * 50


def test_long_periodic_records_are_shortened() -> None:
    noise = hashlib.shake_128(b"seed").digest(900_000)
    record = rules.recorded(None, Instruction(name="p"), Result(0, noise), NOW)
    before = {"plan": noise[:400_000]}
    found = formats.unpack(rules.periodic(before, {"p": record})["applied-periodic-output"])["p"]
    assert b"bytes left out" in base64.b64decode(found["stdout"])
    assert found["lastSuccessfulRunTime"] == DATE


def test_unchanged_periodic_result_is_reported_once_an_hour() -> None:
    instruction = Instruction(name="p", save_stderr=True)
    told = {"p": rules.recorded(None, instruction, Result(0, b"out"), NOW)}

    def after(seconds: float, result: Result) -> bool:
        record = rules.recorded(told["p"], instruction, result, NOW + seconds)
        return rules.is_news(told, {"p": record}, NOW + seconds)

    assert not after(20, Result(0, b"out"))
    assert not after(3599, Result(0, b"out"))
    assert after(3600, Result(0, b"out"))
    assert after(20, Result(0, b"other"))
    assert after(20, Result(0, b"out", b"err"))
    assert after(20, Result(1, b"out"))
    assert rules.is_news({}, told, NOW)
    assert rules.is_news(told, {}, NOW)
    told = {"p": rules.recorded(None, instruction, Result(), NOW)}
    assert not after(7200, Result()), "it has never said anything"
    assert after(20, Result(0, b"out"))
    assert after(20, Result(1))


@given(st.integers(0, 4_000_000_000))
def test_unix_date_round_trips(seconds: int) -> None:
    text = formats.unix_date(seconds)
    assert formats.seconds_of(text) == seconds
    assert calendar.timegm(time.strptime(text, "%a %b %d %H:%M:%S UTC %Y")) == seconds
    assert len(text) == len(DATE)


@pytest.mark.parametrize(
    "text", ["", "now", "Thu Jan 1 2026", "Thu Foo  1 00:00:00 UTC 2026", "Thu Jan  1 00:00 UTC 2026"]
)
def test_invalid_unix_date_parses_to_none(text: str) -> None:
    assert formats.seconds_of(text) is None
