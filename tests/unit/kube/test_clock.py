"""Times and durations as they stand in objects."""

from __future__ import annotations

import pytest

from remuda.kube import clock


def test_formatted_times_are_utc_and_truncated() -> None:
    assert clock.rfc3339(1767323045.9) == "2026-01-02T03:04:05Z"
    assert clock.rfc3339_micro(1767323045.5) == "2026-01-02T03:04:05.500000Z"


def test_parse_reads_formatted_times_and_offsets() -> None:
    assert clock.parse(clock.rfc3339(1767323045)) == 1767323045
    assert clock.parse("2026-01-02T04:04:05+01:00") == 1767323045


def test_time_without_zone_is_rejected() -> None:
    with pytest.raises(ValueError, match="time zone"):
        clock.parse("2026-01-02T03:04:05")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5), ("250ms", 0.25), ("-2m", -120)],
)
def test_go_duration_is_parsed(text: str, seconds: float) -> None:
    assert clock.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-", "5", "5 m", "m", "10minutes", "1h 30m", "1d", "٣s"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(clock.BadDuration):
        clock.parse_duration(text)
