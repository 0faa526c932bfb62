"""docs/security.md names a test for every threat, and each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_threat_has_a_test_that_is_there() -> None:
    threats = (ROOT / "docs" / "security.md").read_text().partition("\n## ")[0]
    rows = [line for line in threats.splitlines() if line.startswith("| ")][1:]
    named = [re.fullmatch(r"\|.*\| `(tests/\S+\.py)::(test_\w+)` \|", row) for row in rows]
    assert rows
    assert [row for row, found in zip(rows, named, strict=True) if found is None] == []
    absent = [
        f"{found[1]}::{found[2]}"
        for found in named
        if found is not None and not re.search(rf"^(async )?def {found[2]}\(", (ROOT / found[1]).read_text(), re.M)
    ]
    assert absent == []
