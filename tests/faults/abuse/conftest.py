"""One server takes all the abuse; after each test it must be well and no larger than the test allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.faults.abuse.victim import Victim

# The server has this many pauses to free memory, and answers a request in each: so a slow machine gives it more time.
_PAUSES = 40
_PAUSE_SECONDS = 0.5

Bounded = Callable[[float], AbstractContextManager[None]]


@pytest.fixture(scope="package")
def server() -> Iterator[Victim]:
    running = Victim()
    yield running
    complaints = running.log.read_text()
    running.stop()
    assert "Traceback" not in complaints, complaints


@pytest.fixture
def victim(server: Victim) -> Iterator[Victim]:
    yield server
    server.is_well()


@pytest.fixture
def bounded(victim: Victim) -> Bounded:
    """`with bounded(30):` may cost the server 30 MB of memory, not more, once it has had time to clear up."""

    @contextmanager
    def grows(most: float) -> Iterator[None]:
        before = victim.rss()
        yield
        victim.is_well()
        for _ in range(_PAUSES):
            if victim.rss() - before <= most:
                break
            time.sleep(_PAUSE_SECONDS)
            assert victim.http("GET", "/readyz").code == 200
        grown = victim.rss() - before
        print(f"memory {before:.0f} MB, grown by {grown:.1f} MB (bound {most:.0f})")
        assert grown <= most

    return grows
