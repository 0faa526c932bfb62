"""The part of a server that keeps the data: the engine, and everything that is decided where the data is."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from remuda.nano import engine
from remuda.nano.calling import Caller
from remuda.nano.configuration import Configuration, Refused
from remuda.nano.gate import Gate
from remuda.nano.handover import Leaving, settle
from remuda.nano.identity import Identity
from remuda.nano.keeper import Keeper
from remuda.nano.nodes import Nodes
from remuda.nano.office import Office
from remuda.nano.supervisor import Credentials, Supervisor

if TYPE_CHECKING:
    from remuda.nano.server import Server


class Keeping:
    def __init__(
        self, server: Server, keeper: Keeper, identity: Identity, passwords: Credentials, caller: Caller
    ) -> None:
        self._server = server
        self._keeper = keeper
        self._identity = identity
        self._passwords = passwords
        self._caller = caller
        self._work: list[Coroutine[Any, Any, None]] = []

    async def start(self, closing: AsyncExitStack) -> None:
        server, keeper = self._server, self._keeper
        await settle(server.layout, self._caller)
        supervisor = Supervisor(keeper, self._identity.server_ca_pem, self._passwords, None, None)
        gate = Gate(self._identity, keeper, supervisor, server.version)
        running = await engine.start(self._identity, server.address, server.port, gate.before)
        closing.push_async_callback(running.stop)
        client = running.client(field_manager="nano")
        await engine.furnish(client)
        running.store.refusing = keeper.refusing
        leaving = Leaving(keeper, server.layout, self._caller, client)
        office = Office(keeper, self._identity, client, {"common": server.common()})
        office.add("GET", "etcd/data", leaving.data)
        office.add("POST", "etcd/confirm", leaving.confirm)
        supervisor.office = office
        nodes = Nodes(client, keeper, grace_seconds(server.configuration), leaving.hand_over)
        self._work = [keeper.run(), nodes.run(), leaving.run()]
        gate.open = True

    def work(self) -> list[Coroutine[Any, Any, None]]:
        return self._work


def grace_seconds(configuration: Configuration) -> float:
    """How long a node may be silent: kube-controller-manager's node-monitor-grace-period. Raises Refused."""
    text = configuration.argument("kube-controller-manager-arg", "node-monitor-grace-period", "40s")
    number, unit = text.rstrip("ms"), text.lstrip("0123456789.")
    if unit not in ("s", "m", "ms") or not number:
        raise Refused(f"kube-controller-manager-arg: node-monitor-grace-period={text} is no time like 40s")
    return float(number) * {"s": 1.0, "m": 60.0, "ms": 0.001}[unit]
