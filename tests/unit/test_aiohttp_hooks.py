"""Private hooks of aiohttp that the proxy and the tunnel use, because there are no public ones.

pyproject.toml bounds aiohttp to the minor versions that passed these tests. Run them before you raise the bound.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest


class _Forgetful:
    """Server that answers the first request of a connection, and closes the connection at the second."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answered in (True, False):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.decode().split()[0])
            if answered:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[_Forgetful]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            yield self


@pytest.mark.parametrize(("retries", "sent"), [(True, 2), (False, 1)])
async def test_retry_connection_decides_whether_a_lost_delete_is_sent_again(retries: bool, sent: int) -> None:
    async with _Forgetful().serving() as server, aiohttp.ClientSession() as session:
        session._retry_connection = retries
        async with session.get(server.url):
            pass
        if retries:
            async with session.delete(server.url):
                pass
        else:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.delete(server.url)
        assert server.requests.count("DELETE") == sent


def test_connector_creates_connections_by_the_method_that_tunnels_override() -> None:
    assert [*inspect.signature(aiohttp.BaseConnector._create_connection).parameters] == [
        "self",
        "req",
        "traces",
        "timeout",
    ]
    assert "_create_connection" in inspect.getsource(aiohttp.BaseConnector.connect)


async def test_connector_has_a_factory_of_protocols() -> None:
    async with aiohttp.TCPConnector() as connector:
        assert isinstance(connector._factory(), aiohttp.client_proto.ResponseHandler)
