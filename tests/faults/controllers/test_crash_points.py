"""The core dies before and after everything it does to the world, and what it was doing is finished all the same.

Which points there are is asked of the core itself: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from remuda.lab.simulator.kinds import FAMILIES
from tests.faults import register
from tests.faults.controllers.edge_cases import ByHand, WithoutControlPlane
from tests.faults.controllers.scenario import Scenario
from tests.faults.controllers.supervised_programs import SupervisedPrograms, supervised_programs
from tests.lab import Ours
from tests.lab.ours import OursWithWebhookRecords
from tests.lab.ports import free_port
from tests.lab.programs import Program

# Of one replica among several, and of webhooks: a test of their own comes to these.
ELSEWHERE = ("election.", "webhooks.")


def points() -> set[str]:
    """Before and after every act of the core."""
    return register.points("tests/faults/controllers/test_crash_points.py")


def edge_cases(found: SupervisedPrograms, name: str) -> list[Scenario]:
    made: list[Scenario] = []
    for family in FAMILIES:
        made += [ByHand(found, family, f"by-hand-{name}-{family.contract}")]
        made += [WithoutControlPlane(found, family, f"without-{name}-{family.contract}")]
    return made


def lives(found: SupervisedPrograms, name: str) -> list[Scenario]:
    return [Scenario(found, family, f"{name}-{family.contract}") for family in FAMILIES]


async def test_core_controllers_recover_from_crash_at_every_point(tmp_path: Path) -> None:
    everywhere = [point for point in points() if not point.startswith(ELSEWHERE)]
    async with supervised_programs(tmp_path, points=everywhere) as found:
        rounds = (
            [*lives(found, "first"), *edge_cases(found, "first")],
            edge_cases(found, "second"),
            [*lives(found, "third"), *edge_cases(found, "third")],
        )
        for scenarios in rounds:
            if found.points:  # a kill at one point may come just in time for another never to be passed
                await asyncio.gather(*(scenario.run() for scenario in scenarios))
        killed = [death.point for death in found.deaths]
        print(f"{len(killed)} kills: {', '.join(killed)}")
        assert found.points == set(), "no scenario has come here"
        assert sorted(killed) == sorted(everywhere), "it died where it was not told to"


class Replica:
    """One of several, with webhooks: killed on its way to the lead, and on its way out."""

    def __init__(self, engine: Ours, folder: Path) -> None:
        command = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(engine.kubeconfig))
        webhooks = ("--webhook-listen", f"127.0.0.1:{free_port()}")
        self._manager = Program("manager", (*command, "--lease-seconds", "3", *webhooks), folder, forked=True)
        self._removal = Program("removal", (*command, "--remove-webhooks"), folder, forked=True)
        self.points = {point for point in points() if point.startswith(ELSEWHERE)}
        self.killed: list[str] = []

    async def live(self) -> int:
        """Until it leads, and is told to stop; or until it comes to a point."""
        await self._manager.start({"REMUDA_CRASH_AT": ",".join(self.points)})
        if await self._manager.prints("leads by lease"):
            self._manager.signal(signal.SIGTERM)
        return await self._ended(self._manager)

    async def give_up(self) -> int:
        """For good: the webhooks are taken back."""
        await self._removal.start({"REMUDA_CRASH_AT": ",".join(self.points)})
        return await self._ended(self._removal)

    async def _ended(self, program: Program) -> int:
        code = await program.ended()
        if code == -signal.SIGKILL:
            self.killed.append(program.crash_point)
            self.points.remove(program.crash_point)
        return code


async def test_replica_recovers_from_crash_while_gaining_or_losing_lead(tmp_path: Path) -> None:
    engine = OursWithWebhookRecords()
    try:
        replica = Replica(engine, tmp_path)
        for act in (replica.live, replica.give_up):
            while await act() == -signal.SIGKILL:
                pass
        print(f"{len(replica.killed)} kills: {', '.join(replica.killed)}")
        assert replica.points == set(), "no replica has come here"
        assert (await replica.live(), await replica.give_up()) == (0, 0)
    finally:
        engine.stop()
