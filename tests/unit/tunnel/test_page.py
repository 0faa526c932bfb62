"""The page about the tunnel names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]


def test_tunnel_docs_page_names_only_existing_tests() -> None:
    named = set(re.findall(r"`(test_\w+)`", (_ROOT / "docs/tunnel.md").read_text()))
    folders = [_ROOT / "tests/unit/tunnel", _ROOT / "tests/interop/tunnel"]
    sources = "".join(file.read_text() for folder in folders for file in folder.glob("test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert named
    assert not named - there
