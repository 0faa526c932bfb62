"""A Job's program as a process: what it is started with, and what it cannot be made to import."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from remuda.jobs.launching import Work
from remuda.jobs.materials import File, Materials
from remuda.jobs.processes import Processes
from tests.lab.limits import LIMIT_SECONDS

WORDS = '["show-env", "PYTHONPATH", "show-env", "LD_PRELOAD", "show-env", "REMUDA_CRASH_AT"]'


async def test_program_imports_nothing_from_its_directory_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loot = tmp_path / "loot"
    code = f"import pathlib; pathlib.Path({str(loot)!r}).write_text('owned')".encode()
    evil = {f"/evil/{name}.py": File(code, 0o644) for name in ("sitecustomize", "usercustomize", "json", "runpy")}
    work = Work(
        uid="1",
        name="default/job",
        materials=Materials(files={**evil, "/run/words/words.json": File(WORDS.encode(), 0o600)}, directories=()),
        termination_path="/dev/termination-log",
    )
    launcher = Processes(tmp_path / "jobs", tmp_path / "hosts", program="tests.lab.job_program")
    monkeypatch.setenv("PYTHONPATH", "../root/evil")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("REMUDA_CRASH_AT", "nowhere")
    monkeypatch.syspath_prepend(str(tmp_path / "jobs" / "1" / "root" / "evil"))
    monkeypatch.syspath_prepend("../root/evil")
    monkeypatch.chdir(os.path.dirname(__file__))
    started = await launcher.start(work)
    async with asyncio.timeout(LIMIT_SECONDS):
        code_of_it = await started.wait()
    log = launcher.log("1")
    assert log is not None
    said = log.read(0)[0].decode()
    assert code_of_it == 0, said
    assert not loot.exists()
    lines = [line.rpartition(" ")[2] for line in said.splitlines()]
    assert lines == ["PYTHONPATH=None", "LD_PRELOAD=None", "REMUDA_CRASH_AT=nowhere"]
