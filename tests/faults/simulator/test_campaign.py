"""A campaign of random scenarios: declared clusters under all real controllers, with edits and faults at random
moments, each judged by the models. By default the same scenarios are told every time, so that a change is judged by
what it does and not by luck. New ones, by the hundred, or one of them again:

    REMUDA_SEED=5000 REMUDA_ROUNDS=500 .venv/bin/python -m pytest -s tests/faults/simulator/test_campaign.py
    REMUDA_SEED=5123 REMUDA_ROUNDS=1 .venv/bin/python -m pytest -s tests/faults/simulator/test_campaign.py
"""

from __future__ import annotations

import random
import time

from tests.faults.conftest import Campaign
from tests.unit.lab.simulator.random_scenarios import draw, live

_SEED = 694784


def test_random_scenarios_keep_quorum_converge_and_end_idle(campaign: Campaign) -> None:
    began, failed, machines = time.monotonic(), [], 0
    campaign.use_seed(_SEED)
    for number in campaign.rounds(10, full=30):
        seed = campaign.seed + number
        shape, deeds, catch_up = draw(random.Random(seed))
        try:
            machines += live(seed, shape, deeds, catch_up).machines
        except Exception as error:
            failed.append(f"REMUDA_SEED={seed}: {deeds}: {type(error).__name__}: {str(error)[:2000]}")
            print(failed[-1])
    print(f"{campaign.done} scenarios of {machines} machines in {time.monotonic() - began:.0f} s")
    assert not failed, "\n".join(failed)
