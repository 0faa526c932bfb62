"""What several outcomes mean together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, soonest

AGAIN = st.builds(Requeue, st.floats(0, 100), st.sampled_from(("", "why")))
BLOCKED = st.builds(Blocked, st.sampled_from("RS"), st.just("on"), st.just("m"), st.none() | st.floats(0, 100))


def moment(outcome: Outcome) -> float | None:
    return getattr(outcome, "after_seconds", getattr(outcome, "check_after", None))


@given(outcomes=st.lists(st.just(DONE) | AGAIN | BLOCKED, max_size=5))
def test_combined_outcome_has_earliest_time_and_first_blocker(outcomes: list[Outcome]) -> None:
    together = soonest(*outcomes)
    moments = [when for outcome in outcomes if (when := moment(outcome)) is not None]
    assert moment(together) == (min(moments) if moments else None)
    blocked = [outcome for outcome in outcomes if isinstance(outcome, Blocked)]
    if blocked:
        assert isinstance(together, Blocked)
        assert (together.reason, together.on) == (blocked[0].reason, blocked[0].on)
    else:
        assert together in (outcomes or [DONE])


def test_soonest_of_outcomes_covers_empty_done_again_and_blocked() -> None:
    assert soonest() == DONE
    assert soonest(DONE, DONE) == DONE
    assert soonest(Requeue(5, "later"), Requeue(2, "soon"), DONE) == Requeue(2, "soon")
    assert soonest(Requeue(5), Blocked("R", "Pod a/b", "m")) == Blocked("R", "Pod a/b", "m", 5)
