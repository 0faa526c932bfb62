"""docs/security.md and docs/cves.md name a test for every row, and each of them is there."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _rows(text: str) -> list[str]:
    """Return the rows of all tables, without their heads."""
    return [line for before, line in pairwise(text.splitlines()) if line.startswith("| ") and before.startswith("|")]


def _absent(rows: list[str]) -> list[str]:
    """Return the rows that name no test, and the tests that are not there."""
    found = [(row, re.fullmatch(r"\|.*\| `(tests/\S+\.py)::(test_\w+)` \|", row)) for row in rows]
    return [
        row if named is None else f"{named[1]}::{named[2]}"
        for row, named in found
        if named is None or not re.search(rf"^(async )?def {named[2]}\(", (ROOT / named[1]).read_text(), re.M)
    ]


def test_every_threat_names_an_existing_test() -> None:
    rows = _rows((ROOT / "docs" / "security.md").read_text().partition("\n## ")[0])
    assert rows
    assert _absent(rows) == []


def test_every_advisory_names_an_existing_test() -> None:
    rows = _rows((ROOT / "docs" / "cves.md").read_text())
    assert len(rows) > 30
    assert _absent(rows) == []
    unnamed = [row for row in rows if not re.match(r"\| (CVE-\d{4}-\d{4,}|GHSA(-\w{4}){3})\b", row)]
    assert unnamed == []
