"""Print how much of each package the tests of `make coverage` ran, and what they did not run at all.

    python -m tests.lab.coverage_report [--below PERCENT]

A package below the limit is listed with every function of which no line was run. Not counted: what runs only in suites
that `make coverage` leaves out (e2e, interop, faults), and in programs that are killed or run without site-packages.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage

import remuda

_ROOT = Path(remuda.__file__).parent


class Package:
    def __init__(self) -> None:
        self.statements = self.missed = 0
        self.untested: list[str] = []

    @property
    def percent(self) -> float:
        return 100.0 * (1 - self.missed / self.statements) if self.statements else 100.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.coverage_report", description=__doc__)
    parser.add_argument("--below", type=float, default=90.0, help="list what is untested below this percentage")
    below = parser.parse_args().below
    data = coverage.Coverage()
    data.combine()
    data.save()
    packages = measure(data)
    print(f"{'package':<28} {'statements':>10} {'missed':>7} {'run':>6}")
    for name, package in sorted(packages.items()):
        print(f"{name:<28} {package.statements:>10,} {package.missed:>7,} {package.percent:>5.1f}%")
    for name, package in sorted(packages.items(), key=lambda entry: entry[1].percent):
        if package.percent < below and package.untested:
            print(f"\n{name} ({package.percent:.1f}%): functions that no test ran")
            print("\n".join(f"  {line}" for line in package.untested))


def measure(data: coverage.Coverage) -> dict[str, Package]:
    packages: dict[str, Package] = defaultdict(Package)
    for path in sorted(_ROOT.rglob("*.py")):
        _, statements, _, missing, _ = data.analysis2(str(path))
        package = packages[_package(path)]
        package.statements += len(statements)
        package.missed += len(missing)
        for name, first, lines in functions(path.read_text()):
            inside = lines & set(statements)
            if inside and inside <= set(missing):
                package.untested.append(f"{path.relative_to(_ROOT)}:{first} {name}")
    return packages


def functions(source: str) -> Iterator[tuple[str, int, set[int]]]:
    """Yield the qualified name, first line and body lines of each function that is not inside another one."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, set[int]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                last = child.end_lineno or child.lineno
                yield prefix + child.name, child.lineno, set(range(child.body[0].lineno, last + 1))
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")

    return walk(ast.parse(source), "")


def _package(path: Path) -> str:
    """Return the first folder below remuda; of providers, which is several packages, the first two."""
    parts = path.relative_to(_ROOT).parts[:-1]
    return "/".join(parts[: 2 if parts[:1] == ("providers",) else 1]) or "(top)"


if __name__ == "__main__":
    main()
