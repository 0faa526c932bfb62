"""A Job's program as a process: what it is started with, and what it cannot be made to import."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from remuda.jobs import processes
from remuda.jobs.launcher import LaunchSpec
from remuda.jobs.pod_inputs import PodFile, PodInputs
from remuda.jobs.processes import Processes
from tests.lab.limits import LIMIT_SECONDS

WORDS = '["show-env", "PYTHONPATH", "show-env", "LD_PRELOAD", "show-env", "REMUDA_CRASH_AT"]'

ROOT = "uid 0, machine-job"


async def test_program_imports_nothing_from_its_directory_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loot = tmp_path / "loot"
    code = f"import pathlib; pathlib.Path({str(loot)!r}).write_text('owned')".encode()
    evil = {f"/evil/{name}.py": PodFile(code, 0o644) for name in ("sitecustomize", "usercustomize", "json", "runpy")}
    work = LaunchSpec(
        uid="1",
        name="default/job",
        materials=PodInputs(files={**evil, "/run/words/words.json": PodFile(WORDS.encode(), 0o600)}, directories=()),
        termination_path="/dev/termination-log",
    )
    launcher = Processes(tmp_path / "jobs", tmp_path / "hosts", program="tests.lab.job_program")
    monkeypatch.setenv("PYTHONPATH", "../root/evil")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("REMUDA_CRASH_AT", "nowhere")
    monkeypatch.syspath_prepend(str(tmp_path / "jobs" / "1" / "root" / "evil"))
    monkeypatch.syspath_prepend("../root/evil")
    monkeypatch.chdir(os.path.dirname(__file__))
    assert await run(launcher, work) == ["PYTHONPATH=None", "LD_PRELOAD=None", "REMUDA_CRASH_AT=nowhere"]
    assert not loot.exists()


async def run(launcher: Processes, work: LaunchSpec) -> list[str]:
    started = await launcher.start(work)
    async with asyncio.timeout(LIMIT_SECONDS):
        code = await started.wait()
    log = launcher.log(work.uid)
    assert log is not None
    lines = [line.partition(" F ")[2] for line in log.read(0)[0].decode().splitlines()]
    assert code == 0, lines
    return lines


async def test_supervisor_start_failure_is_in_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SUPERVISOR", "remuda.jobs.nobody")
    launcher = Processes(tmp_path / "jobs", tmp_path / "hosts", program="tests.lab.job_program")
    started = await launcher.start(who("1", privileged=True))
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await started.wait() == 127
    assert started.termination_message().startswith("cannot start the program: ")
    assert "remuda.jobs.nobody" in started.termination_message()


def who(uid: str, *, privileged: bool) -> LaunchSpec:
    return LaunchSpec(
        uid=uid,
        name="default/job",
        materials=PodInputs(files={"/run/a": PodFile(b"", 0o600)}, directories=()),
        termination_path="/dev/termination-log",
        privileged=privileged,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run programs as other users")
async def test_unprivileged_program_runs_as_its_own_user(caplog: pytest.LogCaptureFixture) -> None:
    """Where that user cannot read the interpreter, one warning says so."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # one that every user can reach
        Path(folder).chmod(0o755)
        data = Path(folder, "data")
        launcher = Processes(data / "jobs", data / "hosts", program="tests.unit.jobs.whoami")
        assert await run(launcher, who("1", privileged=True)) == [ROOT]
        assert caplog.messages == []
        first, second = [await run(launcher, who(uid, privileged=False)) for uid in ("2", "3")]
        assert sorted(path.name for path in (data / "jobs").iterdir()) == ["1", "2", "3"]
    if caplog.messages:
        assert len(caplog.messages) == 1
        assert "Jobs run as the user of the manager" in caplog.text
        assert ": Permission denied" in caplog.text or "unshare" in caplog.text
        assert (first, second) == ([ROOT], [ROOT])
    else:
        assert len({ROOT, *first, *second}) == 3


async def test_termination_message_does_not_follow_links_or_read_fifos(tmp_path: Path) -> None:
    launcher = Processes(tmp_path / "jobs", tmp_path / "hosts", program="tests.unit.jobs.whoami")
    started = await launcher.start(who("1", privileged=True))
    async with asyncio.timeout(LIMIT_SECONDS):
        await started.wait()
    assert started.termination_message() == "bye"
    secret = tmp_path / "termination-log"
    secret.write_text("the key of the authority")
    words = tmp_path / "jobs" / "1" / "root" / "dev" / "termination-log"
    words.unlink()
    words.symlink_to(secret)
    assert started.termination_message() == ""
    words.unlink()
    os.mkfifo(words)
    assert started.termination_message() == ""
    words.unlink()
    words.parent.rmdir()
    words.parent.symlink_to(tmp_path)
    assert started.termination_message() == ""
