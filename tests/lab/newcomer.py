"""A newcomer: a user with an empty home who types the commands of pages on a terminal, without root."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.page_commands import commands
from tests.lab.peers import peer_path
from tests.lab.ports import free_port
from tests.lab.terminal import Session

ROOT = Path(__file__).parents[2]
USER = 65534  # nobody
_SOURCES = ("src", "examples", "docs", "Makefile", "pyproject.toml", "README.md", "LICENSE")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
_PROMPT = re.compile(r"newcomer:([0-9]+)> $")
_QUESTION = re.compile(r"\[y/N\]: $")
_INHERITED = re.compile(r"(PIP|UV)_\w+|\w+_(PROXY|proxy)|SSL_CERT_\w+|REQUESTS_CA_BUNDLE", re.ASCII)
_INSTALL = 4  # lines of the README that install the program


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

    def install(self) -> None:
        """Install the program as the README says."""
        lines = commands((ROOT / "README.md").read_text())[:_INSTALL]
        assert lines[-1].startswith("export PATH="), lines
        with self.shell() as shell:
            typist = Typist(shell, "README.md")
            for line in lines:
                typist.type(line)

    def write(self, name: str, content: str) -> Path:
        """Write a private file into the home."""
        path = self.home / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(content)
        if self._identity:
            for made in {path.parent, path} - {self.home}:
                os.chown(made, USER, USER)
        return path

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


class Typist:
    """The newcomer's shell. `page`: where its commands come from, for messages."""

    def __init__(self, shell: Session, page: str) -> None:
        self._shell = shell
        self._page = page
        self._until_prompt(0)

    def type(self, line: str) -> str:
        """Type a command, answer its questions with yes, and return what it shows. Fails unless it ends well."""
        begin = len(self._shell.shown)
        self._shell.type(f"{line}\n")
        code = self._until_prompt(begin)
        shown = _CONTROL.sub("", self._shell.shown[begin:])
        assert code == 0, f"{line!r} of {self._page} ends with exit code {code}: {shown}"
        assert "Traceback" not in shown
        return shown

    def _until_prompt(self, begin: int) -> int:
        """Return the exit code of the last command. Answer its questions with yes."""
        deadline = time.monotonic() + 2 * LIMIT_SECONDS
        answered = begin
        while True:
            found = _CONTROL.sub("", self._shell.shown[answered:])
            if prompt := _PROMPT.search(found):
                return int(prompt[1])
            if _QUESTION.search(found):
                answered = len(self._shell.shown)
                self._shell.type("y\n")
            assert time.monotonic() < deadline, f"no prompt: {self._shell.shown[begin:]}"
            assert self._shell.listen(deadline - time.monotonic()), f"the shell has ended: {self._shell.shown[begin:]}"
