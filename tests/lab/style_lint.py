"""Check of names and docstrings in `make check`: rules of docs/style.md that a program can judge.

python -m tests.lab.style_lint           fail if a rule is broken
python -m tests.lab.style_lint --list    also list every docstring that opens badly
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

_SOURCE = Path("src/remuda")
_OPENERS = frozenset(
    (
        *("What", "Who", "Whoever", "Whom", "Whose", "Of", "Which", "How", "It", "Its", "Where", "Whether", "When"),
        *("Why", "That", "They", "Those", "Nobody", "Somebody"),
    )
)
_MOST_SHARE = 0.03
_MOST_MODULES_PER_CLASS_NAME = 2
_SUFFIXES = ("s", "es", "er", "ers", "ed", "ing", "ings", "ion", "ions")


def docstrings(source: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and first line of every docstring."""
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield path, getattr(node, "lineno", 1), text.splitlines()[0]


def opens_badly(line: str) -> bool:
    """Return whether a docstring opens with a relative clause or a pronoun instead of a verb or a noun."""
    words = line.split()
    return bool(words) and words[0].rstrip(":,.") in _OPENERS


def twins(source: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield a folder and two of its modules that differ only by a suffix."""
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("__"))
        for one, other in combinations(names, 2):
            if _differ_by_suffix(one, other):
                yield folder, one, other


def _differ_by_suffix(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return any(longer == stem + suffix for stem in (shorter, shorter.removesuffix("e")) for suffix in _SUFFIXES)


def shared_class_names(source: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each public class name that more modules define than may, with those modules."""
    modules: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.py")):
        defined = {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
        for name in defined:
            if not name.startswith("_"):
                modules.setdefault(name, []).append(path)
    for name, paths in sorted(modules.items()):
        if len(paths) > _MOST_MODULES_PER_CLASS_NAME:
            yield name, paths


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.lab.style_lint", description="Check names and docstrings.")
    parser.add_argument("--list", action="store_true", help="list every docstring that opens badly")
    given = parser.parse_args()
    found = list(docstrings(_SOURCE))
    bad = [one for one in found if opens_badly(one[2])]
    if given.list:
        for path, line, text in bad:
            print(f"{path}:{line}: {text}")
    share = len(bad) / len(found)
    pairs = list(twins(_SOURCE))
    for folder, one, other in pairs:
        print(f"{folder}: the modules {one} and {other} differ only by a suffix", file=sys.stderr)
    shared = list(shared_class_names(_SOURCE))
    for name, paths in shared:
        modules = ", ".join(map(str, paths))
        print(
            f"class {name} is defined in {len(paths)} modules; add the noun of each domain: {modules}", file=sys.stderr
        )
    print(f"{len(bad)} of {len(found)} docstrings open badly: {share:.1%}, at most {_MOST_SHARE:.0%} may")
    return 1 if pairs or shared or share > _MOST_SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
