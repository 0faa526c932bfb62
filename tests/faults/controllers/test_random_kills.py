"""kill -9 at any moment, of any process, while clusters live: they come to be what they should be, and nothing is left.

    REMUDA_SEED=7 pytest tests/faults/controllers/test_random_kills.py

The seed decides who is killed and when; how far the others have come by then is up to the machine.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

from remuda.lab.simulator.kinds import NEW, OLD
from tests.faults.conftest import Campaign
from tests.faults.controllers.scenario import Scenario
from tests.faults.controllers.supervised_programs import SupervisedPrograms, supervised_programs
from tests.lab.programs import Program

LONGEST = 1.5  # seconds a process is given once it is ready
EARLY = 0.2  # so often it is killed while it starts


class Killings:
    """Kills spread over two scenarios, one of each contract, and over as many more pairs as it takes."""

    def __init__(self, found: SupervisedPrograms, victims: dict[Program, int], kills: int, campaign: Campaign) -> None:
        self._programs = found
        self._victims = victims  # with their weights
        self._kills = kills
        self._campaign = campaign
        self._chance = campaign.chance
        self._scenarios: list[Scenario] = []
        self.killed: Counter[str] = Counter()

    async def run(self) -> None:
        killing = asyncio.create_task(self._kill())
        try:
            for number in itertools.count():  # a name of its own for each: the cloud's journal is kept by name
                if self._is_over():
                    break
                self._scenarios = [
                    Scenario(self._programs, NEW, f"new-{number}"),
                    Scenario(self._programs, OLD, f"old-{number}"),
                ]
                await asyncio.gather(*(scenario.run() for scenario in self._scenarios))
        finally:
            killing.cancel()
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.killed.items()))
        print(f"{self.killed.total()} kills: {counts}")

    async def _kill(self) -> None:
        while not self._is_over():
            await self._programs.view.until(self._is_time, "the scenarios go on")
            (victim,) = self._chance.choices(list(self._victims), list(self._victims.values()))
            if self._chance.random() > EARLY:
                await victim.ready()
            await asyncio.sleep(self._chance.uniform(0, LONGEST))
            if victim.alive:
                victim.kill()
                self.killed[victim.name] += 1
                self._campaign.done = self.killed.total()
                await victim.ended()

    def _is_over(self) -> bool:
        return self.killed.total() >= self._kills or self._campaign.is_over()

    def _is_time(self) -> bool:
        """Each stage has its share: kills that come as fast as they can would keep the first from ever ending."""
        stages = sum(len(scenario.stages()) for scenario in self._scenarios)
        told = sum(scenario.stages_done for scenario in self._scenarios)
        return self.killed.total() < self._kills * (told + 2) / stages if stages else False


async def test_clusters_survive_random_kills_of_any_process(tmp_path: Path, campaign: Campaign) -> None:
    async with supervised_programs(tmp_path) as found:
        victims = {found.manager: 8, found.providers: 2, found.engine: 1}
        await Killings(found, victims, campaign.plan(30, full=100), campaign).run()


async def test_clusters_survive_random_kills_of_single_process_setup(tmp_path: Path, campaign: Campaign) -> None:
    async with supervised_programs(tmp_path, together=True) as found:
        await Killings(found, {found.engine: 1}, campaign.plan(6, full=12), campaign).run()
