"""The life of one cluster of 3 + 5 Machines: created, scaled, changed in place, healed, rolled and deleted.

A scenario knows how many servers it needs from beginning to end, whatever is killed meanwhile: a Machine made twice, or
one replaced that need not be, is one too many. While it goes on, a census of the worker Machines says whether there
were ever more of them, or fewer available, than the rollout allows.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from remuda.capi import names
from remuda.capi.remote import dialer
from remuda.capi.types import CLUSTER, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, Machine
from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists
from remuda.kube.objects import Key, Kind
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import Family
from tests.faults.controllers.proof import complaints
from tests.faults.controllers.view import Json, View, available, insist, left_in, or_done

Stage = Callable[[], Awaitable[None]]

NAMESPACES = Target("v1", "namespaces")
NODES = Target("v1", "nodes")
PODS = Target("v1", "pods")
NEW_VERSION = "v1.36.1"
TIER = f"{names.MANAGED_NODE_DOMAIN}/tier"  # a label that a Machine hands on to its Node

UNREADY = {"type": "Ready", "status": "False", "timeoutSeconds": 1}  # of a Node: then its Machine is unhealthy


class Scene(Protocol):
    """Where a scenario takes place: a management cluster, and the cloud its provider uses."""

    view: View
    cloud: Path
    deaths: Sequence[object]


class Scenario:
    control_planes = 3
    workers = 5

    def __init__(self, scene: Scene, family: Family, namespace: str) -> None:
        self.scene = scene
        self.view = scene.view
        self.family = family
        self.namespace = namespace
        self.blueprint = Blueprint(
            name="herd", namespace=namespace, control_planes=self.control_planes, workers=self.workers, family=family
        )
        self.key = Key(namespace, self.blueprint.name)
        self.stages_done = 0  # stages
        self.servers = 0  # so many must have been made by now
        self.census = Census(self)

    async def run(self) -> None:
        for stage in self.stages():
            await stage()
            self.stages_done += 1

    def stages(self) -> list[Stage]:
        grow, shrink = partial(self.scale, 7), partial(self.scale, 4)
        return [self.create, grow, self.put_pods, shrink, self.relabel, self.heal, self.roll, self.delete]

    # the stages

    async def create(self) -> None:
        self.census.watch()
        self.census.expect(most=self.workers)
        self.servers += self.control_planes + self.workers
        await self.apply()
        spec = {
            "clusterName": self.key.name,
            "selector": {"matchLabels": {names.DEPLOYMENT_NAME: self.blueprint.deployment}},
            "checks": {"unhealthyNodeConditions": [UNREADY]},
        }
        await self.put(MACHINE_HEALTH_CHECK, "workers", spec)
        await self.settled(self.workers)

    async def apply(self) -> None:
        await self.make_namespace()
        for target, obj in self.blueprint.objects():
            if target == MACHINE_DEPLOYMENT.target:
                self._select(obj)
            await self.view.create(target, self.namespace, obj)

    async def make_namespace(self) -> None:
        metadata = {"name": self.namespace}
        await self.view.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def _select(self, deployment: Json) -> None:
        """Says in full which Machines are meant: where no webhook is asked, nobody fills that in."""
        labels = {names.CLUSTER_NAME: self.key.name, names.DEPLOYMENT_NAME: self.blueprint.deployment}
        deployment["spec"]["selector"] = {"matchLabels": labels}
        deployment["spec"]["template"]["metadata"] = {"labels": labels}

    async def scale(self, workers: int) -> None:
        self.servers += max(0, workers - self.workers)
        self.census.expect(most=max(workers, self.workers))
        self.workers = workers
        await self._patch_deployment({"replicas": workers})
        await self.settled(workers)

    async def relabel(self) -> None:
        """A change that reaches the Nodes in place."""
        self.census.expect(most=self.workers)
        await self._patch_deployment({"template": {"metadata": {"labels": {TIER: "gold"}}}})

        def labelled() -> bool:
            return all(one.metadata.labels.get(TIER) == "gold" for one in self.worker_machines())

        await self.settled(self.workers, labelled, "and labelled")

    async def heal(self) -> None:
        """A Node is not ready any more: its Machine is replaced."""
        self.census.expect(most=self.workers)
        self.servers += 1
        sick = self.worker_machines()[0]
        await self.break_node(sick)

        def replaced() -> bool:
            return sick.metadata.uid not in {one.metadata.uid for one in self.machines()}

        await self.settled(self.workers, replaced, "and the sick one is gone")

    async def roll(self) -> None:
        """Every Machine is replaced: workers get a new template, and all of them a new version."""
        self.census.expect(most=self.workers + 1, fewest_available=self.workers)
        self.servers += self.control_planes + self.workers
        template = next(
            obj for target, obj in self.blueprint.objects() if target == self.family.machine_template.target
        )
        name = f"{self.blueprint.deployment}-2"
        await self.put(self.family.machine_template, name, template["spec"])
        spec = {"version": NEW_VERSION, "infrastructureRef": {"name": name}}
        await self._patch_deployment({"template": {"spec": spec}})
        target = self.family.control_plane.target
        await self.view.patch(target, *self.key, {"spec": {"version": NEW_VERSION}})

        def new() -> bool:
            return all(one.spec.version == NEW_VERSION for one in self.machines())

        await self.settled(self.workers, new, "and all of them new")

    async def delete(self) -> None:
        self.census.expect(most=self.workers)
        await self.view.delete(CLUSTER.target, *self.key)
        await self.view.until(lambda: not self.view.names(self.namespace), f"{self.key} is gone with all it had")
        assert await left_in(self.view.client, self.namespace) == []
        assert complaints(self.scene.cloud, str(self.key), self.servers) == []
        self.say("deleted")

    async def put_pods(self) -> None:
        """One on every worker, so that there is something to evict."""
        async with self.workload() as client:
            for machine in self.worker_machines():
                assert machine.status.node_ref is not None
                create = partial(
                    client.create, PODS, "default", _pod(f"on-{machine.metadata.name}", machine.status.node_ref.name)
                )
                await insist(lambda create=create: or_done(AlreadyExists, create()))  # type: ignore[misc]

    async def break_node(self, machine: Machine) -> None:
        assert machine.status.node_ref is not None
        now = clock.now()
        ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "it is broken"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        patch = {"status": {"conditions": [ready]}}
        async with self.workload() as client:
            name = machine.status.node_ref.name
            await insist(partial(client.patch, NODES, "", name, patch, kind="strategic", subresource="status"))

    async def put(
        self, kind: Kind[Any], name: str, spec: Json, labels: Json | None = None, annotations: Json | None = None
    ) -> None:
        """What a user applies."""
        cluster = {names.CLUSTER_NAME: self.key.name}
        metadata = {"name": name, "labels": cluster | (labels or {}), "annotations": annotations or {}}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        await self.view.create(kind.target, self.namespace, obj)

    # looking

    def machines(self) -> list[Machine]:
        return self.view.members(*self.key)

    def worker_machines(self) -> list[Machine]:
        return [one for one in self.machines() if not one.is_control_plane]

    async def settled(self, workers: int, also: Callable[[], bool] = lambda: True, words: str = "") -> None:
        """Until there are exactly the Machines wanted, all available, and everybody says so."""

        def holds() -> bool:
            machines = self.machines()
            if len(machines) != self.control_planes + workers or not all(available(one) for one in machines):
                return False
            deployment = self.view.deployments.get(self.namespace, self.blueprint.deployment)
            assert deployment is not None
            told = deployment.status
            counts = (told.replicas, told.available_replicas, told.up_to_date_replicas)
            return (
                counts == (workers, workers, workers)
                and told.observed_generation == deployment.metadata.generation
                and also()
            )

        what = f"{self.key}: {self.control_planes} + {workers} Machines are available {words}"
        await self.view.until(holds, what)
        assert not self.census.findings, "\n".join(self.census.findings)
        self.say(what)

    @asynccontextmanager
    async def workload(self) -> AsyncIterator[Client]:
        client: Client = await insist(lambda: dialer(self.view.client)(self.key))
        try:
            yield client
        finally:
            await client.close()

    async def _patch_deployment(self, spec: Json) -> None:
        await self.view.patch(MACHINE_DEPLOYMENT.target, self.namespace, self.blueprint.deployment, {"spec": spec})

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text} after {len(self.scene.deaths)} deaths", flush=True)


class Census:
    """Counts a scenario's worker Machines after every change: how many there are, and, whenever one of them is told to
    go, how many available ones are left. (That a server is out of reach for a while is nobody's deed.)"""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._most = 0
        self._fewest = 0
        self.findings: list[str] = []

    def watch(self) -> None:
        self._scenario.view.machines.listen(self._count)

    def expect(self, *, most: int, fewest_available: int = 0) -> None:
        self._most, self._fewest = most, fewest_available

    def _count(self, before: Machine | None, after: Machine | None, initial: bool) -> None:
        if initial:
            return  # a list is taken in one by one: what is seen half-way never was
        staying = [one for one in self._scenario.worker_machines() if not one.metadata.deleting]
        able = [one for one in staying if available(one)]
        if len(staying) > self._most:
            self.findings.append(f"{_names(staying)} are there, {self._most} are allowed")
        if after is not None and _goes(before, after) and self._is_mine(after) and len(able) < self._fewest:
            self.findings.append(f"{after.metadata.name} goes, only {_names(able)} are left, {self._fewest} must be")

    def _is_mine(self, machine: Machine) -> bool:
        return machine.metadata.uid in {one.metadata.uid for one in self._scenario.worker_machines()}


def _goes(before: Machine | None, after: Machine) -> bool:
    return before is not None and after.metadata.deleting and not before.metadata.deleting


def _names(machines: list[Machine]) -> str:
    return ", ".join(one.metadata.name for one in machines)


def _pod(name: str, node: str) -> Json:
    container = {"name": "main", "image": "none"}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
