"""The failure budget: tables for what people are told, hypothesis for what must never happen."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from remuda.providers.shared.jobs import budget
from remuda.providers.shared.jobs.budget import TRY_NOW, FailedAttempts, Failure, Pool, RetryLater, Rules, Stall, judge

RULES = Rules()
NOW = 1_000_000.0

rules = st.builds(
    Rules,
    first_seconds=st.floats(0.1, 100),
    most_seconds=st.floats(100, 10_000),
    machine_failures=st.integers(1, 10),
    pool_failures=st.integers(1, 10),
    history=st.integers(1, 20),
)
attempts = st.builds(
    FailedAttempts, failures=st.integers(0, 100), last_failure=st.floats(0, 2 * NOW), hopeless=st.booleans()
)
pools = st.builds(Pool, failures=st.integers(0, 100), last_failure=st.floats(0, 2 * NOW))
others = st.lists(st.sampled_from("abc"), unique=True)


def test_first_attempt_starts_at_once() -> None:
    assert judge(RULES, FailedAttempts(), Pool(), [], NOW, "x") == TRY_NOW


def test_back_off_doubles_up_to_limit() -> None:
    waits = [budget.back_off(RULES, failures, "x") for failures in range(1, 12)]
    for wait, whole in zip(waits, [10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300], strict=True):
        assert 0.8 * whole <= wait <= whole


def test_back_off_differs_between_machines() -> None:
    assert len({budget.back_off(RULES, 3, f"m{number}") for number in range(50)}) == 50


def test_wait_message_names_attempt_and_delay() -> None:
    verdict = judge(RULES, FailedAttempts(failures=2, last_failure=NOW), Pool(), [], NOW, "x")
    assert isinstance(verdict, RetryLater)
    assert verdict.message == "attempt 2 of 5 failed; the controller retries within 20 s of the last failure"


def test_bad_options_are_not_tried_again() -> None:
    verdict = judge(RULES, FailedAttempts(failures=1, last_failure=0.0, hopeless=True), Pool(), [], NOW, "x")
    assert isinstance(verdict, Stall)
    assert verdict.reason == budget.BAD_OPTIONS


def test_failing_pool_allows_one_attempt_and_names_its_machine() -> None:
    pool = Pool(failures=3, last_failure=NOW - 1000)
    assert judge(RULES, FailedAttempts(), pool, [], NOW, "x") == TRY_NOW
    verdict = judge(RULES, FailedAttempts(), pool, ["m-2", "m-1"], NOW, "x")
    assert isinstance(verdict, RetryLater)
    assert verdict.seconds is None
    assert verdict.message.endswith("waiting for machine m-1")


@given(rules, attempts, pools, others, st.floats(0, 2 * NOW), st.text())
def test_backoff_never_exceeds_the_limit(
    rules: Rules, machine: FailedAttempts, pool: Pool, trying: list[str], now: float, salt: str
) -> None:
    """Whatever clocks say: also one that was set back by years."""
    verdict = judge(rules, machine, pool, trying, now, salt)
    if isinstance(verdict, RetryLater) and verdict.seconds is not None:
        assert 0 < verdict.seconds <= rules.most_seconds


@given(rules, attempts, pools, others, st.floats(0, 2 * NOW), st.text())
def test_open_circuit_allows_no_concurrent_attempts(
    rules: Rules, machine: FailedAttempts, pool: Pool, trying: list[str], now: float, salt: str
) -> None:
    if pool.failures >= rules.pool_failures and trying:
        assert judge(rules, machine, pool, trying, now, salt) != TRY_NOW


@given(rules, attempts, pools, others, st.floats(0, 2 * NOW), st.text())
def test_exhausted_budget_stalls(
    rules: Rules, machine: FailedAttempts, pool: Pool, trying: list[str], now: float, salt: str
) -> None:
    spent = machine.hopeless or machine.failures >= rules.machine_failures
    assert isinstance(judge(rules, machine, pool, trying, now, salt), Stall) == spent


@given(rules, attempts, pools, st.floats(0, NOW), st.text())
def test_waiting_machine_eventually_proceeds(
    rules: Rules, machine: FailedAttempts, pool: Pool, now: float, salt: str
) -> None:
    """No machine waits for ever: each wait ends in an attempt or in the next wait, and there are two at most."""
    for _ in range(3):
        verdict = judge(rules, machine, pool, [], now, salt)
        if not isinstance(verdict, RetryLater):
            break
        assert verdict.seconds is not None
        later = now + verdict.seconds + 0.001
        # times that lay in the future are in the past by then
        machine = msgspec.structs.replace(machine, last_failure=min(machine.last_failure, now))
        pool = msgspec.structs.replace(pool, last_failure=min(pool.last_failure, now))
        now = later
    assert not isinstance(judge(rules, machine, pool, [], now, salt), RetryLater)


@given(rules, st.lists(st.tuples(st.sampled_from(["f", "s", "again"]), st.integers(0, 5)), max_size=40))
def test_pool_counts_each_job_once_and_keeps_the_last_failures(rules: Rules, scenario: list[tuple[str, int]]) -> None:
    pool, told, in_a_row = Pool(), [], 0
    for number, (what, _) in enumerate(scenario):
        if what == "s":
            pool, in_a_row = budget.succeeded(pool), 0
        elif what == "f":
            failure = Failure(time="", machine="m", message=str(number), job=f"job-{number}")
            pool, in_a_row = budget.failed(rules, pool, failure, NOW), in_a_row + 1
            told.append(failure)
        elif told:
            assert budget.failed(rules, pool, told[-1], NOW) is pool
        assert pool.failures == in_a_row
        assert list(pool.history) == told[-rules.history :]
