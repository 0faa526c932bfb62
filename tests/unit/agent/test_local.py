"""Plans from files, and the files by which the agent and its installer keep out of each other's way."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from remuda.agent import interlock, local
from remuda.agent.config import Config
from remuda.agent.formats import unix_date
from tests.unit.agent.host import shell


def config(folder: Path) -> Config:
    return Config(work_directory=str(folder / "work"), local_plan_directory=str(folder / "plans"), local_enabled=True)


def position(folder: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "plans" / f"{name}.pos").read_text())
    return found


def test_local_plans_run_in_order_and_again_only_when_changed(tmp_path: Path) -> None:
    (tmp_path / "plans/deeper").mkdir(parents=True)
    runs = tmp_path / "runs"
    for name in ("b.plan", "deeper/a.plan", "skipped.plan", ".hidden.plan", "other.txt"):
        plan = {"instructions": [shell(f"echo {name} >> {runs}; exit {int(name == 'b.plan')}", "n", saveOutput=True)]}
        (tmp_path / "plans" / name).write_text(json.dumps(plan))
    (tmp_path / "plans/skipped.plan.skip").touch()
    for _ in range(2):
        local.look(config(tmp_path), threading.Event())
    assert runs.read_text().split() == ["b.plan", "deeper/a.plan"]  # one that failed is not tried again
    (tmp_path / "plans/b.plan").write_text(json.dumps({"instructions": [shell(f"echo changed >> {runs}")]}))
    local.look(config(tmp_path), threading.Event())
    assert runs.read_text().split()[-1] == "changed"
    assert position(tmp_path, "b.plan")["appliedChecksum"]


def test_pending_restart_delays_plans_for_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 2_000_000_000.0
    monkeypatch.setattr(interlock.time, "time", lambda: now)
    folder, pending = str(tmp_path), tmp_path / interlock.PENDING
    assert interlock.seconds_to_wait(folder) == 0
    assert interlock.seconds_to_wait("") == 0
    pending.touch()
    assert interlock.seconds_to_wait(folder) == 300
    now += 10
    assert interlock.seconds_to_wait(folder) == 290
    pending.write_text(unix_date(4_000_000_000))  # a clock that was wrong
    assert interlock.seconds_to_wait(folder) == 300
    pending.write_text(unix_date(1_000_000_000))
    assert interlock.seconds_to_wait(folder) == 0
    assert not pending.exists()


def test_interlock_active_marker_exists_during_run_and_stale_marker_is_removed(tmp_path: Path) -> None:
    active = tmp_path / interlock.ACTIVE
    with interlock.active(str(tmp_path)):
        assert active.exists()
    assert not active.exists()
    active.touch()
    interlock.clean(str(tmp_path))
    assert not active.exists()
