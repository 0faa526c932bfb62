"""The API over HTTP is linearizable, also if the server is killed: clients that write, read, list and delete the same
objects see what a single copy of each would show, and no acknowledged write is lost.

    make faults ROUNDS=full                                   200 rounds of this campaign
    REMUDA_SEED=7 REMUDA_ROUNDS=1 .venv/bin/python -m pytest -s tests/faults/linearizability

Each round has objects of its own, so that requests whose outcome is unknown do not accumulate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.conftest import Campaign
from tests.faults.linearizability.clients import Clients, install
from tests.faults.linearizability.history import judge, shown
from tests.lab.ours import Ours
from tests.lab.peers import require_peer

ROUNDS = (20, 200)  # of a short campaign, and of a full one
_CLIENTS, _KEYS = 6, 3
_ENOUGH = 5  # rounds in which each verb succeeds, whatever the seed
_BEFORE, _AFTER = (10, 80), 40  # answers before the kill, and after the restart


@pytest.fixture
def server() -> Iterator[Ours]:
    require_peer("linearizability")
    found = Ours()
    yield found
    found.stop()


def test_history_with_server_kills_is_linearizable(server: Ours, campaign: Campaign) -> None:
    install(server)
    chance, counts = campaign.chance, Counter[str]()
    for number in campaign.rounds(*ROUNDS):
        clients = Clients(server, f"r{number}", clients=_CLIENTS, keys=_KEYS, seed=chance.getrandbits(32))
        clients.start()
        clients.wait_for(chance.randint(*_BEFORE))
        server.kill()
        server.start_again()
        clients.wait_for(_AFTER)
        history = clients.stop()
        verdict = judge(history)
        assert not verdict.problems, f"round {number}:\n{shown(history, verdict)}"
        counts.update(f"{operation.verb} {operation.answer}" for operation in history)
    print(dict(sorted(counts.items())))
    if campaign.done >= _ENOUGH:
        for expected in ("create ok", "get ok", "update ok", "update conflict", "status ok", "delete ok", "list ok"):
            assert counts[expected], f"no {expected} in {campaign.done} rounds"
