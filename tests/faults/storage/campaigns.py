"""The campaigns: a store that loses power, or its process, over and over, under load."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from remuda.apiserver.storage.types import StoreCorrupt, StoreUnusable
from tests.faults.storage.checker import Attempted, Checker, Failed, Record, Started
from tests.faults.storage.forker import Forker, Life
from tests.faults.storage.load import live, new_checker
from tests.faults.storage.powercut import Machine

# Operations on the disk before the cut: from none to some checkpoints later.
_LONGEST_LIFE = 500

# Within so many operations a new store is made and has committed its first writes.
_BIRTH = 60

# Before the kill: what the life has told since it started, so that a busy machine does not kill only idle ones, and
# then seconds. Together from the middle of opening to some hundred commits later.
_MOST_TOLD = 40
_LONGEST_PROCESS = 0.04


def power_cuts(home: Path, rounds: Iterable[int], seed: int) -> Checker:
    """Each life of the machine ends at a random disk operation; the next begins with what the disk kept."""
    rng = random.Random(seed)
    checker = new_checker()
    _lives(home, (rng.randint(1, _LONGEST_LIFE) for _ in rounds), rng, checker)
    return checker


def power_cuts_of_a_failing_disk(home: Path, rounds: Iterable[int], seed: int) -> Checker:
    """Beside the cuts, now and then an operation fails and the store goes on."""
    rng = random.Random(seed)
    checker = new_checker()
    _lives(home, (rng.randint(1, _LONGEST_LIFE) for _ in rounds), rng, checker, failure_rate=0.01)
    return checker


def power_cuts_at_birth(home: Path, seed: int) -> list[Checker]:
    """A new store loses power at each of its first operations; then lives on for a while."""
    rng = random.Random(seed)
    checkers = []
    for operation in range(1, _BIRTH + 1):
        checkers.append(checker := new_checker())
        (place := home / f"birth-{operation}").mkdir()
        _lives(place, [operation, _BIRTH, _BIRTH], rng, checker)
    return checkers


def kills(home: Path, rounds: Iterable[int], seed: int) -> Checker:
    """Each life of the process ends with SIGKILL at a random moment; the next opens the same directory."""
    rng = random.Random(seed)
    checker = new_checker()
    with Forker() as forker:
        for _ in rounds:
            life = forker.fork(home, rng.getrandbits(32), checker.positions())
            if rng.random() < 0.8:
                _take_until_started(life, checker)
                _take(life, checker, rng.randint(0, _MOST_TOLD))
            deadline = time.monotonic() + rng.random() * _LONGEST_PROCESS
            while time.monotonic() < deadline:
                _take_all(life.read(deadline - time.monotonic()), checker)
            _take_all(life.kill(), checker)
    return checker


def _lives(home: Path, cuts: Iterable[int], rng: random.Random, checker: Checker, failure_rate: float = 0.0) -> None:
    current = home / "life-0"
    current.mkdir()
    for number, cut in enumerate(cuts, 1):
        following = home / f"life-{number}"
        machine = Machine(f"{home.name}-{number}", rng, failure_rate=failure_rate)
        machine.cut_at(cut)
        try:
            asyncio.run(_life(machine, current, checker))
        except StoreUnusable as error:
            if not failure_rate or isinstance(error, StoreCorrupt):
                checker.problems.append(f"life {number} could not open the store: {error}")
                return
            checker.counts["refused to open"] += 1
        machine.cut()
        machine.leave(following)
        shutil.rmtree(current)
        current = following


async def _life(machine: Machine, home: Path, checker: Checker) -> None:
    attempted: set[int] = set()

    def report(record: Record) -> None:
        """Of what is told after the cut only failures count: a write that failed while the power was on may hear of it
        late, and another that came after it may be on disk already."""
        match record:
            case Attempted(change) if not machine.is_off:
                attempted.add(change.revision)
            case Failed(change) if change.revision in attempted:
                pass
            case _ if machine.is_off:
                return
        checker.take(record)

    try:
        await live(home, machine.rng, checker.positions(), report, vfs=machine.name)
    except Exception:
        if not machine.is_off:
            raise
        checker.counts["cut while opening"] += 1
    finally:
        machine.unregister()


def _take_until_started(life: Life, checker: Checker) -> None:
    started = False
    while not started:
        records = life.read(10.0)
        started = any(isinstance(record, Started) for record in records)
        _take_all(records, checker)


def _take(life: Life, checker: Checker, least: int) -> None:
    while least > 0 and (records := life.read(10.0)):
        _take_all(records, checker)
        least -= len(records)


def _take_all(records: list[Record], checker: Checker) -> None:
    for record in records:
        checker.take(record)
