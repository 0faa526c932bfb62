"""What a host remembers of its runs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from remuda.agent.journal import Journal, Run

RUN = Run("uid", "sum", "attempt-1")
RESULTS = {"applied-checksum": b"sum", "applied-output": b"\x1f\x8b\x00"}


def test_what_finished_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "var" / "journal.json"
    journal = Journal(str(path))
    assert journal.results(RUN) is None
    journal.started(RUN)
    assert Journal(str(path)).results(RUN) is None
    journal.finished(RUN, RESULTS)
    assert Journal(str(path)).results(RUN) == RESULTS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "other", [RUN._replace(secret="new"), RUN._replace(checksum="b"), RUN._replace(attempt="attempt-2")]
)
def test_another_secret_plan_or_attempt_is_another_run(tmp_path: Path, other: Run) -> None:
    journal = Journal(str(tmp_path / "journal.json"))
    journal.finished(RUN, RESULTS)
    assert journal.results(other) is None


def test_only_the_latest_run_counts(tmp_path: Path) -> None:
    """Back at an older plan, it runs again."""
    journal = Journal(str(tmp_path / "journal.json"))
    journal.finished(RUN, RESULTS)
    journal.started(RUN._replace(checksum="newer"))
    assert journal.results(RUN) is None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"secret":"uid"}', '{"secret":"uid","checksum":"sum","attempt":"attempt-1","results":7}'],
)
def test_a_journal_that_cannot_be_read_is_begun_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.json"
    path.write_text(content)
    journal = Journal(str(path))
    assert journal.results(RUN) is None
    journal.finished(RUN, RESULTS)
    assert Journal(str(path)).results(RUN) == RESULTS


def test_a_record_that_cannot_be_written_is_said_and_nothing_half_made_stays(tmp_path: Path) -> None:
    (tmp_path / "journal.json").mkdir()  # no file can take this place
    with pytest.raises(OSError):
        Journal.started(_journal_at(tmp_path / "journal.json"), RUN)
    assert [each.name for each in tmp_path.iterdir()] == ["journal.json"]


def _journal_at(path: Path) -> Journal:
    """Loaded before the trouble began."""
    path.rmdir()
    journal = Journal(str(path))
    path.mkdir()
    return journal
