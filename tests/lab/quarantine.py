"""Pytest plugin: a flaky test is quarantined until it is fixed; no test is run twice.

    @pytest.mark.quarantine(reason="counts watchers before all of them are there", owner="apiserver")

The test still runs, but its failure does not fail the run. Every run ends with a line for each quarantined test; the
gate counts them and repeats the lines at its end. A mark without reason and owner is an error.
"""

from __future__ import annotations

import pytest

from tests.lab.reported import properties

MARK = "quarantine"
_PROPERTY = "quarantined"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(reason, owner): flaky; may fail until its owner has fixed it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker(MARK)) is not None:
            reason, owner = mark.kwargs.get("reason"), mark.kwargs.get("owner")
            if not reason or not owner:
                raise pytest.UsageError(f"{item.nodeid}: quarantine needs reason=... and owner=...")
            item.user_properties.append((_PROPERTY, f"{reason} (owner: {owner})"))
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for nodeid, text in sorted(properties(terminalreporter, _PROPERTY)):
        terminalreporter.write_line(f"quarantined: {nodeid}: {text}")
