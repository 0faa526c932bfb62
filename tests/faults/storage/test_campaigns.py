"""Durability, shown: no acknowledged write lost, no revision reused, no watcher with a gap, duplicate or reorder."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.apiserver.storage import disk
from tests.faults.conftest import Campaign
from tests.faults.storage.campaigns import kills, power_cuts, power_cuts_at_birth, power_cuts_of_a_failing_disk
from tests.faults.storage.checker import Checker

ROUNDS = (100, 300)  # of a short campaign, and of a full one


@pytest.fixture
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_CHECKPOINT_PAGES", 100)


def judge(checker: Checker, rounds: int) -> None:
    print(dict(checker.counts))
    assert checker.finish() == []
    assert checker.counts["Started"] > rounds * 0.6
    assert checker.counts["Acknowledged"] > rounds
    assert checker.counts["events"] > rounds


@pytest.mark.usefixtures("frequent_checkpoints")
def test_power_cuts_lose_no_acknowledged_writes(tmp_path: Path, campaign: Campaign) -> None:
    judge(power_cuts(tmp_path, campaign.rounds(*ROUNDS), campaign.seed), campaign.done)


@pytest.mark.usefixtures("frequent_checkpoints")
def test_power_cuts_during_store_creation_leave_usable_store(tmp_path: Path, campaign: Campaign) -> None:
    checkers = power_cuts_at_birth(tmp_path, campaign.seed)
    assert [checker.finish() for checker in checkers if checker.finish()] == []
    assert sum(checker.counts["cut while opening"] for checker in checkers) > 5


@pytest.mark.usefixtures("frequent_checkpoints")
def test_power_cuts_with_failing_disk_lose_no_acknowledged_writes(tmp_path: Path, campaign: Campaign) -> None:
    checker = power_cuts_of_a_failing_disk(tmp_path, campaign.rounds(*ROUNDS), campaign.seed)
    judge(checker, campaign.done)
    assert checker.counts["Failed"] > campaign.done


def test_process_kills_lose_no_acknowledged_writes(tmp_path: Path, campaign: Campaign) -> None:
    judge(kills(tmp_path, campaign.rounds(*ROUNDS), campaign.seed), campaign.done)
