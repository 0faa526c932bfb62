"""Programs that are forked behave like programs that are started: `tests.lab.forks`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.lab.ports import free_port
from tests.lab.programs import Program

PROGRAM = ("-m", "remuda.cli.main")


def apiserver(folder: Path) -> Program:
    place = ("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{free_port()}")
    return Program("apiserver", (*PROGRAM, "apiserver", *place), folder, forked=True)


async def test_forked_program_serves_and_stops(tmp_path: Path) -> None:
    program = apiserver(tmp_path)
    await program.start()
    assert await program.ready()
    assert f"pid {program.pid}" in program.printed
    assert await program.stop() == 0


async def test_forked_program_can_be_killed_and_started_again(tmp_path: Path) -> None:
    program = apiserver(tmp_path)
    for _ in range(2):
        await program.start()
        assert await program.ready()
        program.kill()
        assert await program.ended() == -signal.SIGKILL
        assert not program.alive
    assert program.lives == 2


@pytest.mark.parametrize("forked", [True, False])
async def test_forked_and_started_programs_have_same_exit_code_and_errors(tmp_path: Path, forked: bool) -> None:
    program = Program("refused", (*PROGRAM, "up", "--listen", "nowhere"), tmp_path, forked=forked)
    await program.start()
    assert await program.ended() == 2
    assert "Usage:" in program.said


async def test_forked_program_dies_at_its_crash_point(tmp_path: Path) -> None:
    config = tmp_path / "data" / "admin.kubeconfig"
    engine = apiserver(tmp_path)
    await engine.start()
    assert await engine.ready()
    arguments = (*PROGRAM, "manager", "--no-leader-elect", "--kubeconfig", str(config))
    manager = Program("manager", arguments, tmp_path, forked=True)
    await manager.start({"REMUDA_CRASH_AT": "definitions.install:before"})
    assert await manager.ended() == -signal.SIGKILL
    assert manager.crash_point == "definitions.install:before"
    await engine.stop()
