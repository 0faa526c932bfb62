"""`--wait` ends with exit code 1 and the cause at each permanent failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from remuda.cli import exit_codes, progress
from remuda.provisioning import blocker
from remuda.provisioning.tree import Branch
from tests.unit.provisioning.test_blocker import PERMANENT, capi, declared


@asynccontextmanager
async def _no_changes(*_: object) -> AsyncIterator[asyncio.Event]:
    yield asyncio.Event()


@pytest.mark.parametrize("part", PERMANENT.values(), ids=PERMANENT.keys())
def test_wait_exits_with_1_and_shows_cause(
    part: Callable[[], Branch], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = declared(capi(part()))

    async def look(*_: object) -> Branch:
        return root

    monkeypatch.setattr(progress, "_look", look)
    monkeypatch.setattr(progress, "_changes", _no_changes)
    monkeypatch.setattr(progress, "_SURE_SECONDS", 0.1)
    monkeypatch.setattr(progress, "connected", lambda _, work: asyncio.run(work(None)))
    with pytest.raises(SystemExit) as ended:
        progress.wait(None, "fleet-default", "prairie", timeout=60.0)
    assert ended.value.code == exit_codes.NO
    shown = " ".join(capsys.readouterr().err.split())
    chain = blocker.blocking(root)
    assert " ".join(chain[-1].judgement.message.split()) in shown
    assert " ".join(blocker.next_line(chain).split()) in shown
