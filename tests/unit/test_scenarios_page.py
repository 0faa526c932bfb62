"""The page of scenarios names tests that there are, and each test of scenarios is on it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scenarios.md").read_text()
SCENARIOS = sorted((ROOT / "tests/e2e").glob("test_scenarios*.py"))


def defined_in(path: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))


def test_scenarios_page_lists_every_scenario_test() -> None:
    named = set(re.findall(r"(?:…|tests/e2e/test_scenarios\w*\.py)::(test_\w+)", PAGE))
    assert named == {test for path in SCENARIOS for test in defined_in(path)}


def test_tests_named_on_scenarios_page_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE)
    assert named
    missing = [
        (path, test)
        for path, test in named
        if not (ROOT / path).exists() or (test and test not in defined_in(ROOT / path))
    ]
    assert missing == []
