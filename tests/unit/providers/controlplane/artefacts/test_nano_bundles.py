"""nano's artefacts, made when they are wanted."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.providers.controlplane.artefacts import Artefacts, BadArtefact, nano_bundles
from remuda.providers.controlplane.artefacts.nano_bundles import VERSION, Packing
from remuda.providers.controlplane.installation import AGAIN_SECONDS, Bundles
from remuda.runtime.tasks import Tasks

KEY = Key("fleet-default", "prairie")


async def test_packed_nano_is_found_in_store(tmp_path: Path) -> None:
    store = Packing(tmp_path / "store")
    assert store.lookup("nano", VERSION) == {}
    await store.pack("nano", VERSION)
    assert set(store.lookup("nano", VERSION)[nano_bundles.architecture()]) == {nano_bundles.NAME}
    [kept] = Artefacts(tmp_path / "store").every()
    assert (kept.version, Artefacts(tmp_path / "store").verify(kept)) == (VERSION, "")


async def test_other_distributions_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(BadArtefact, match="k3s"):
        await Packing(tmp_path / "store").pack("k3s", "v1.36.4+k3s1")
    assert not (tmp_path / "store").exists()


async def test_packing_failure_reports_cause(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadArtefact, match="Not a directory"):
        await Packing(tmp_path / "file" / "store").pack("nano", VERSION)


async def test_cancelled_packing_kills_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = tmp_path / "python"
    script.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new && mv {tmp_path}/pid.new {tmp_path}/pid && exec cat {tmp_path}/fifo\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    packing = asyncio.create_task(Packing(tmp_path / "store").pack("nano", VERSION))
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)
    packing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await packing
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


class Packs:
    """Ends when it is told to, one attempt after the other."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.ends: list[asyncio.Future[None]] = []

    async def __call__(self, distro: str, version: str) -> None:
        self.begun.append((distro, version))
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[-1]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_control_planes_share_one_packing_and_are_requeued_at_end() -> None:
    packs, woken, tasks = Packs(), list[Key](), Tasks()
    bundles = Bundles(packs, tasks, woken.append)
    other = Key("fleet-default", "mesa")
    first = bundles.wait(KEY, "nano", VERSION)
    assert first is not None
    assert (first.reason, first.missing) == ("Packing", f"packing nano {VERSION} from the manager's own installation")
    assert first.since is not None
    await turn()
    assert bundles.wait(other, "nano", VERSION) == first
    await turn()
    assert (packs.begun, woken) == ([("nano", VERSION)], [])
    packs.ends[0].set_result(None)
    await turn()
    assert sorted(woken) == [other, KEY]
    await tasks.close()


async def test_failed_packing_is_reported_and_retried_later() -> None:
    packs, woken, tasks = Packs(), list[Key](), Tasks()
    bundles = Bundles(packs, tasks, woken.append)
    now = 1000.0
    clock.use(lambda: now)
    try:
        bundles.wait(KEY, "nano", VERSION)
        await turn()
        packs.ends[0].set_exception(BadArtefact("disk full"))
        await turn()
        assert woken == [KEY]
        told = bundles.wait(KEY, "nano", VERSION)
        await turn()
        assert told is not None
        assert (told.reason, told.since, len(packs.begun)) == ("PackingFailed", now, 1)
        assert "disk full" in told.missing
        now += AGAIN_SECONDS
        assert bundles.wait(KEY, "nano", VERSION) == told
        await turn()
        assert len(packs.begun) == 2
    finally:
        clock.use(None)
        await tasks.close()


def test_bundles_without_packer_return_no_wait() -> None:
    assert Bundles(None, Tasks(), lambda key: None).wait(KEY, "nano", VERSION) is None
