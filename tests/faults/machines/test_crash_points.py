"""`remuda up` dies before and after everything it does for a machine and its driver, and what it was doing is finished
all the same: the machine gets its server, the server goes, and nothing is left.

Which points there are is asked of the program: a new step is killed at, or this test fails.
"""

from __future__ import annotations

from pathlib import Path

from remuda.providers.shared.drivers.simcloud import FileCloud
from tests.faults import register
from tests.faults.machines import scenario
from tests.faults.machines.scenario import RetryingClient
from tests.faults.supervised_up import running

_ROUNDS = 6


async def test_machine_lifecycle_recovers_from_crash_at_every_point(tmp_path: Path) -> None:
    async with running(tmp_path, register.points("tests/faults/machines/test_crash_points.py")) as (up, client):
        retrying_client = RetryingClient(client)
        await scenario.prepare(retrying_client)
        for number in range(_ROUNDS):
            name = f"m{number}"
            await scenario.live(retrying_client, name)
            assert await scenario.left(retrying_client, name) == []
            if number % 2 or not up.left:
                await scenario.retire_driver(retrying_client)
                if not up.left:
                    break
                up.program.kill()  # the next life registers the driver again
        print(f"{len(up.killed)} kills: {', '.join(up.killed)}")
        assert up.left == set(), "the scenario has not come here"
        assert await FileCloud(up.data / "hosts" / "sim" / "default.jsonl").servers() == []
