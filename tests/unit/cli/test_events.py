"""Which events are of a cluster, and how they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from remuda.cli.events import belongs, event_text
from remuda.kube import clock


@pytest.fixture(autouse=True)
def frozen_time() -> Iterator[None]:
    """Stop the clock: an age must not grow between the test and the line that shows it."""
    now = clock.time()
    clock.use(lambda: now)
    yield
    clock.use(None)


def event(message: str, **more: Any) -> dict[str, Any]:
    about = {"kind": "Machine", "name": "prairie-1", "namespace": "fleet-default"}
    at = clock.rfc3339(clock.time() - 300)
    return {
        "metadata": {"name": "e", "creationTimestamp": at},
        "involvedObject": about,
        "reason": "Moved",
        "message": message,
        "type": "Normal",
        "lastTimestamp": at,
        **more,
    }


def test_event_object_belongs_to_cluster_with_longest_matching_name() -> None:
    clusters = ["prairie", "prairie-dog", "pampa"]
    assert belongs("prairie", "prairie", clusters)
    assert belongs("prairie-workers-x7k2q", "prairie", clusters)
    assert belongs("prairie-dog-workers-x7k2q", "prairie-dog", clusters)
    assert not belongs("prairie-dog-workers-x7k2q", "prairie", clusters)
    assert not belongs("prairies", "prairie", clusters)


def test_piped_event_is_one_line_with_count() -> None:
    text = event_text(event("it went\nthere", count=3), None)
    assert text.splitlines() == [text]
    assert text.startswith("5m")
    assert "Machine/prairie-1  Moved (3 times)  it went there" in text


def test_terminal_event_wraps_whole_message_to_width() -> None:
    message = "a-long-name-that-is-not-broken " * 12
    lines = event_text(event(message), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[1:]).split()) == message.strip()
