"""The programs of Jobs die before and after everything they do, and what they were doing is finished all the same: one
server for each machine, and none when it has gone.

Which points there are is asked of the programs: a new step is killed at, or this test fails.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import register
from tests.faults.providers import drifter
from tests.faults.providers.scenario import MachinesScenario, existing_server_pair
from tests.faults.supervised_up import running


async def test_jobs_die_at_every_point_and_every_server_is_made_once(tmp_path: Path) -> None:
    points = register.points("tests/faults/providers/test_job_points.py")
    site = drifter.install(tmp_path / "site")
    async with (
        existing_server_pair(tmp_path) as existing_servers,
        running(tmp_path, points, environment=site) as (up, client),
    ):
        await MachinesScenario(up, client, "herd", existing_servers).run()
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "the scenario has not come here"
        assert up.deaths == [], "only Jobs were to die"
