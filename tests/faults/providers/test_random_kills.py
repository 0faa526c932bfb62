"""kill -9 at any moment, of `remuda up` or of the program of any Job, while machines come and go: each gets one server,
and nothing is left.

    REMUDA_SEED=7 pytest tests/faults/providers/test_random_kills.py

The seed decides who is killed and when; how far the others have come by then is up to the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from tests.faults.conftest import Campaign
from tests.faults.providers import drifter
from tests.faults.providers.scenario import MachinesScenario, existing_server_pair
from tests.faults.supervised_up import SupervisedUp, running

_LONGEST = 1.5  # seconds that `up` is given once it is ready
_EARLY = 0.2  # so often it is killed while it starts
_UP = 0.6  # so often it is the one to die, and not a Job
_LOOK_SECONDS = 0.02


class Killer:
    def __init__(self, up: SupervisedUp, scenario: MachinesScenario, kills: int, campaign: Campaign) -> None:
        self._up = up
        self._scenario = scenario
        self._kills = kills
        self._campaign = campaign
        self._chance = campaign.chance
        self.killed: Counter[str] = Counter()

    async def run(self) -> None:
        while self.killed.total() < self._kills and not self._campaign.is_over():
            while not self._is_time():
                await asyncio.sleep(_LOOK_SECONDS)
            if self._chance.random() < _UP:
                await self._kill_up()
            else:
                await self._kill_job()

    def _is_time(self) -> bool:
        """Each stage has its share: kills that come as fast as they can would keep the first from ever ending."""
        return self.killed.total() < self._kills * (self._scenario.stages_done + 1) / (len(self._scenario.stages()) - 1)

    async def _kill_up(self) -> None:
        victim = self._up.program
        if self._chance.random() > _EARLY:
            await victim.ready()
        await asyncio.sleep(self._chance.uniform(0, _LONGEST))
        if victim.alive:
            victim.kill()
            self._count("up")
            await victim.ended()

    def _count(self, who: str) -> None:
        self.killed[who] += 1
        self._campaign.done = self.killed.total()

    async def _kill_job(self) -> None:
        """One of those that run, or of their supervisors, once there is any; some stages need none."""
        told = self._scenario.stages_done
        while not (running := await asyncio.to_thread(self._up.jobs)):
            if self._scenario.stages_done != told:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            os.kill(self._chance.choice(running), signal.SIGKILL)
            self._count("a Job")
        except ProcessLookupError:
            pass  # it has ended meanwhile


async def test_machines_survive_random_kills_of_any_process(tmp_path: Path, campaign: Campaign) -> None:
    kills = campaign.plan(15, full=30)
    site = drifter.install(tmp_path / "site")
    async with (
        existing_server_pair(tmp_path) as existing_servers,
        running(tmp_path, environment=site) as (up, client),
    ):
        scenario = MachinesScenario(up, client, "herd", existing_servers)
        killer = Killer(up, scenario, kills, campaign)
        killing = asyncio.create_task(killer.run())
        try:
            await scenario.run()
        finally:
            killing.cancel()
        print(f"{killer.killed.total()} kills: {dict(killer.killed)}")
        assert killer.killed
        assert killer.killed.total() == kills or campaign.is_over()
