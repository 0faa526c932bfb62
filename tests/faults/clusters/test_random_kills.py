"""kill -9 at any moment, of `remuda up`, the program of a Job, the agent of a host, the distribution on it, its
tunnel or whoever keeps those running, while a cluster lives: it comes to be what was declared, no host is made twice,
no plan is followed twice, and nothing is left.

    REMUDA_SEED=7 pytest tests/faults/clusters

The seed decides who is killed and when; how far the others have come by then is up to the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.faults.clusters.scenario import ClusterScenario, provide
from tests.faults.conftest import Campaign
from tests.faults.supervised_up import SupervisedUp, running
from tests.lab.killable import AGENT, DISTRIBUTION, TUNNEL, UNIT_KEEPER, program_name

_PAUSE = 1.5  # seconds between two kills, at most
_EARLY = 0.2  # so often `up` is killed while it starts
_JOB = 0.5  # so often a Job dies while there is one: they are rare
_WEIGHTS = {"up": 2, "a Job": 0, AGENT: 3, DISTRIBUTION: 3, TUNNEL: 1, UNIT_KEEPER: 1}


class Killer:
    def __init__(self, up: SupervisedUp, kills: int, campaign: Campaign) -> None:
        self._up = up
        self._kills = kills
        self._campaign = campaign
        self._chance = campaign.chance
        self.enough = asyncio.Event()
        self.killed: Counter[str] = Counter()

    async def run(self, scenario: ClusterScenario) -> None:
        while not self._campaign.is_over():
            await asyncio.sleep(self._chance.uniform(0, _PAUSE))
            if not self._is_time(scenario):
                continue
            if self._chance.random() > _EARLY:
                await self._up.program.ready()
            found = await asyncio.to_thread(self._victims)
            who = self._choose(found)
            if found[who]:
                self._kill(who, self._chance.choice(found[who]))
        self.enough.set()

    def _choose(self, found: dict[str, list[int]]) -> str:
        """Whose turn it is, there or not: where hosts are to come yet, `up` is not killed all the more. Whoever has not
        died yet comes first, so that a short campaign, too, has killed everybody."""
        if new := [who for who, pids in found.items() if pids and not self.killed[who]]:
            return self._chance.choice(new)
        if found["a Job"] and self._chance.random() < _JOB:
            return "a Job"
        (who,) = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        return who

    def _is_time(self, scenario: ClusterScenario) -> bool:
        """Each stage has its share: kills that come as fast as they can would keep the first from ever ending. When
        it goes there are some more."""
        return self.killed.total() < self._kills * (scenario.stages_done + 1) / (len(scenario.stages()) - 1)

    def _victims(self) -> dict[str, list[int]]:
        """Who is alive, by what it is."""
        found: dict[str, list[int]] = {who: [] for who in _WEIGHTS}
        if self._up.program.alive:
            found["up"].append(self._up.program.pid)
        found["a Job"] += self._up.jobs()
        for pid, words in self._up.programs():
            if who := program_name(words):
                found[who].append(pid)
        return found

    def _kill(self, who: str, pid: int) -> None:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)
            self.killed[who] += 1
            self._campaign.done = self.killed.total()
        if self.killed.total() >= self._kills:
            self.enough.set()


async def test_cluster_survives_random_kills_of_any_process(tmp_path: Path, campaign: Campaign) -> None:
    kills = campaign.plan(30, full=105)
    provide(tmp_path / "data", tmp_path)
    async with running(tmp_path) as (up, client):
        killer = Killer(up, kills, campaign)
        scenario = ClusterScenario(up, client, killer.enough)
        try:
            async with asyncio.TaskGroup() as together:  # whoever breaks ends the other
                killing = together.create_task(killer.run(scenario))
                await scenario.run()
                killing.cancel()
        finally:
            print(f"{killer.killed.total()} kills: {dict(killer.killed)}")
        assert killer.killed
        if not campaign.is_over():
            assert killer.killed.total() >= kills
            assert killer.killed.keys() == _WEIGHTS.keys()
