"""Model hosts: servers of the driver `sim` that carry out the plans of their control plane.

A host reads what a real one reads: its config file, the list of servers to join, the environment of its installation.
It chooses a server as the host tool does, restarts its service when the stamp has changed, and does nothing else. Its
cluster (`downstream`) decides the result of its service. A scenario can inject faults: the host dies, loses its
connection, fails installations, or starts its service slowly.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from remuda.agent.plan import Instruction, Plan
from remuda.agent.rules import Result
from remuda.kube import clock, random_source
from remuda.kube.objects import Key
from remuda.providers.controlplane.render.consequence import RESTART_STAMP
from remuda.providers.controlplane.render.files import INIT
from remuda.providers.controlplane.render.instructions import MEMBERS, RETIRE, UNIT_STATUS
from remuda.providers.controlplane.render.tunnel import TUNNEL
from remuda.providers.shared.drivers.simcloud import SimServer

_SETTINGS, SERVERS = "/config.yaml.d/50-rancher.yaml", "/remuda-servers"
_FAILED = 1

Json = dict[str, Any]


class Service(msgspec.Struct, kw_only=True):
    """Service that runs on a host, or is starting."""

    version: str
    settings: Json
    server: bool  # a server of the distribution; otherwise an agent
    join: str  # INIT, or the server that it joins
    up_at: float

    @property
    def etcd(self) -> bool:
        return self.server and not self.settings.get("disable-etcd")

    @property
    def control_plane(self) -> bool:
        return self.server and not self.settings.get("disable-apiserver")

    @property
    def node(self) -> str:
        return str(self.settings["node-name"])


class ModelHost:
    def __init__(self, server: SimServer, agent: Key) -> None:
        self.server = server
        self.agent = agent  # key of its plan Secret
        self.alive = True
        self.dead_since: float | None = None
        self.deaf = False  # it works, but has no connection
        self.failing = 0  # so many installations will fail
        self.slow_seconds = 0.0  # its service takes so much longer to start
        self.plan = Plan()
        self.stamp = ""
        self.join = ""  # INIT, or the server that it joins
        self.service: Service | None = None
        self.has_data = False  # it has joined or started its cluster
        self.stopped = False  # stopped by its plan

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def member(self) -> str:
        return f"{self.name}-{self.server.number:08x}"

    @property
    def silent(self) -> bool:
        return not self.alive or self.deaf

    @property
    def is_up(self) -> bool:
        return self.alive and self.service is not None and clock.time() >= self.service.up_at

    @property
    def answers(self) -> bool:
        """Return whether other hosts can join through it."""
        return self.is_up and self.has_data and self.service is not None and self.service.server

    def die(self) -> None:
        self.alive, self.dead_since = False, clock.time()

    def revive(self) -> None:
        self.alive, self.dead_since = True, None
        if self.service is not None:
            self.service.up_at = clock.time() + random_source.between(5, 20)

    # -- effects of plans

    def take(self, plan: Plan) -> None:
        self.plan = plan

    def install(self, instruction: Instruction, answering: Callable[[str], bool]) -> tuple[Result, bool]:
        """Install the distribution; return the result, and whether the service was restarted for it."""
        if self.failing:
            self.failing -= 1
            return Result(_FAILED, b"", b"the disk is full, says the scenario"), False
        environment = dict(pair.split("=", 1) for pair in instruction.env)
        if refusal := self._choose_server(answering):
            return Result(_FAILED, b"", refusal.encode()), False
        running = self.service is not None and (self.has_data or self.service.join == self.join)
        if self.stamp == environment[RESTART_STAMP] and running:
            return Result(), False
        self.stamp = environment[RESTART_STAMP]
        self.service = Service(
            version=environment["REMUDA_VERSION"],
            settings=json.loads(self._file(_SETTINGS)),
            server=environment["REMUDA_ROLE"] == "server",
            join=self.join,
            up_at=clock.time() + random_source.between(3, 30) + self.slow_seconds,
        )
        return Result(), True

    def end(self) -> None:
        self.service = None

    def cluster_label(self, prefix: str) -> str:
        """Return the cluster that the host's config names in its node label."""
        labels: list[str] = json.loads(self._file(_SETTINGS))["node-label"]
        return next(label.removeprefix(prefix) for label in labels if label.startswith(prefix))

    def _choose_server(self, answering: Callable[[str], bool]) -> str:
        """Choose the server to join; return why none could be chosen, empty on success."""
        listed = self._file(SERVERS).decode().split()
        if listed == [INIT]:
            self.join = INIT
        elif not self.has_data or self.join not in listed:
            found = next((url for url in sorted(listed, key=lambda url: url != self.join) if answering(url)), "")
            if not found and not self.has_data:
                return f"no server to join by answers: {', '.join(listed) or 'none is listed'}"
            self.join = found or self.join
        return ""

    def _file(self, ending: str) -> bytes:
        return next(file.content for file in self.plan.files if file.path.endswith(ending))


def is_retirement(instruction: Instruction) -> bool:
    return instruction.name == RETIRE


def asks_for_members(instruction: Instruction) -> bool:
    return instruction.name == MEMBERS


def is_not_modelled(instruction: Instruction) -> bool:
    """Return whether the instruction is not modelled: tunnels, and systemd's view of units."""
    return instruction.name in (TUNNEL, UNIT_STATUS)
