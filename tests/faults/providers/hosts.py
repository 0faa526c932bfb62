"""What servers of the simulated cloud do, played: each calls the manager as its user data tells it to."""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
from pathlib import Path

from remuda.providers.shared.drivers.simcloud import FileCloud, SimServer
from tests.faults.registration_client import RegistrationClient, RegistrationRefused

_SCRIPT = re.compile(rb"content: ['\"]?([A-Za-z0-9+/=]+)")  # in the cloud-config: gzip, base64
_TOKEN = re.compile(rb"CATTLE_TOKEN=['\"]?([^'\"\n]+)")
_LOOK_SECONDS = 0.3


class Servers:
    """The servers of one simulated cloud: each calls once it runs, with the token of its user data."""

    def __init__(self, journal: Path, registration_client: RegistrationClient) -> None:
        self._cloud = FileCloud(journal)
        self._registration_client = registration_client
        self._calls: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            while True:
                for server in await self._cloud.servers():
                    if server.runs and server.key not in self._calls:
                        self._calls[server.key] = asyncio.create_task(self._call(server))
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for call in self._calls.values():
                call.cancel()

    async def _call(self, server: SimServer) -> None:
        script = _SCRIPT.search(server.user_data)
        assert script is not None, server.user_data
        token = _TOKEN.search(gzip.decompress(base64.b64decode(script[1])))
        assert token is not None, "the script has no token"
        try:
            await self._registration_client.connect(token[1].decode(), f"sim-{server.number}", Node_Name=server.name)
        except RegistrationRefused:
            assert server.key not in {one.key for one in await self._cloud.servers()}, "refused, and never removed"
