"""The supervisor: a program does not outlive whoever started it, and leaves nothing of its group behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.jobs.log_file import LogReader
from tests.controllers.jobs import PROGRAM, alive
from tests.lab.limits import LIMIT_SECONDS


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "log").mkdir()

    def begin(*words: str, **limits: int) -> subprocess.Popen[bytes]:
        order = {"command": [sys.executable, "-m", PROGRAM, *words], "log": str(tmp_path / "log"), **limits}
        command = [sys.executable, "-m", "remuda.jobs.supervisor", json.dumps(order)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def log(tmp_path: Path) -> str:
    return LogReader(tmp_path / "log").read(0)[0].decode()


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pids(tmp_path: Path, count: int) -> list[int]:
    def found() -> list[str]:
        return re.findall(r"(?:pid|spawned) (\d+)", log(tmp_path))

    eventually(lambda: len(found()) == count)
    return [int(pid) for pid in found()]


def test_supervisor_returns_exit_code_of_program(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    assert start("say", "hello", "exit", "7").wait(LIMIT_SECONDS) == 7
    assert log(tmp_path).endswith("stdout F hello\n")


def test_closing_supervisor_stdin_kills_program_and_its_children(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("stubborn", "pid", "spawn", "600", "sleep", "600")
    found = pids(tmp_path, 2)
    assert all(map(alive, found))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(LIMIT_SECONDS) == 137
    eventually(lambda: not any(map(alive, found)))


def test_terminating_supervisor_terminates_program(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("pid", "sleep", "600")
    found = pids(tmp_path, 1)
    process.terminate()
    assert process.wait(LIMIT_SECONDS) == 143
    eventually(lambda: not any(map(alive, found)))


def test_killing_supervisor_kills_program(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    process = start("pid", "sleep", "600")
    (program,) = pids(tmp_path, 1)
    process.kill()
    eventually(lambda: not alive(program))


def test_remaining_process_group_is_killed_when_program_exits(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("spawn", "600", "exit", "0")
    assert process.wait(LIMIT_SECONDS) == 0
    (left,) = pids(tmp_path, 1)
    eventually(lambda: not alive(left))


def test_supervisor_enforces_memory_limit(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    process = start("line", str(600 * 1024 * 1024), memory=256 * 1024 * 1024)
    assert process.wait(LIMIT_SECONDS) == 1
    assert "MemoryError" in log(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"command": ["/no/such/program"]}, "cannot start /no/such/program: No such file or directory"),
        ({"nice": "much"}, "cannot start true: TypeError: "),
    ],
)
def test_program_start_failure_is_logged(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    (tmp_path / "log").mkdir()
    order = json.dumps({"command": ["true"], "log": str(tmp_path / "log"), **wrong})
    command = [sys.executable, "-m", "remuda.jobs.supervisor", order]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert process.wait(LIMIT_SECONDS) == 127
        finally:
            process.kill()
    assert words in log(tmp_path)


def test_program_exit_before_signal_setup_is_detected(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    scenario = (
        "import os, pathlib, sys\n"
        "from remuda.jobs import log_file, supervisor\n"
        "output, into = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(7)\n"
        "os.close(into)\n"
        "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
        "sys.exit(supervisor._guard(child, output, log_file.LogWriter(pathlib.Path(sys.argv[1]))))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", scenario, str(tmp_path / "log")], stdin=subprocess.PIPE)
    try:
        assert process.wait(LIMIT_SECONDS) == 7
    finally:
        process.kill()
        process.communicate()


LOOK = """
id -u; id -G; umask; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status
cat "$1/secret" 2>&1; ls "$1" "$1/jobs"; echo mine > "$2/home/made"; cat "$2/log/x" 2>&1; pwd
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as other users")
def test_confined_program_sees_only_its_own_directory() -> None:
    user = 0x70000001
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # one that every user can reach
        Path(folder).chmod(0o755)
        data = Path(folder, "data")
        place = data / "jobs" / "mine"
        for path in (place / "home", place / "log", data / "jobs" / "others"):
            path.mkdir(parents=True)
        data.chmod(0o700)
        (data / "secret").write_text("the key of the authority")
        (data / "secret").chmod(0o644)
        (place / "log" / "x").write_text("x")
        (place / "log").chmod(0o700)
        os.chown(place / "home", user, user)
        order = {
            "command": ["/bin/sh", "-c", LOOK, "sh", str(data), str(place)],
            "log": str(place / "log"),
            "confine": {"user": user, "hide": str(data), "show": str(place)},
        }
        command = [sys.executable, "-m", "remuda.jobs.supervisor", json.dumps(order)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=place / "home") as process:
            code = process.wait(LIMIT_SECONDS)
        lines = [line.partition(" F ")[2] for line in LogReader(place / "log").read(0)[0].decode().splitlines()]
        if ": unshare: " in "\n".join(lines):
            pytest.skip("no mount namespaces here")
        assert code == 0
        assert (place / "home" / "made").stat().st_uid == user
        assert (data / "secret").exists()
    assert lines == [
        str(user), str(user), "0077", "CapEff:\t0000000000000000", "NoNewPrivs:\t1",
        f"cat: {data}/secret: No such file or directory",
        f"{data}:", "jobs", "", f"{data}/jobs:", "mine",
        f"cat: {place}/log/x: Permission denied", str(place / "home"),
    ]  # fmt: skip
