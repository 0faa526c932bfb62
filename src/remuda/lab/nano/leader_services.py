"""Services of the server that has the data: the engine, and all decisions that need the data."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from remuda.kube.web import Handler
from remuda.lab.nano import engine
from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.handover import HandoverSender, settle
from remuda.lab.nano.identity import TlsIdentity
from remuda.lab.nano.leader import Leader
from remuda.lab.nano.leader_api import LeaderApi
from remuda.lab.nano.nodes import Nodes
from remuda.lab.nano.request_router import RequestRouter
from remuda.lab.nano.supervisor import Supervisor, SupervisorCredentials
from remuda.lab.nano.supervisor_client import Caller

if TYPE_CHECKING:
    from remuda.lab.nano.server import NanoServer


class LeaderServices:
    def __init__(
        self,
        server: NanoServer,
        leader: Leader,
        identity: TlsIdentity,
        passwords: SupervisorCredentials,
        caller: Caller,
    ) -> None:
        self._server = server
        self._leader = leader
        self._identity = identity
        self._passwords = passwords
        self._caller = caller
        self._work: list[Coroutine[Any, Any, None]] = []

    async def start(self, closing: AsyncExitStack) -> None:
        server, leader = self._server, self._leader
        flavour = server.configuration.flavour
        await settle(server.layout, self._caller)
        supervisor = Supervisor(flavour, leader, self._identity.server_ca_pem, self._passwords, None)
        gate = RequestRouter(self._identity, leader, supervisor, server.version)
        serve_api: list[Handler] = []

        def before(api: Handler) -> Handler:
            serve_api.append(gate.api_alone(api))
            return gate.before(api)

        running = await engine.start(self._identity, server.address, server.peer_port, before)
        closing.push_async_callback(running.stop)
        if leader.own.api and server.port != server.peer_port:
            await server.listen(server.port, serve_api[0], self._identity)
        client = running.client(field_manager="nano")
        await engine.create_standard_objects(client)
        running.store.refusing = leader.refusing
        leaving = HandoverSender(leader, server.layout, self._caller, client)
        api = LeaderApi(leader, self._identity, client, {"common": server.common()})
        api.add("GET", "etcd/data", leaving.data)
        api.add("POST", "etcd/confirm", leaving.confirm)
        supervisor.leader = api
        nodes = Nodes(
            client, leader, grace_seconds(server.configuration), leaving.hand_over, flavour, etcd=server.facts.etcd
        )
        self._work = [leader.run(), nodes.run(), leaving.run()]
        gate.open = True

    def work(self) -> list[Coroutine[Any, Any, None]]:
        return self._work


def grace_seconds(configuration: Configuration) -> float:
    """Return how long a node may be silent: kube-controller-manager's node-monitor-grace-period. Raises FatalError."""
    text = configuration.argument("kube-controller-manager-arg", "node-monitor-grace-period", "40s")
    number, unit = text.rstrip("ms"), text.lstrip("0123456789.")
    if unit not in ("s", "m", "ms") or not number:
        raise FatalError(f"kube-controller-manager-arg: node-monitor-grace-period={text} is not a duration such as 40s")
    return float(number) * {"s": 1.0, "m": 60.0, "ms": 0.001}[unit]
