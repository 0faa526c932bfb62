"""What may wait, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.pacing import Pace
from remuda.kube.clock import parse
from remuda.kube.objects import Key, ObjectMeta

MADE = "2026-03-01T12:00:00Z"
T0 = parse(MADE)
NEW = ObjectMeta(namespace="ns", name="a", creation_timestamp=MADE)
KEY = Key("ns", "a")


def test_a_new_object_may_wait_until_it_is_that_old() -> None:
    pace = Pace(2.0)
    assert pace.rest(NEW, T0 + 0.5) == 1.5
    assert pace.rest(NEW, T0 + 2.0) == 0.0


def test_a_write_begins_the_time_anew() -> None:
    pace = Pace(2.0)
    pace.wrote(KEY, T0 + 10)
    assert pace.rest(NEW, T0 + 10.5) == 1.5
    assert pace.rest(NEW, T0 + 12) == 0.0
    pace.forget(KEY)
    assert pace.rest(NEW, T0 + 10.5) == 0.0
    pace.forget(KEY)


def test_an_object_of_unknown_age_does_not_wait() -> None:
    assert Pace(2.0).rest(ObjectMeta(name="a"), T0) == 0.0


def test_without_a_pace_nothing_waits() -> None:
    pace = Pace(0.0)
    pace.wrote(KEY, T0)
    assert pace.rest(NEW, T0) == 0.0


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 60))
def test_nothing_waits_longer_than_the_pace_whatever_clocks_do(written: float, now: float, seconds: float) -> None:
    pace = Pace(seconds)
    pace.wrote(KEY, T0 + written)
    assert 0.0 <= pace.rest(NEW, T0 + now) <= seconds
