"""Implementation of `nano agent`: a node that is not a server. It joins through any known server, and switches to any
that answers.

The known servers are stored on disk: the server of the configuration may no longer exist at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import msgspec

from remuda.kube.http.tls import client_context
from remuda.lab.nano import credentials, facts, join, ports, service
from remuda.lab.nano.configuration import Configuration, FatalError, check_cloud_settings
from remuda.lab.nano.facts import NodeDescription
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.kubelet import ApiAccess, Kubelet
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file
from remuda.lab.nano.ports import Ports
from remuda.lab.nano.service import until
from remuda.lab.nano.supervisor_client import Caller, NoAnswer, UnexpectedAnswer, trusted_authorities
from remuda.lab.nano.tokens import NODE, SERVER, JoinToken

log = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0


class Agent:
    def __init__(self, configuration: Configuration, host: NanoHost, version: str) -> None:
        """Read the configuration. Raise FatalError."""
        check_cloud_settings(configuration)
        self.configuration = configuration
        self.host = host
        self.version = version
        self.facts: NodeDescription = facts.gather(configuration, host, version)
        self.layout = NanoLayout(host.path(configuration.data_dir), configuration.flavour)
        self.server = configuration.text("server").rstrip("/")
        if not self.server:
            raise FatalError("--server is required")
        if not self.server.startswith("https://"):
            raise FatalError(f"--server {self.server}: must be an https URL")
        token = credentials.configured(configuration, host, "token")
        if token is None:
            raise FatalError("--token is required")
        self._token: JoinToken = token
        self._apiservers: list[str] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run the agent. Raise FatalError."""
        self.layout.make(server=False)
        self._apiservers = self._remembered()
        async with AsyncExitStack() as closing:
            opened = Ports()
            closing.push_async_callback(opened.close)
            await until(stop, [self._be_a_node(opened)])

    async def _be_a_node(self, opened: Ports) -> None:
        ca = await self._join()

        def access() -> ApiAccess:
            return ApiAccess(
                lambda: self._apiservers,
                ca,
                self.layout.agent / "client-kubelet.crt",
                self.layout.agent / "client-kubelet.key",
            )

        kubelet = Kubelet(self.facts, access)
        await ports.open_kubelet(opened, self.host, lambda: True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kubelet.run())
            tasks.create_task(self._look_for_servers(ca))
            await kubelet.registered.wait()
            service.ready()
            print(f"{self.layout.flavour.name} {self.version} is up: node {self.facts.name}", flush=True)

    # -- joining -------------------------------------------------------------------------------------------------

    async def _join(self) -> bytes:
        """Retry until a server accepts the join; return the authorities that verify the servers."""
        password = facts.node_password(self.host)
        said = ""
        while True:
            for server in self._servers():
                try:
                    return await self._join_by(server, password)
                except (NoAnswer, UnexpectedAnswer) as error:
                    why = f"{server}: {error}"
                if why != said:
                    log.warning("waiting to join: %s", why)
                    said = why
            await asyncio.sleep(join.AGAIN_SECONDS)

    async def _join_by(self, server: str, password: str) -> bytes:
        ca = await trusted_authorities(server, self._token, read_or_none(self.layout.agent / "server-ca.crt"))
        caller = self._caller(ca)
        try:
            await join.node_certificates(caller, server, self.facts, self.layout, password)
            await self._learn(caller, server)
        except UnexpectedAnswer as answered:
            if answered.code == 401:
                raise FatalError(f"{server} refused to let this node join: {answered.text}") from None
            raise
        finally:
            await caller.close()
        return ca

    def _caller(self, ca: bytes) -> Caller:
        user = SERVER if self._token.user == SERVER else NODE
        return Caller(client_context(ca_pem=ca), self._token, user)

    # -- servers -------------------------------------------------------------------------------------------------

    def _servers(self) -> list[str]:
        return list(dict.fromkeys([self.server, *map(self.layout.flavour.supervisor_of, self._apiservers)]))

    async def _learn(self, caller: Caller, server: str) -> None:
        url = f"{server}{self.layout.flavour.prefix}/apiservers"
        found = [f"https://{address}" for address in await caller.ask_json("GET", url)]
        if found and sorted(found) != sorted(self._apiservers):
            # Servers that answered come first, to avoid needless changes.
            kept = [one for one in self._apiservers if one in found]
            self._apiservers = [*kept, *sorted(set(found) - set(kept))]
            write_file(self.layout.known_servers, msgspec.json.encode({"ServerAddresses": self._apiservers}))

    async def _look_for_servers(self, ca: bytes) -> None:
        caller = self._caller(ca)
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS if self._apiservers else join.AGAIN_SECONDS)
                for server in self._servers():
                    try:
                        await self._learn(caller, server)
                        break
                    except (NoAnswer, UnexpectedAnswer) as error:
                        log.info("%s", error)
        finally:
            await caller.close()

    def _remembered(self) -> list[str]:
        known = read_or_none(self.layout.known_servers)
        if known is None:
            return []
        try:
            return [str(one) for one in msgspec.json.decode(known)["ServerAddresses"]]
        except (msgspec.DecodeError, KeyError, TypeError):
            return []
