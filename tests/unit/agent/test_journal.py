"""What a host remembers of its runs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from remuda.agent.journal import Journal, Run

RUN = Run("uid", "sum", "attempt-1")
RESULTS = {"applied-checksum": b"sum", "applied-output": b"\x1f\x8b\x00"}


def test_journal_returns_finished_results_after_restart(tmp_path: Path) -> None:
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
def test_journal_distinguishes_secret_checksum_and_attempt(tmp_path: Path, other: Run) -> None:
    journal = Journal(str(tmp_path / "journal.json"))
    journal.finished(RUN, RESULTS)
    assert journal.results(other) is None


def test_journal_keeps_only_the_latest_run(tmp_path: Path) -> None:
    """Back at an older plan, it runs again."""
    journal = Journal(str(tmp_path / "journal.json"))
    journal.finished(RUN, RESULTS)
    journal.started(RUN._replace(checksum="newer"))
    assert journal.results(RUN) is None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"secret":"uid"}', '{"secret":"uid","checksum":"sum","attempt":"attempt-1","results":7}'],
)
def test_unreadable_journal_is_recreated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.json"
    path.write_text(content)
    journal = Journal(str(path))
    assert journal.results(RUN) is None
    journal.finished(RUN, RESULTS)
    assert Journal(str(path)).results(RUN) == RESULTS


def test_failed_journal_write_raises_and_leaves_no_partial_file(tmp_path: Path) -> None:
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
