"""The embedded engine in process, and a guard that fails a test whose background work holds up the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.kube.client import Client
from remuda.lab import driver_conformance
from remuda.runtime.guard import SlowCallback, guarded

# Tests, and the conformance tests of drivers, which are part of the package.
_OURS = (f"{Path(__file__).parents[3]}/tests/", f"{Path(driver_conformance.__file__).parent}/")


@pytest.fixture(autouse=True)
def loop_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test itself takes its time for, on purpose, is its own affair. The tests of the guard say `UNGUARDED`."""
    if getattr(request.module, "UNGUARDED", False):
        yield
        return
    slow_calls: list[SlowCallback] = []
    with guarded(slow_calls.append):
        yield
    found = [str(slow_call) for slow_call in slow_calls if not any(map(slow_call.involves, _OURS))]
    assert not found, "\n\n".join(found)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    running = await ApiServer.start(ServerSettings(data_dir=tmp_path / "engine", port=0, webhook_records=True))
    yield running
    await running.stop()


@pytest.fixture
def client(server: ApiServer) -> Client:
    return server.client()
