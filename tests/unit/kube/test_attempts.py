"""How long an address that fails again and again has to wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.attempts import AttemptLimiter


def test_failed_attempts_are_rate_limited_after_burst() -> None:
    attempts = AttemptLimiter(burst=3, per_second=0.5)
    for _ in range(3):
        assert attempts.wait("a", 10.0) == 0
        attempts.failed("a", 10.0)
    assert attempts.wait("a", 10.0) == 2
    assert attempts.wait("b", 10.0) == 0
    assert attempts.wait("a", 12.0) == 0


def test_attempt_limiter_remembers_limited_number_of_addresses() -> None:
    attempts = AttemptLimiter(burst=1, addresses=2)
    for name in "abc":
        attempts.failed(name, 0.0)
    assert [attempts.wait(name, 0.0) for name in "abc"] == [0, 1, 1]


@given(st.lists(st.floats(0, 5), max_size=50))
def test_attempt_is_allowed_after_announced_wait(pauses: list[float]) -> None:
    attempts, now = AttemptLimiter(burst=2, per_second=1), 0.0
    for pause in pauses:
        now += pause
        if wait := attempts.wait("a", now):
            now += wait
            assert attempts.wait("a", now) == 0
        attempts.failed("a", now)
