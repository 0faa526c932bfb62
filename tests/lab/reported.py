"""Read what tests recorded with `record_property`, also in other processes, at the end of a run."""

from __future__ import annotations

import pytest


def properties(reporter: pytest.TerminalReporter, name: str) -> set[tuple[str, str]]:
    """Return the id of each test with a property of this name, and its value."""
    return {
        (report.nodeid, str(value))
        for reports in reporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for found, value in report.user_properties
        if found == name
    }
