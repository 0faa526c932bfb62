"""docs/compatibility.md says what the code says."""

from __future__ import annotations

from tests.interop.semantics.page import PAGE, rewritten


def test_compatibility_page_lists_match_the_code() -> None:
    page = PAGE.read_text()
    assert page == rewritten(page), "write them anew: .venv/bin/python -m tests.interop.semantics.page"


def test_outdated_compatibility_list_is_detected() -> None:
    page = rewritten(PAGE.read_text())
    behind = page.replace("- LimitRanger\n", "")
    assert behind != page
    assert rewritten(behind) == page
