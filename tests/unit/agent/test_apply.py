from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from remuda.agent.apply import carry_out
from remuda.agent.config import Config
from remuda.agent.plan import parse


def test_plan_without_files_is_applied_without_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    content = b'{"instructions": [{"command": "true"}]}'
    config = Config(
        work_directory=str(tmp_path / "work"),
        applied_plan_directory=str(tmp_path / "applied"),
        interlock_directory=str(tmp_path / "interlock"),
    )
    outcome = carry_out(parse(content), content, "0" * 64, 1, config, threading.Event())
    assert outcome.failure == ""
    assert len(list((tmp_path / "applied").iterdir())) == 1
    assert synced == []
