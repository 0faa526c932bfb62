"""Every pair of ends, server first. Tests that break nothing share a tunnel of each pair; the others have their own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.lab.tunnel_ends import EVERYTHING, PAIRS, End, TunnelEnds, tunnel_ends
from tests.lab.tunnel_services import Services

_LONGEST_SOCKET = 104  # that every system takes


class Tunnel(NamedTuple):
    """A server and a client of it, connected."""

    pair: str
    server: End
    client: End
    socket: Path  # of the file system, which the client may dial

    @property
    def has_go(self) -> bool:
        return "go" in self.pair

    @property
    def client_is_go(self) -> bool:
        return self.pair.endswith("-go")

    @property
    def server_is_go(self) -> bool:
        return self.pair.startswith("go-")


@pytest.fixture(params=PAIRS, scope="session")
def pair(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TunnelEnds]:
    async with tunnel_ends(tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def services() -> AsyncIterator[Services]:
    async with Services().serving() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_services() -> AsyncIterator[Services]:
    async with Services().serving() as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tunnel(pair: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tunnel]:
    server_kind, client_kind = pair.split("-")
    socket = Path(tempfile.mkdtemp(prefix="remuda-")) / "s"
    socket = socket.with_name("s" * (_LONGEST_SOCKET - len(str(socket.parent)) - 1))
    async with tunnel_ends(tmp_path_factory.mktemp(pair)) as made:
        server = await made.server(server_kind, allow=[EVERYTHING])
        client = await made.client(client_kind, server.url, allow=[EVERYTHING, f"unix/{socket}"])
        await server.has("corral")
        yield Tunnel(pair, server, client, socket)
    socket.unlink(missing_ok=True)
    socket.parent.rmdir()
