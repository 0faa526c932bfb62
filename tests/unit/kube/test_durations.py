"""Spans of time as manifests have them."""

from __future__ import annotations

import pytest

from remuda.kube.durations import BadDuration, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5), ("250ms", 0.25), ("-2m", -120)],
)
def test_go_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-", "5", "5 m", "m", "10minutes", "1h 30m", "1d", "٣s"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(BadDuration):
        parse(text)
