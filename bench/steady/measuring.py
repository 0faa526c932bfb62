"""One `remuda up` on a fleet that is there already, with its hosts and clusters around it: from its start until nothing
happens any more, and then while nothing happens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.lab.ports import free_port

from bench.report import Broken
from bench.steady.processes import Memory, Process
from bench.steady.world import DATA, Known, read
from remuda.lab.simulator.declared import NAMESPACE

_READY_SECONDS = 600.0
_ANSWER_SECONDS = 300.0
_STEADY_SECONDS = 1800.0
_CALM_SECONDS = 15.0  # without a write but those of agents
_ROUNDS = 5
_TOLD = ("reports", "troubles")  # by agents
_CLUSTERS = "/apis/provisioning.cattle.io/v1/clusters"
_OBJECTS = re.compile(r"^apiserver_storage_objects\{.*\} ([\d.e+]+)$", re.MULTILINE)
_RECONCILES = re.compile(r"^controller_runtime_reconcile_total\{.*\} ([\d.e+]+)$", re.MULTILINE)


class Command(NamedTuple):
    """Medians, in seconds."""

    passed: float
    cpu: float  # of the command itself
    server_cpu: float  # of `remuda up` meanwhile

    def __str__(self) -> str:
        return f"{self.passed:.2f} s ({self.cpu:.2f} s of CPU, and {self.server_cpu:.2f} s of remuda up's)"


class Found(NamedTuple):
    clusters: int
    hosts: int
    tunnels: int
    objects: int
    ready_seconds: float
    steady_seconds: float
    steady_cpu: float
    start_writes: int
    memory_first: Memory
    memory_last: Memory
    idle_seconds: float
    idle_percent: float
    writes: int
    reports: int
    troubles: int  # of agents
    reconciles: int
    others: dict[str, float]
    load: float
    commands: dict[str, Command]


class Manager:
    """`remuda up`, and what its administrator asks it."""

    def __init__(self, folder: Path, known: Known) -> None:
        self._data = folder / DATA
        self.kubeconfig = self._data / "admin.kubeconfig"
        address = urlsplit(known.url).netloc
        self._url, self._health = known.url, f"127.0.0.1:{free_port()}"
        pki = self._data / "pki"
        self._trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._trust.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        arguments = ["-m", "remuda.cli.main", "up", f"--data-dir={self._data}", f"--listen={address}"]
        self.process = Process([*arguments, f"--health-listen={self._health}"], folder / "up.log")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, context=self._trust, timeout=_ANSWER_SECONDS) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self._health}/metrics", timeout=_ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def server_metrics(self) -> str:
        with urllib.request.urlopen(f"{self._url}/metrics", context=self._trust, timeout=_ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def revision(self) -> int:
        """Of all objects together: each write counts one."""
        return int(self.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])

    def command(self, *arguments: str) -> Command:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        taken = []
        for _ in range(_ROUNDS):
            began, cpu, server = time.monotonic(), _children_cpu(), self.process.cpu_seconds()
            subprocess.run(
                [sys.executable, "-m", "remuda.cli.main", *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            taken.append((time.monotonic() - began, _children_cpu() - cpu, self.process.cpu_seconds() - server))
        return Command(*map(median, zip(*taken, strict=True)))


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, idle: float) -> Found:
    known = read(folder)
    with contextlib.ExitStack() as ending:

        def started(make: Callable[[], Process]) -> Process:
            process = make()
            ending.callback(process.end)
            return process

        others = {"workload APIs": started(lambda: _part(folder, "workloads"))}
        _until(lambda: others["workload APIs"].said == "started", _READY_SECONDS, "the workload APIs listen", others)
        manager = Manager(folder, known)
        ending.callback(manager.process.end)
        began = time.monotonic()
        parts = {"remuda up": manager.process, **others}
        _until(lambda: "remuda ready" in manager.process.said, _READY_SECONDS, "remuda up is ready", parts)
        ready, at_first = time.monotonic() - began, manager.revision()
        others["agents"] = started(lambda: _part(folder, "agents"))
        others["tunnels"] = started(lambda: _part(folder, "tunnels"))
        parts |= others
        _steady(manager, others["agents"], known, parts)
        steady, steady_cpu = time.monotonic() - began - _CALM_SECONDS, manager.process.cpu_seconds()
        first = manager.process.memory()
        revision, reports, troubles = manager.revision(), *(_count(others["agents"], what) for what in _TOLD)
        reconciles = _sum(_RECONCILES, manager.metrics())
        clock, cpu = time.monotonic(), {name: part.cpu_seconds() for name, part in parts.items()}
        time.sleep(idle)
        passed = time.monotonic() - clock
        busy = {name: 100 * (part.cpu_seconds() - cpu[name]) / passed for name, part in parts.items()}
        last = manager.process.memory()
        reconciles = _sum(_RECONCILES, manager.metrics()) - reconciles
        one = known.clusters[0].name
        return Found(
            clusters=len(known.clusters),
            hosts=_count(others["agents"], "watching"),
            tunnels=known.tunnels,
            objects=_sum(_OBJECTS, manager.server_metrics()),
            ready_seconds=ready,
            steady_seconds=steady,
            steady_cpu=steady_cpu,
            start_writes=revision - at_first,
            memory_first=first,
            memory_last=last,
            idle_seconds=passed,
            idle_percent=busy.pop("remuda up"),
            writes=manager.revision() - revision,
            reports=_count(others["agents"], "reports") - reports,
            troubles=_count(others["agents"], "troubles") - troubles,
            reconciles=reconciles,
            others=busy,
            load=os.getloadavg()[0],
            commands={
                "get clusters -A": manager.command("get", "clusters", "-A"),
                f"describe cluster {one}": manager.command("describe", "cluster", one, "-n", NAMESPACE),
            },
        )


def _part(folder: Path, name: str) -> Process:
    return Process(["-m", f"bench.steady.{name}", str(folder)], folder / f"{name}.log", nice=5)


def _steady(manager: Manager, agents: Process, known: Known, parts: dict[str, Process]) -> None:
    """All agents watch, all clusters are Ready and connected, and nobody but agents writes."""
    told = time.monotonic()

    def there() -> bool:
        nonlocal told
        watching, connected = _count(agents, "watching"), _connected(manager)
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print(
                f"{watching} of {len(known.hosts)} agents watch, {connected} of {len(known.clusters)} clusters are "
                f"ready, revision {manager.revision()}",
                file=sys.stderr,
                flush=True,
            )
        return watching >= len(known.hosts) and connected >= len(known.clusters)

    _until(there, _STEADY_SECONDS, "all agents watch and all clusters are ready", parts)
    calm = _Calm(manager, agents)
    _until(lambda: calm.seconds() >= _CALM_SECONDS, _STEADY_SECONDS, "nobody but agents writes", parts)


class _Calm:
    def __init__(self, manager: Manager, agents: Process) -> None:
        self._manager, self._agents = manager, agents
        self._others, self._since = -1, time.monotonic()

    def seconds(self) -> float:
        """Since the last write that was not an agent's."""
        others = self._manager.revision() - _count(self._agents, "reports")
        if others > self._others:
            self._others, self._since = others, time.monotonic()
        return time.monotonic() - self._since


def _connected(manager: Manager) -> int:
    """Clusters that say they are Ready, and whose API has answered."""
    return sum(map(_is_ready, manager.get(_CLUSTERS)["items"]))


def _is_ready(cluster: dict[str, Any]) -> bool:
    said = {one["type"]: one["status"] for one in cluster.get("status", {}).get("conditions") or ()}
    return said.get("Ready") == "True" and said.get("Connected", "True") == "True"


def _until(holds: Callable[[], bool], seconds: float, what: str, parts: dict[str, Process]) -> None:
    until = time.monotonic() + seconds
    while not holds():
        for name, part in parts.items():
            if not part.lives:
                raise Broken(f"{name} has ended: {part.complaint}")
        if time.monotonic() > until:
            said = "; ".join(f"{name}: {part.said}" for name, part in parts.items())
            raise Broken(f"not within {seconds:.0f} s: {what}; {said}")
        time.sleep(1)


def _count(agents: Process, what: str) -> int:
    """As they have told last."""
    return int(json.loads(agents.said).get(what, 0)) if agents.said.startswith("{") else 0


def _sum(pattern: re.Pattern[str], metrics: str) -> int:
    return round(sum(float(value) for value in pattern.findall(metrics)))
