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

_DIST = "remuda_dist"  # how pytest-xdist distributes tests, as told to its workers
DURATIONS = Path(__file__).resolve().parents[1] / "durations.json"

_UNKNOWN_SECONDS = 0.01  # of a test in a file without an entry
_RECORDED_SECONDS = 1.0  # a file that takes less has no entry
_FORECAST_SHARE = 0.02  # of the work: after less, the time left would be a guess
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    given: dict[str, Any] = getattr(config, "workerinput", {})
    # Only with "worksteal" a worker begins with a share of its own; else all of them take from one queue.
    workers = given.get("workercount", 1) if given.get(_DIST) == "worksteal" else 1
    places = {nodeid: place for place, nodeid in enumerate(arranged((item.nodeid for item in items), _read(), workers))}
    items.sort(key=lambda item: places[item.nodeid])


class _Progress:
    """Replaces the dots of the controlling process of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._weights: dict[str, float] = {}
        self._began = self._printed = time.monotonic()
        self._done = self._failed = 0
        self._done_weight = self._total_weight = 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_DIST] = self._config.getoption("dist")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        if not self._weights:
            self._weights = weights(ids, _read())
            self._total_weight = sum(self._weights.values())
            self._began = self._printed = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.when == "call" and report.passed:
            return "passed", "", "PASSED"
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed:
            self._failed += 1
            reporter.ensure_newline()
            reporter.write_line(f"FAILED {report.nodeid} ({report.when})")
        if report.when == "teardown":
            self._done += 1
            self._done_weight += self._weights.get(report.nodeid, 0.0)
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


def arranged(ids: Iterable[str], seconds: dict[str, float], workers: int) -> list[str]:
    """Return the tests in equal shares, one after the other, each with its slowest files first.

    Slow files are spread by their seconds, the others by their number of tests, so that both are about equal.
    """
    files: dict[str, list[str]] = {}
    for test in ids:
        files.setdefault(_file(test), []).append(test)
    shares: list[list[str]] = [[] for _ in range(workers)]
    work = [0.0] * workers
    for file in sorted(files, key=lambda file: -seconds.get(file, 0.0)):  # stable
        if file in seconds:
            share = work.index(min(work))
            work[share] += seconds[file]
        else:
            share = min(range(workers), key=lambda number: len(shares[number]))
        shares[share] += files[file]
    return [test for share in shares for test in share]


def weights(ids: Iterable[str], seconds: dict[str, float]) -> dict[str, float]:
    """Return the expected seconds of each test: an equal share of its file's."""
    ids = list(ids)
    tests = Counter(map(_file, ids))
    return {test: seconds.get(_file(test), 0.0) / tests[_file(test)] + _UNKNOWN_SECONDS for test in ids}


def progress(done: int, total: int, failed: int, elapsed: float, share: float) -> str:
    """Return one line: `share` is the part of the work that is done, from 0 to 1."""
    failures = f", {failed} failed" if failed else ""
    left = f"about {_duration(elapsed / share - elapsed)} left" if share >= _FORECAST_SHARE else "time left unknown"
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
