"""Pytest plugin: start the slowest files first, and print how far the run is and how long it will take.

Both use the seconds per test file in tests/durations.json, as measured once on an idle machine. A file without an entry
counts little. Stale seconds cost accuracy and balance, never correctness. Measure again with

    pytest <folders> -n 2 --record-durations
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

DURATIONS = Path(__file__).resolve().parents[1] / "durations.json"

_UNKNOWN_SECONDS = 0.01  # of a test in a file without an entry
_RECORDED_SECONDS = 1.0  # a file that takes less has no entry
_TERMINAL_SECONDS, _LOG_SECONDS = 1.0, 15.0  # between two progress lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write the seconds per file to {DURATIONS.name}")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--record-durations"):
        config.pluginmanager.register(_Recorder(), "remuda-durations")
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(_Progress(config), "remuda-progress")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seconds = _read()
    items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0.0))  # stable: the others keep their order


class _Progress:
    """Replaces the dots of the controlling process of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._weights: dict[str, float] = {}
        self._began = self._printed = time.monotonic()
        self._done = self._failed = 0
        self._done_weight = self._total_weight = 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        if not self._weights:
            self._weights = weights(ids, _read())
            self._total_weight = sum(self._weights.values())
            self._began = self._printed = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return ("passed", "", "PASSED") if report.when == "call" and report.passed else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        if report.when == "teardown":
            self._done += 1
            self._done_weight += self._weights.get(report.nodeid, 0.0)
            reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
            now, is_terminal = time.monotonic(), reporter.isatty
            if now - self._printed >= (_TERMINAL_SECONDS if is_terminal else _LOG_SECONDS):
                self._printed = now
                share = self._done_weight / self._total_weight if self._total_weight else 0.0
                line = progress(self._done, len(self._weights), self._failed, now - self._began, share)
                reporter.rewrite(line, erase=True) if is_terminal else reporter.write_line(line)


class _Recorder:
    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        found = _read() | {file: round(seconds, 1) for file, seconds in self._seconds.items()}
        kept = {
            file: seconds
            for file, seconds in sorted(found.items())
            if seconds >= _RECORDED_SECONDS and (DURATIONS.parents[1] / file).exists()
        }
        DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")


def weights(ids: Iterable[str], seconds: dict[str, float]) -> dict[str, float]:
    """Return the expected seconds of each test: an equal share of its file's."""
    ids = list(ids)
    tests = Counter(map(_file, ids))
    return {test: seconds.get(_file(test), 0.0) / tests[_file(test)] + _UNKNOWN_SECONDS for test in ids}


def progress(done: int, total: int, failed: int, elapsed: float, share: float) -> str:
    """Return one line: `share` is the part of the work that is done, from 0 to 1."""
    failures = f", {failed} failed" if failed else ""
    left = f"about {_duration(elapsed / share - elapsed)} left" if share > 0 else "time left unknown"
    return f"{done:,} of {total:,} tests ({share:.0%} of the work){failures}; {_duration(elapsed)} so far, {left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _read() -> dict[str, float]:
    try:
        found: dict[str, float] = json.loads(DURATIONS.read_text())
    except FileNotFoundError:
        return {}
    return found
