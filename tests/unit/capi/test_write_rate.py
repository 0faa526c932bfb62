"""What may wait, and for how long."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.write_rate import WriteRate, matters
from remuda.kube import clock
from remuda.kube.client import Target
from remuda.kube.clock import parse
from remuda.kube.objects import Key, ObjectMeta
from remuda.runtime.draft import Draft
from remuda.runtime.outcome import DONE, Outcome, Requeue
from remuda.runtime.steps import step

SAVE = step("test.pace", "saves a draft at some pace")

MADE = "2026-03-01T12:00:00Z"
T0 = parse(MADE)
NEW = ObjectMeta(namespace="ns", name="a", creation_timestamp=MADE)
KEY = Key("ns", "a")


def test_new_object_waits_until_age_reaches_pace() -> None:
    pace = WriteRate(2.0)
    assert pace.rest(NEW, T0 + 0.5) == 1.5
    assert pace.rest(NEW, T0 + 2.0) == 0.0


def test_write_restarts_the_wait() -> None:
    pace = WriteRate(2.0)
    pace.wrote(KEY, T0 + 10)
    assert pace.rest(NEW, T0 + 10.5) == 1.5
    assert pace.rest(NEW, T0 + 12) == 0.0
    pace.forget(KEY)
    assert pace.rest(NEW, T0 + 10.5) == 0.0
    pace.forget(KEY)


def test_object_without_creation_time_does_not_wait() -> None:
    assert WriteRate(2.0).rest(ObjectMeta(name="a"), T0) == 0.0


def test_zero_pace_never_waits() -> None:
    pace = WriteRate(0.0)
    pace.wrote(KEY, T0)
    assert pace.rest(NEW, T0) == 0.0


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 60))
def test_wait_never_exceeds_pace_despite_clock_skew(written: float, now: float, seconds: float) -> None:
    pace = WriteRate(seconds)
    pace.wrote(KEY, T0 + written)
    assert 0.0 <= pace.rest(NEW, T0 + now) <= seconds


def draft(before: dict[str, object], after: dict[str, object]) -> Draft:
    made = Draft(Target("v1", "things"), msgspec.json.encode({**THING, "status": before}))
    made.obj["status"] = after
    return made


THING = {"metadata": {"name": "a", "resourceVersion": "1"}}


def conditions(**statuses: str) -> dict[str, object]:
    return {"conditions": [{"type": type, "status": status, "message": "m"} for type, status in statuses.items()]}


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        ({}, {"phase": "Pending", **conditions(Ready="False")}, False),
        ({}, {"initialization": {"provisioned": True}}, True),
        ({"phase": "Pending"}, {"phase": "Running"}, True),
        ({"observedGeneration": 1}, {"observedGeneration": 2}, True),
        (conditions(Ready="False"), conditions(Ready="True"), True),
        (conditions(Other="False"), conditions(Other="True"), False),
        ({"replicas": 1}, {"replicas": 2}, False),
    ],
)
def test_status_change_urgency_depends_on_changed_fields(
    before: dict[str, object], after: dict[str, object], urgent: bool
) -> None:
    assert matters(draft(before, after), ("Ready",)) is urgent


class RecordingClient:
    """A client that keeps what is written through it."""

    def __init__(self) -> None:
        self.patches: list[object] = []

    async def patch(self, target: Target, namespace: str, name: str, patch: object, **options: object) -> bytes:
        self.patches.append(patch)
        return msgspec.json.encode({"metadata": {"name": "a", "resourceVersion": "2"}})


async def saved(pace: WriteRate, after: int, *, matters: bool) -> tuple[Outcome, int]:
    client = RecordingClient()
    changed = draft({"replicas": 1}, {"replicas": after})
    outcome = await pace.save(client, changed, ObjectMeta(name="a"), SAVE, matters=matters)  # type: ignore[arg-type]
    return outcome, len(client.patches)


async def test_deferrable_status_is_not_written_before_pace_elapses() -> None:
    pace = WriteRate(5.0)
    assert await saved(pace, 2, matters=True) == (DONE, 1)
    outcome, written = await saved(pace, 3, matters=False)
    assert isinstance(outcome, Requeue)
    assert 4.0 < outcome.after_seconds <= 5.0
    assert written == 0
    pace.wrote(Key("", "a"), clock.time() - 6)
    assert await saved(pace, 3, matters=False) == (DONE, 1)
    outcome, written = await saved(pace, 1, matters=False)
    assert written == 0


def test_pace_slows_down_with_queue_depth() -> None:
    waiting = 0
    pace = WriteRate(5.0, lambda: waiting)
    pace.wrote(KEY, T0)
    assert pace.rest(NEW, T0) == 5.0
    waiting = 40
    assert pace.rest(NEW, T0) == 15.0
    waiting = 10_000
    assert pace.rest(NEW, T0) == 30.0
