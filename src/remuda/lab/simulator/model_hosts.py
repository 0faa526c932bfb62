"""All model hosts of a world: servers of the cloud `sim` that boot, register with the manager, and carry out their
plans.

It implements `AgentHost` for the model agents, and listens to the cloud. A host belongs to the cluster that its config
names.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
from collections.abc import Awaitable, Callable

from remuda.agent.plan import Instruction, Plan
from remuda.agent.rules import Result
from remuda.kube import random_source
from remuda.kube.client import Client
from remuda.kube.errors import StatusError, Unreachable
from remuda.kube.objects import Key
from remuda.lab.simulator.downstream import Downstream
from remuda.lab.simulator.hosts import ModelHost, asks_for_members, is_not_modelled, is_retirement
from remuda.lab.simulator.judge import Judge
from remuda.providers.bootstrap.registration import ConnectionInfo, HostRefused, RegistrationService
from remuda.providers.shared.drivers.simcloud import SimServer
from remuda.runtime.tasks import Tasks

_SCRIPT = re.compile(rb"content: ['\"]?([A-Za-z0-9+/=]+)")  # in the cloud-config: gzip, base64
_TOKEN = re.compile(rb"CATTLE_TOKEN=['\"]?([^'\"\n]+)")
_CALL_SECONDS = 10.0  # between two registration attempts of a refused host
_CLUSTER_LABEL = "plan.cattle.io/cluster-name="
TICK_SECONDS = 5.0


def token_of(server: SimServer) -> str:
    """Return the token that a server authenticates with, from its boot script."""
    script = _SCRIPT.search(server.user_data)
    assert script is not None, "the user data has no script"
    found = _TOKEN.search(gzip.decompress(base64.b64decode(script[1])))
    assert found is not None, "the script has no token"
    return found[1].decode()


def headers_of(server: SimServer) -> dict[str, str]:
    return {"x-cattle-id": f"{server.number:063x}", "x-cattle-node-name": server.name}


class ModelHosts:
    """All model hosts. `registration` is that of the manager that runs now."""

    def __init__(self, judge: Judge, registration: Callable[[], RegistrationService], catch_up_seconds: float) -> None:
        self.judge = judge
        self.hosts: dict[Key, ModelHost] = {}  # by plan Secret
        self.clusters: dict[Key, Downstream] = {}
        # triggers a pass of an agent because its server has changed
        self.look: Callable[[Key], None] = lambda agent: None
        self._registration = registration
        self._catch_up_seconds = catch_up_seconds
        self._gone: set[tuple[str, str]] = set()
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.spawn("model clusters", self._live())

    async def close(self) -> None:
        await self._tasks.close()

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for cluster in list(self.clusters.values()):
                await cluster.tick()

    def cluster(self, key: Key) -> Downstream:
        found = self.clusters.get(key)
        if found is None:
            found = self.clusters[key] = Downstream(key, self._catch_up_seconds, self.judge.complain)
        return found

    async def dial(self, cluster: Key) -> Client:
        found = self.clusters.get(cluster)
        if found is None:
            raise Unreachable(f"the API of {cluster} is not up", sent=False)
        return await found.dial()

    # -- cloud

    def booted(self, server: SimServer) -> None:
        self._tasks.spawn(f"host {server.name}", self._call(server))

    def removed(self, server: SimServer) -> None:
        self._gone.add(server.key)
        for agent, host in list(self.hosts.items()):
            if host.server.key == server.key:
                cluster = self._of(host)
                if cluster is not None:
                    self.judge.stopped(cluster, host, "removed")
                    cluster.hosts.pop(agent, None)
                host.die()
                del self.hosts[agent]

    async def _call(self, server: SimServer) -> None:
        token, headers = token_of(server), headers_of(server)
        info = await self._until_let_in(server, lambda: self._registration().connect(token, headers))
        if info is not None:
            agent = Key(info.namespace, info.secret_name)
            self.hosts[agent] = ModelHost(server, agent)
            self.look(agent)

    async def _until_let_in(
        self, server: SimServer, connect: Callable[[], Awaitable[ConnectionInfo]]
    ) -> ConnectionInfo | None:
        while server.key not in self._gone:
            try:
                return await connect()
            except (HostRefused, StatusError):
                await asyncio.sleep(_CALL_SECONDS)
        return None

    def silence(self, since: float) -> Callable[[str, str], float | None]:
        """Return what a manager that started then knows of tunnels: those that ended since."""

        def silent_since(cluster: str, machine: str) -> float | None:
            host = next((one for one in self.hosts.values() if one.name == machine), None)
            dead = host.dead_since if host is not None and host.service and host.service.control_plane else None
            return dead if dead is not None and dead >= since else None

        return silent_since

    # -- interface for agents

    def listens(self, agent: Key) -> bool:
        host = self.hosts.get(agent)
        return host is not None and not host.silent

    def seconds(self, agent: Key, plan: Plan) -> float:
        self.hosts[agent].take(plan)
        return random_source.between(1, 20)

    def run(self, agent: Key, instruction: Instruction, attempt: int) -> Result:
        host = self.hosts[agent]
        cluster = self._belong(host)
        if is_not_modelled(instruction):
            return Result()
        if asks_for_members(instruction):
            return cluster.members(host)
        if is_retirement(instruction):
            self.judge.stopped(cluster, host, "retired")
            host.end()
            return Result()
        result, restarted = host.install(instruction, cluster.answers)
        if restarted:
            self.judge.stopped(cluster, host, "restarted")
        return result

    def well(self, agent: Key, probe: str) -> bool:
        host = self.hosts[agent]
        return self._belong(host).is_well(host, probe)

    def _belong(self, host: ModelHost) -> Downstream:
        found = self._of(host)
        if found is None:
            found = self.cluster(Key(host.agent.namespace, host.cluster_label(_CLUSTER_LABEL)))
            found.hosts[host.agent] = host
        return found

    def _of(self, host: ModelHost) -> Downstream | None:
        return next((one for one in self.clusters.values() if host.agent in one.hosts), None)

    # -- actions of scenarios

    def ordered(self, agent: Key) -> None:
        """Record that a host got an order, and whether there is a quorum to lose by it."""
        host = self.hosts.get(agent)
        cluster = self._of(host) if host is not None else None
        if cluster is None or cluster.etcd.has_quorum:
            self.judge.without_quorum.discard(agent)
        else:
            self.judge.without_quorum.add(agent)

    def kill(self, host: ModelHost) -> None:
        if host.alive:
            host.die()
            cluster = self._of(host)
            if cluster is not None and host.member in cluster.etcd.members:
                cluster.etcd.fail(host.member)

    def revive(self, host: ModelHost) -> None:
        if not host.alive:
            host.revive()
        self.look(host.agent)
