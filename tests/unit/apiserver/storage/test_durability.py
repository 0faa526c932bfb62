"""A few rounds of the fault campaigns, and proof that their checker catches a store that does not sync."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from remuda.apiserver.storage import disk
from remuda.apiserver.storage.disk import Disk
from remuda.apiserver.storage.writer import StoreWriter
from tests.faults.storage.campaigns import kills, power_cuts, power_cuts_of_a_failing_disk
from tests.faults.storage.checker import Checker


@pytest.fixture
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_CHECKPOINT_PAGES", 100)


Campaign = Callable[[Path, Iterable[int], int], Checker]


def caught(home: Path, campaign: Campaign) -> list[str]:
    """What the checker finds first. Threads keep their own time whatever the seed, so a fault may need more than one
    campaign to show; a sound store shows nothing in any."""
    for seed in range(7, 27):
        folder = home / str(seed)
        folder.mkdir()
        problems = campaign(folder, range(20), seed).finish()
        if problems:
            return problems
    return []


@pytest.mark.usefixtures("frequent_checkpoints")
def test_store_survives_power_cuts(tmp_path: Path) -> None:
    checker = power_cuts(tmp_path, rounds=range(12), seed=7)
    assert checker.finish() == []
    assert checker.counts["Acknowledged"] > 50


@pytest.mark.usefixtures("frequent_checkpoints")
def test_store_survives_power_cuts_with_failing_disk(tmp_path: Path) -> None:
    checker = power_cuts_of_a_failing_disk(tmp_path, rounds=range(12), seed=7)
    assert checker.finish() == []
    assert checker.counts["Failed"] > 10


@pytest.mark.usefixtures("frequent_checkpoints")
def test_checker_detects_store_committing_writes_based_on_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(self: StoreWriter) -> bool:
        return True  # does not wait for the loop to have forgotten them

    monkeypatch.setattr(StoreWriter, "_skip_to_resume", careless)
    assert caught(tmp_path, power_cuts_of_a_failing_disk)


def test_store_survives_process_kills(tmp_path: Path) -> None:
    checker = kills(tmp_path, rounds=range(10), seed=7)
    assert checker.finish() == []
    assert checker.counts["Acknowledged"] > 10


@pytest.mark.usefixtures("frequent_checkpoints")
def test_checker_detects_store_without_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure = Disk._configure

    def careless(self: Disk) -> None:
        configure(self)
        self._connection.pragma("synchronous", 0)

    monkeypatch.setattr(Disk, "_configure", careless)
    assert caught(tmp_path, power_cuts)


@pytest.mark.usefixtures("frequent_checkpoints")
def test_checker_detects_store_syncing_only_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure = Disk._configure

    def careless(self: Disk) -> None:
        configure(self)
        self._connection.pragma("synchronous", 1)  # keeps the file sound, but loses the last commits

    monkeypatch.setattr(Disk, "_configure", careless)
    problems = caught(tmp_path, power_cuts)
    assert any("was known to clients" in problem for problem in problems), problems
