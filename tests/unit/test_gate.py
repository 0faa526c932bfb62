"""The gate, .ci/run, on suites that end at once: its lanes, its verdict and its last lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.limits import LIMIT_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_BUILD = '#!/bin/sh\n[ "$1" != --cached ] || [ "$2" = built ]\n'  # the only peer that is in the cache is "built"


class Gate:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in (".ci", "interop"):
            (folder / name).mkdir()
        shutil.copy(_ROOT / ".ci" / "run", folder / ".ci" / "run")
        (folder / "Makefile").write_text("setup:\n\t@true\n")
        for name, text in (("build", _BUILD), ("packages", "#!/bin/sh\n")):
            (folder / "interop" / name).write_text(text)
            (folder / "interop" / name).chmod(0o755)

    def run(self, *suites: str) -> tuple[int, str]:
        (self._folder / ".ci" / "suites").write_text("# a comment\n" + "\n".join(suites) + "\n")
        command = ["bash", ".ci/run"]
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL
        )
        return done.returncode, done.stdout


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_gate_passes_if_all_suites_pass(gate: Gate) -> None:
    code, said = gate.run("one packages echo first", "two peers echo second", "three k3s true", "four kube true")
    assert code == 0
    assert "first" in said
    assert "second" in said
    assert [line.split()[:2] for line in said.splitlines()[-8:]] == [
        ["k3s", "built"],
        ["kube", "built"],
        ["peers", "built"],
        ["one", "ok"],
        ["two", "ok"],
        ["three", "ok"],
        ["four", "ok"],
        ["quarantined", "tests:"],
    ]
    assert said.endswith("quarantined tests: 0\n")


def test_gate_fails_if_a_suite_fails_and_still_runs_the_others(gate: Gate) -> None:
    code, said = gate.run("bad packages ls /does/not/exist", "good packages echo fine")
    assert code == 1
    assert "fine" in said
    assert said.count("/does/not/exist'") == 2  # where it happened, and again near the end
    assert [line.split()[:2] for line in said.splitlines()[-3:-1]] == [["bad", "FAILED"], ["good", "ok"]]


def test_gate_names_suites_whose_peers_are_not_built(gate: Gate) -> None:
    code, said = gate.run("old cached:built echo old runs", "new cached:flux echo new runs")
    assert code == 0
    assert "old runs" in said
    assert "=== new is not run: build its peer first with: interop/build flux" in said
    assert "not run, because their peers are not built: new\n" in said
    assert "=== new begins" not in said


def test_gate_counts_quarantined_tests(gate: Gate) -> None:
    code, said = gate.run("one packages echo quarantined: tests/a.py::test_b: slow (owner: tunnel)")
    assert code == 0
    assert said.endswith("quarantined tests: 1\nquarantined: tests/a.py::test_b: slow (owner: tunnel)\n")


_FLAKY = """
import pytest

@pytest.mark.quarantine(reason="a race", owner="tunnel")
def test_flaky():
    assert False
"""


def _pytest(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.lab.quarantine",
        str(folder),
        "--rootdir",
        str(folder),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)


def test_quarantined_test_may_fail_and_is_listed(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _FLAKY)
    assert done.returncode == 0
    assert "quarantined: test_it.py::test_flaky: a race (owner: tunnel)" in done.stdout


def test_quarantine_without_owner_is_an_error(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _FLAKY.replace(', owner="tunnel"', ""))
    assert done.returncode != 0
    assert "quarantine needs reason=... and owner=..." in done.stdout + done.stderr
