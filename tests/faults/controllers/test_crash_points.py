"""The core dies before and after everything it does to the world, and what it was doing is finished all the same.

Which points there are is asked of the core itself: a new step is killed at, or this test fails.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import remuda.app.manager  # the core with all its steps
from remuda.runtime.steps import all_steps
from remuda.simulator.kinds import NEW, OLD
from tests.faults.controllers.corners import ByHand, WithoutControlPlane
from tests.faults.controllers.stage import stage
from tests.faults.controllers.story import Story

# Of one replica among several, and of webhooks: their test is `test_a_replica_dies_on_its_way_to_the_lead`.
ELSEWHERE = ("election.", "webhooks.")

# A kill at one point can be just in time to hide another: what was asked for is done, and nobody is left to pass it.
ROUNDS = 3

assert remuda.app.manager


def points() -> list[str]:
    """Before and after every act of the core. The simulated provider's are not the core's."""
    found = [step for step in all_steps() if not step.name.startswith("simulated")]
    return [point for step in found for point in (step.before, step.after)]


async def test_it_dies_at_every_point_and_nothing_is_lost(tmp_path: Path) -> None:
    everywhere = [point for point in points() if not point.startswith(ELSEWHERE)]
    async with stage(tmp_path, points=everywhere) as found:
        for round in range(ROUNDS):
            await asyncio.gather(
                Story(found, NEW, f"new-{round}").tell(),
                Story(found, OLD, f"old-{round}").tell(),
                ByHand(found, NEW, f"by-hand-{round}").tell(),
                WithoutControlPlane(found, OLD, f"without-{round}").tell(),
            )
            if not found.points:
                break
        killed = [death.point for death in found.deaths]
        print(f"{len(killed)} kills: {', '.join(killed)}")
        assert found.points == set(), "no story has come here"
        assert sorted(killed) == sorted(everywhere), "it died where it was not told to"
