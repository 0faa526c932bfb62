"""A newcomer reads a page and types its commands, line by line: on a terminal, without root, with an empty home, and
with the program installed from its wheel. The commands are those of the page: every line of its blocks marked `sh`.

To add a page, add a `Page`. Lines of programs that this machine lacks (`Page.optional`) are left
out, with a warning.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.lab.newcomer import ROOT, Newcomer, Typist
from tests.lab.page_commands import commands

_INSTALLERS = re.compile(r"`((?:pipx|uv tool) install dist/[^`]+)`")


class Page(NamedTuple):
    path: str
    optional: tuple[str, ...] = ()  # programs that a newcomer may lack


PAGES = [Page("README.md"), Page("docs/quickstart.md", optional=("kubectl",))]


@pytest.fixture(scope="module")
def newcomer() -> Iterator[Newcomer]:
    found = Newcomer()
    try:
        yield found
    finally:
        found.leave()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_commands_of_page_work_as_typed(newcomer: Newcomer, page: Page) -> None:
    lacking = [program for program in page.optional if not newcomer.has(program)]
    typed = commands((ROOT / page.path).read_text())
    assert len(typed) > 5
    with newcomer.shell() as shell:
        typist = Typist(shell, page.path)
        for line in typed:
            if line.split()[0] in lacking:
                warnings.warn(f"not typed, because this machine lacks the program: {line}", stacklevel=1)
            else:
                typist.type(line)
    assert "not running" in newcomer.run("remuda status"), "the last command of a page stops the server"


@pytest.mark.parametrize("line", sorted(set(_INSTALLERS.findall((ROOT / "README.md").read_text()))))
def test_other_installers_take_the_wheel(newcomer: Newcomer, line: str) -> None:
    if not (newcomer.clone / "dist").exists():
        newcomer.install()
    program = newcomer.home / ".local" / "bin" / "remuda"
    shutil.rmtree(program.parent, ignore_errors=True)  # of the other installer
    said = newcomer.run(f"pip install {line.split()[0]} && {line}")
    assert program.exists(), said
    assert "client: version" in newcomer.run(f"{program} version --client")


def test_installers_of_readme_are_found() -> None:
    found = _INSTALLERS.findall((ROOT / "README.md").read_text())
    assert sorted(line.split()[0] for line in found) == ["pipx", "uv"]
