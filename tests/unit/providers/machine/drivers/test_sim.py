"""The driver sim: conformant in a file and in memory, and failing exactly as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.lab.driver_conformance.life import Life
from remuda.providers.shared.drivers import sim
from remuda.providers.shared.drivers.simcloud import FileCloud, ServerRequest, SimCloud, SimServer
from remuda.providers.shared.drivers.spi import TAG_OWNER, TAG_UID, DriverError
from tests.lab.conformance import Conformance
from tests.lab.drivers import SimInFile, SimInMemory
from tests.lab.limits import LIMIT_SECONDS


class TestInAFile(Conformance):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> SimInFile:
        return SimInFile(tmp_path)


class TestInMemory(Life):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Iterator[SimInMemory]:
        subject = SimInMemory(tmp_path)
        sim.clouds["lab"] = subject.cloud
        yield subject
        del sim.clouds["lab"]
        subject.cloud.close()


def wish(uid: str = "u", **changes: object) -> ServerRequest:
    return ServerRequest(name=f"server-{uid}", tags={TAG_UID: uid, TAG_OWNER: "us"}, **changes)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "file"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> SimCloud | FileCloud:
    return SimCloud() if request.param == "memory" else FileCloud(tmp_path / "cloud.jsonl")


async def failing(subject: SimInFile, **options: object) -> tuple[list[str], int]:
    """What attempts to create said until one came through, and how many servers there were after the last failure."""
    order = subject.order(options={**subject.options, **options})
    said: list[str] = []
    servers = 0
    while True:
        try:
            await subject.act(order).create(order, b"")
        except DriverError as error:
            said.append(str(error))
            servers = len(await subject.servers())
        else:
            return said, servers


async def test_configured_failures_create_no_server(tmp_path: Path) -> None:
    said, servers = await failing(SimInFile(tmp_path), failures=2)
    assert (len(said), servers) == (2, 0)
    assert said[1] == "the simulated cloud did not create conformance-1: attempt 2 of 2 that fail"


async def test_lost_answer_still_creates_server(tmp_path: Path) -> None:
    subject = SimInFile(tmp_path)
    said, servers = await failing(subject, failures=1, answersLost=1)
    assert (len(said), servers, len(await subject.servers())) == (2, 1, 1)
    assert "connection was lost" in said[1]


async def test_failed_removal_keeps_server(tmp_path: Path) -> None:
    subject = SimInFile(tmp_path)
    order = subject.order(options={**subject.options, "removeFailures": 1})
    await subject.act(order).create(order, b"")
    with pytest.raises(DriverError, match="did not remove"):
        await subject.act(order).remove(order)
    assert len(await subject.servers()) == 1
    await subject.act(order).remove(order)
    assert await subject.servers() == []


async def test_server_that_never_boots_does_not_run(cloud: SimCloud | FileCloud) -> None:
    server = await cloud.create(wish(boot_seconds=None))
    assert (server.runs_at, server.runs) == (None, False)


async def test_server_numbers_are_never_reused(cloud: SimCloud | FileCloud) -> None:
    first = await cloud.create(wish("a"))
    await cloud.remove("server-a", "a")
    second = await cloud.create(wish("b"))
    assert second.number > first.number
    assert second.address != first.address


async def test_torn_journal_line_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "cloud.jsonl"
    await FileCloud(path).create(wish("a"))
    whole = path.read_bytes()
    await FileCloud(path).create(wish("b"))
    path.write_bytes(path.read_bytes()[:-5])
    assert [server.name for server in await FileCloud(path).servers()] == ["server-a"]
    assert path.read_bytes() == whole
    assert (await FileCloud(path).create(wish("b"))).number == 2


class Agents:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self.booted_once = asyncio.Event()

    def booted(self, server: SimServer) -> None:
        self.heard.append(("booted", server.name, server.user_data))
        self.booted_once.set()

    def removed(self, server: SimServer) -> None:
        self.heard.append(("removed", server.name, b""))


@pytest.fixture
async def agents() -> Agents:
    return Agents()


async def test_listener_is_notified_of_boots_and_removals(agents: Agents) -> None:
    cloud = SimCloud(keeps_user_data=False)
    cloud.listen(agents)
    await cloud.create(wish("late", boot_seconds=3600))
    await cloud.create(wish("a", user_data=b"script", boot_seconds=0.01))
    async with asyncio.timeout(LIMIT_SECONDS):
        await agents.booted_once.wait()
    await cloud.remove("server-a", "a")
    await cloud.remove("server-late", "late")
    await cloud.remove("server-late", "late")
    assert agents.heard == [
        ("booted", "server-a", b"script"),
        ("removed", "server-a", b""),
        ("removed", "server-late", b""),
    ]
    assert cloud._booting == {}


async def test_delivered_user_data_is_dropped_unless_kept(
    agents: Agents,
) -> None:
    for keeps, left in ((True, b"script"), (False, b"")):
        cloud = SimCloud(keeps_user_data=keeps)
        cloud.listen(agents)
        agents.booted_once.clear()
        await cloud.create(wish("a", user_data=b"script"))
        async with asyncio.timeout(LIMIT_SECONDS):
            await agents.booted_once.wait()
        assert [server.user_data for server in await cloud.servers()] == [left]


async def test_cloud_handles_thousands_of_servers(agents: Agents) -> None:
    cloud = SimCloud()
    for number in range(5000):
        await cloud.create(wish(str(number)))
    found = await cloud.servers()
    assert len({server.address for server in found}) == 5000
    for number in range(5000):
        await cloud.remove(f"server-{number}", str(number))
    assert await cloud.servers() == []
    cloud.close()
