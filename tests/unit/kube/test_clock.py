"""Times as they stand in objects."""

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
