"""The lint of names and docstrings finds what docs/style.md forbids."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.style_lint import docstrings, opens_badly, shared_class_names, twins


@pytest.mark.parametrize("line", ["What a pool is made of.", "Whoever asks.", "Of a Machine.", "It waits.", "How: …"])
def test_docstring_opening_with_relative_clause_or_pronoun_is_flagged(line: str) -> None:
    assert opens_badly(line)


@pytest.mark.parametrize("line", ["Return the Machines.", "Queue of one controller.", "Whatever", "", "Office hours."])
def test_docstring_opening_with_verb_or_noun_is_accepted(line: str) -> None:
    assert not opens_badly(line)


def test_lint_reads_docstrings_of_modules_classes_and_functions(tmp_path: Path) -> None:
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
def test_modules_differing_only_by_suffix_are_flagged(tmp_path: Path, modules: tuple[str, ...], expected: int) -> None:
    for name in modules:
        (tmp_path / f"{name}.py").touch()
    assert len(list(twins(tmp_path))) == expected


def test_public_class_name_in_three_modules_is_flagged(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for number, name in enumerate(("one.py", "two.py", "inner/three.py")):
        kept = "class Plan: ..." if number else ""
        (tmp_path / name).write_text(f"class Entry: ...\nclass _Local: ...\n{kept}\n")
    assert [(name, len(paths)) for name, paths in shared_class_names(tmp_path)] == [("Entry", 3)]
