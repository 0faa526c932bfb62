"""Logs of one process: what goes to stderr, and the audit log in its file."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from remuda.app.log_setup import AuditFile, LogSettings, audit_path, set_up
from remuda.cli.server_options import audit_log_option, log_options, log_settings

AUDIT = logging.getLogger("remuda.audit")
OTHER = logging.getLogger("remuda.other")


@pytest.fixture
def begin() -> Iterator[Callable[[LogSettings], None]]:
    undone: list[Callable[[], None]] = []
    yield lambda settings: undone.append(set_up(settings))
    for undo in reversed(undone):
        undo()


Begin = Callable[[LogSettings], None]


def test_audit_line_is_written_only_to_the_audit_file(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log" / "audit.log"
    begin(LogSettings(level="error", audit=str(path)))
    AUDIT.info("%s", '{"user":"ann"}')
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"user": "ann"}]
    assert capsys.readouterr().err == ""


def test_audit_file_is_private(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.log"
    begin(LogSettings(audit=str(path)))
    assert not path.parent.exists(), "nothing is created before the first line"
    AUDIT.info("x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_audit_file_is_rotated_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    handler = AuditFile(path, most_bytes=100, old_files=2)
    for number in range(60):
        handler.handle(logging.LogRecord("remuda.audit", logging.INFO, "", 0, f"line {number:03d}", None, None))
    handler.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(file.stat().st_size <= 100 and stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    kept = [line for file in reversed(files) for line in file.read_text().splitlines()]
    assert kept == [f"line {number:03d}" for number in range(60 - len(kept), 60)], "the newest, none lost between files"


def test_existing_audit_file_is_appended_to(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    begin(LogSettings(audit=str(path)))
    AUDIT.info("after")
    assert path.read_text() == "before\nafter\n"


def test_unwritable_audit_file_is_reported_once_and_retried(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("a file where the directory should be")
    begin(LogSettings(audit=str(tmp_path / "log" / "audit.log")))
    for _ in range(3):
        AUDIT.info("x")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ERROR remuda.app.log_setup: cannot write audit log " in line
    (tmp_path / "log").unlink()
    AUDIT.info("y")
    assert (tmp_path / "log" / "audit.log").read_text() == "y\n"


def test_audit_log_on_stderr_carries_logger_name_in_text_format(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(LogSettings(audit="-"))
    AUDIT.info("%s", '{"user":"ann"}')
    assert capsys.readouterr().err.endswith(' INFO remuda.audit: {"user":"ann"}\n')


def test_json_log_format_renders_every_stderr_line_as_json(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin(LogSettings(format="json", level="info", audit="-"))
    AUDIT.info("%s", '{"user":"ann"}')
    OTHER.info("two\nlines")
    OTHER.debug("not shown")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first == {"user": "ann"}
    assert (second["level"], second["message"], second["logger"]) == ("info", "two\nlines", "remuda.other")


def test_default_level_is_warning(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin(LogSettings())
    OTHER.info("quiet")
    OTHER.warning("loud")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING remuda.other: loud")


def test_log_setup_undo_restores_previous_handlers() -> None:
    before = logging.getLogger().handlers[:], logging.getLogger().level, AUDIT.handlers[:], AUDIT.propagate
    set_up(LogSettings(level="debug"))()
    assert (logging.getLogger().handlers[:], logging.getLogger().level, AUDIT.handlers[:], AUDIT.propagate) == before


@pytest.mark.parametrize(
    ("wanted", "data", "path"),
    [
        ("", Path("d"), "d/log/audit.log"),
        ("", None, "-"),
        ("-", Path("d"), "-"),
        ("/elsewhere", Path("d"), "/elsewhere"),
    ],
)
def test_audit_path_defaults_to_the_data_directory(wanted: str, data: Path | None, path: str) -> None:
    assert audit_path(wanted, data) == path


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], LogSettings(audit="d/log/audit.log")),
        (["-v"], LogSettings(level="info", audit="d/log/audit.log")),
        (["-vv"], LogSettings(level="debug", audit="d/log/audit.log")),
        (["-vvv"], LogSettings(level="debug", audit="d/log/audit.log")),
        (["--verbose", "--log-format", "json"], LogSettings(format="json", level="info", audit="d/log/audit.log")),
        (["-vv", "--log-level", "error", "--audit-log", "-"], LogSettings(level="error", audit="-")),
    ],
)
def test_log_options_are_parsed_into_settings(arguments: list[str], settings: LogSettings) -> None:
    found: list[LogSettings] = []

    @click.command
    @audit_log_option
    @log_options
    def command(log_format: str, log_level: str | None, verbose: int, audit_log: str) -> None:
        found.append(
            log_settings(
                log_format=log_format, log_level=log_level, verbose=verbose, audit_log=audit_log, data_dir=Path("d")
            )
        )

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert found == [settings]
