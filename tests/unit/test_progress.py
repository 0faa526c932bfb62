"""The progress line of `make test`."""

from __future__ import annotations

import pytest

from tests.lab.progress import arranged, progress, weights


def test_slow_test_files_are_scheduled_first() -> None:
    assert arranged(["a::1", "b::1", "c::1", "c::2"], {"b": 2.0, "c": 3.0}, 1) == ["c::1", "c::2", "b::1", "a::1"]


def test_pytest_workers_get_equal_share_of_work_and_tests() -> None:
    ids = ["slow::1", "slower::1", *(f"quick-{number}::1" for number in range(6))]
    found = arranged(ids, {"slow": 5.0, "slower": 6.0}, 2)
    assert (found[0], found[4]) == ("slower::1", "slow::1")
    assert sorted(found) == sorted(ids)


def test_file_seconds_are_divided_among_tests() -> None:
    found = weights(["a.py::one", "a.py::two", "b.py::three"], {"a.py": 10.0})
    assert found["a.py::one"] == found["a.py::two"] == 5.01
    assert found["b.py::three"] == 0.01


def test_time_left_is_estimated_from_completed_share_of_work() -> None:
    line = progress(done=2_000, total=8_000, failed=0, elapsed=60.0, share=0.5)
    assert line == "2,000 of 8,000 tests (50% of the work); 1 min 00 s so far, about 1 min 00 s left"


def test_progress_line_shows_failure_count() -> None:
    assert "(10% of the work), 3 failed; 5 s so far, about 45 s left" in progress(1, 10, 3, 5.0, 0.1)


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_time_left_is_unknown_while_little_is_done(share: float) -> None:
    assert progress(0, 10, 0, 5.0, share).endswith("time left unknown")
