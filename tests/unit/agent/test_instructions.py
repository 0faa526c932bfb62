"""One instruction, as a real process."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import instructions
from remuda.agent.config import Config
from remuda.agent.formats import MOST_OUTPUT
from remuda.agent.instructions import BoundedOutput, InstructionError, Stopped, run
from remuda.agent.plan import Instruction
from remuda.agent.rules import Result
from tests.lab.limits import LIMIT_SECONDS


def shell(script: str, **more: object) -> Instruction:
    return Instruction(name="test", command="sh", args=("-c", script), **more)  # type: ignore[arg-type]


def go(
    instruction: Instruction, folder: Path, config: Config | None = None, stop: threading.Event | None = None
) -> Result:
    return run(instruction, str(folder / "dir"), attempt=4, config=config or Config(), stop=stop or threading.Event())


def test_instruction_returns_stdout_stderr_and_exit_code(tmp_path: Path) -> None:
    assert go(shell("printf out; printf err >&2; exit 3"), tmp_path) == Result(3, b"out", b"err")


def test_instruction_runs_in_its_directory_with_merged_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    script = 'pwd; echo "$INHERITED $GIVEN $CATTLE_AGENT_ATTEMPT_NUMBER $CATTLE_AGENT_EXECUTION_PWD"; echo "$PATH"'
    result = go(shell(script, env=("GIVEN=a=b", "PATH=/nowhere", "INHERITED=changed")), tmp_path)
    folder = str(tmp_path / "dir")
    assert result.stdout.decode().splitlines() == [folder, f"changed a=b 4 {folder}", f"{os.environ['PATH']}:{folder}"]


def test_instruction_without_command_defaults_to_run_sh(tmp_path: Path) -> None:
    with pytest.raises(InstructionError, match=r"run\.sh does not exist"):
        go(Instruction(), tmp_path)


def test_unstartable_command_raises_instruction_error(tmp_path: Path) -> None:
    with pytest.raises(InstructionError, match="no-such-program does not exist"):
        go(Instruction(command="no-such-program"), tmp_path)
    script = tmp_path / "script"
    script.write_text("x")
    with pytest.raises(InstructionError, match="is not executable"):
        run(Instruction(command=str(script)), str(tmp_path / "b"), attempt=1, config=Config(), stop=threading.Event())


def test_command_killed_by_signal_returns_negative_exit_code(tmp_path: Path) -> None:
    assert go(shell("kill -9 $$"), tmp_path).exit_code == -9


def test_very_long_output_line_is_read_and_truncated(tmp_path: Path) -> None:
    result = go(shell("head -c 3000000 /dev/zero | tr '\\0' x; echo end"), tmp_path)
    assert result.exit_code == 0
    assert len(result.stdout) < MOST_OUTPUT + 100
    assert result.stdout.endswith(b"xend\n")


def test_background_process_left_by_command_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_AFTERWARDS_SECONDS", 0.2)
    pid = int(go(shell("sleep 3600 & echo $!"), tmp_path).stdout)
    os.kill(pid, 9)  # which fails for one that has ended


def test_command_output_is_kept_when_read_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host the agent may not run for longer than it reads on after the end of a command."""
    monkeypatch.setattr(instructions, "_AFTERWARDS_SECONDS", -1.0)
    monkeypatch.setattr(subprocess.Popen, "poll", lambda process: process.wait())
    result = go(shell("head -c 60000 /dev/zero; printf end >&2"), tmp_path)
    assert (len(result.stdout), result.stderr) == (60000, b"end")


def test_endless_output_of_background_process_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_AFTERWARDS_SECONDS", 0.0)
    result = go(shell("yes >&2 & echo $!"), tmp_path)
    os.kill(int(result.stdout), 9)


def test_command_with_closed_output_is_awaited(tmp_path: Path) -> None:
    assert go(shell("exec >&- 2>&-; sleep 0.7; exit 5"), tmp_path).exit_code == 5


class Clock:
    """Stands in for `time`: an hour passes when there is a file, but not before it was asked for the first time."""

    sleep = staticmethod(time.sleep)

    def __init__(self, file: Path) -> None:
        self._file = file
        self._asked = False

    def monotonic(self) -> float:
        passed = self._asked and self._file.exists()
        self._asked = True
        return time.monotonic() + (3600.0 if passed else 0.0)


def test_instruction_timeout_kills_process_group_ignoring_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instructions, "time", Clock(tmp_path / "deaf"))
    monkeypatch.setattr(instructions, "_GRACE_SECONDS", 0.2)
    script = f"trap '' TERM; sleep 3600 & echo $!; touch {tmp_path}/deaf; wait; sleep 3600"  # children are deaf, too
    result = go(shell(script), tmp_path, Config(instruction_timeout_seconds=1800))
    assert result.exit_code == -9
    assert b"ended after 1800 seconds" in result.stderr
    assert _is_gone(int(result.stdout))


def test_stop_event_ends_running_instruction(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Stopped):
        go(shell("sleep 3600"), tmp_path, stop=stop)


def _is_gone(pid: int) -> bool:
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(1, 40).map(lambda half: 2 * half))
def test_truncated_output_keeps_head_and_tail(chunks: list[bytes], most: int) -> None:
    kept, whole = BoundedOutput(most), b"".join(chunks)
    for chunk in chunks:
        kept.add(chunk)
    found = kept.content()
    if len(whole) <= most:
        assert found == whole
    else:
        mark = f"\n[{len(whole) - most} bytes left out]\n".encode()
        assert found == whole[: most // 2] + mark + whole[len(whole) - most // 2 :]
