"""The lint of names and docstrings finds what docs/style.md forbids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.style_lint import docstrings, opens_badly, twins


@pytest.mark.parametrize("line", ["What a pool is made of.", "Whoever asks.", "Of a Machine.", "It waits.", "How: …"])
def test_relative_clause_or_pronoun_opens_badly(line: str) -> None:
    assert opens_badly(line)


@pytest.mark.parametrize("line", ["Return the Machines.", "Queue of one controller.", "Whatever", "", "Office hours."])
def test_verb_or_noun_opens_well(line: str) -> None:
    assert not opens_badly(line)


def test_docstrings_of_modules_classes_and_functions_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""M."""\nclass A:\n    """C.\n\n    More."""\n    async def f(self):\n        """F."""\n'
    )
    assert [text for _, _, text in docstrings(tmp_path)] == ["M.", "C.", "F."]


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (("token", "tokens"), 1),
        (("apply", "applying"), 1),
        (("merge", "merging"), 1),
        (("drain", "drainer"), 1),
        (("drain", "drain_rules"), 0),
        (("status", "state"), 0),
    ],
)
def test_modules_that_differ_by_a_suffix_are_twins(tmp_path: Path, modules: tuple[str, ...], expected: int) -> None:
    for name in modules:
        (tmp_path / f"{name}.py").touch()
    assert len(list(twins(tmp_path))) == expected
