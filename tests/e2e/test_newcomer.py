"""A newcomer reads a page and types its commands, line by line: on a terminal, without root, with an empty home, and
with the program installed from its wheel. The commands are those of the page: every line of its blocks marked `sh`.

To add a page, add a `Page`. Lines of programs that this machine lacks (`Page.optional`) are left
out, with a warning.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.page_commands import commands
from tests.lab.peers import peer_path
from tests.lab.ports import free_port
from tests.lab.terminal import Session

ROOT = Path(__file__).parents[2]
USER = 65534  # nobody
_SOURCES = ("src", "examples", "docs", "Makefile", "pyproject.toml", "README.md", "LICENSE")
_INSTALLERS = re.compile(r"`((?:pipx|uv tool) install dist/[^`]+)`")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
_PROMPT = re.compile(r"newcomer:([0-9]+)> $")
_QUESTION = re.compile(r"\[y/N\]: $")
_INHERITED = re.compile(r"(PIP|UV)_\w+|\w+_(PROXY|proxy)|SSL_CERT_\w+|REQUESTS_CA_BUNDLE", re.ASCII)


class Page(NamedTuple):
    path: str
    optional: tuple[str, ...] = ()  # programs that a newcomer may lack
    environment: Mapping[str, str] = {}  # for example the place of a local mirror


PAGES = [Page("README.md"), Page("docs/quickstart.md", optional=("kubectl",))]


class Newcomer:
    """A user with an empty home, and a clone of this repository in it."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="newcomer-"))
        self.clone = self.home / "remuda"
        self.clone.mkdir()
        for name in _SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.clone / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, self.clone)
        self.programs = self.home / "bin"
        self.programs.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
            "HOME": str(self.home),
            "PATH": f"{self.programs}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PS1": r"newcomer:$?> ",
            # Tests beside this one have the default port.
            "REMUDA_LISTEN": f"127.0.0.1:{free_port()}",
        }
        self._identity: list[str] = []
        self._become_user()

    def _become_user(self) -> None:
        """Drop root, if there is a Python that other users can run."""
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        if os.geteuid() == 0 and shutil.which("setpriv"):
            subprocess.run(["chown", "-R", f"{USER}:{USER}", str(self.home)], check=True)
            if self._link_python(as_user, "/usr/bin/python3"):
                self._identity = as_user
                return
        assert self._link_python([], os.path.realpath(sys.executable))

    def _link_python(self, identity: list[str], python: str) -> bool:
        check = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
        if subprocess.run([*identity, python, "-c", check], capture_output=True, check=False).returncode:
            return False
        (self.programs / "python3").symlink_to(python)
        return True

    def has(self, program: str) -> bool:
        """Return whether a program is there. kubectl may have been built for other tests."""
        if shutil.which(program, path=self.environment["PATH"]):
            return True
        built = peer_path(program)
        if not built.exists():
            return False
        shutil.copy(built, self.programs / program)
        return True

    def shell(self, environment: Mapping[str, str] = {}) -> Session:
        return Session([*self._as_user(environment), "bash", "--norc", "--noprofile", "-i"], cwd=self.clone)

    def run(self, line: str) -> str:
        """Return the output of a command that no page shows."""
        done = subprocess.run(
            [*self._as_user({"PATH": f"{self.home}/.remuda/bin:{self.environment['PATH']}"}), "bash", "-c", line],
            cwd=self.clone,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * LIMIT_SECONDS,
            check=False,
        )
        return done.stdout

    def _as_user(self, environment: Mapping[str, str]) -> list[str]:
        variables = {**self.environment, **environment}
        return [*self._identity, "env", "-i", *(f"{name}={value}" for name, value in variables.items())]

    def leave(self) -> None:
        """Kill what a failed test has left running, by the home in its environment, and remove the home."""
        mark = f"HOME={self.home}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    os.kill(int(place.name), signal.SIGKILL)
            except OSError:
                continue
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(scope="module")
def newcomer() -> Iterator[Newcomer]:
    found = Newcomer()
    try:
        yield found
    finally:
        found.leave()


def until_prompt(shell: Session, begin: int) -> int:
    """Return the exit code of the last command. Answer its questions with yes."""
    deadline = time.monotonic() + 2 * LIMIT_SECONDS
    answered = begin
    while True:
        found = _CONTROL.sub("", shell.shown[answered:])
        if prompt := _PROMPT.search(found):
            return int(prompt[1])
        if _QUESTION.search(found):
            answered = len(shell.shown)
            shell.type("y\n")
        assert time.monotonic() < deadline, f"no prompt: {shell.shown[begin:]}"
        assert shell.listen(deadline - time.monotonic()), f"the shell has ended: {shell.shown[begin:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path))
def test_commands_of_page_work_as_typed(newcomer: Newcomer, page: Page) -> None:
    lacking = [program for program in page.optional if not newcomer.has(program)]
    typed = commands((ROOT / page.path).read_text())
    assert len(typed) > 5
    with newcomer.shell(page.environment) as shell:
        until_prompt(shell, 0)
        for line in typed:
            if line.split()[0] in lacking:
                warnings.warn(f"not typed, because this machine lacks the program: {line}", stacklevel=1)
                continue
            begin = len(shell.shown)
            shell.type(f"{line}\n")
            code = until_prompt(shell, begin)
            assert code == 0, f"{line!r} of {page.path} ends with exit code {code}: {shell.shown[begin:]}"
            assert "Traceback" not in shell.shown[begin:]
    assert "not running" in newcomer.run("remuda status"), "the last command of a page stops the server"


@pytest.mark.parametrize("line", sorted(set(_INSTALLERS.findall((ROOT / "README.md").read_text()))))
def test_other_installers_take_the_wheel(newcomer: Newcomer, line: str) -> None:
    newcomer.run(f"[ -e dist ] || {' && '.join(commands((ROOT / 'README.md').read_text())[:3])}")
    program = newcomer.home / ".local" / "bin" / "remuda"
    shutil.rmtree(program.parent, ignore_errors=True)  # of the other installer
    said = newcomer.run(f"pip install {line.split()[0]} && {line}")
    assert program.exists(), said
    assert "client: version" in newcomer.run(f"{program} version --client")


def test_installers_of_readme_are_found() -> None:
    found = _INSTALLERS.findall((ROOT / "README.md").read_text())
    assert sorted(line.split()[0] for line in found) == ["pipx", "uv"]
