"""SimulatedBootstrap: creates the data that would turn a server into a Node, in a Secret.

A worker's data is created when there is a control plane to join. This object owns the Secret, so no cleanup is needed.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable

import msgspec

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube.client import Target
from remuda.kube.conditions import condition
from remuda.kube.errors import AlreadyExists
from remuda.kube.objects import Key
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.common import READY, ProviderKind, cluster_facts, machine_facts
from remuda.lab.simulator.types import OldSimulatedBootstrap, SimulatedBootstrap, SimulatedBootstrapSpec
from remuda.runtime.draft import save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

PUBLISH = step("simulatedbootstrap.publish", "writes the status of a simulated bootstrap")
CREATE_SECRET = step("simulatedbootstrap.create-secret", "creates the Secret with the bootstrap data")

SECRETS = Target("v1", "secrets")


class BootstrapProvider:
    def __init__(self, manager: Manager, family: Family) -> None:
        self._side = ProviderKind(manager, family, family.bootstrap)
        self._client = manager.client
        self._attempts = common.ScriptProgress()
        self._side.index_unfinished(_finished_old if family.old else _finished)
        controller = manager.controller(
            self._side.name, family.bootstrap, self.reconcile, concurrency=common.CONCURRENCY
        )
        controller.watch(manager.caches.of(MACHINE), self._of_machine, "machine", facts=machine_facts)
        controller.watch(manager.caches.of(CLUSTER), self._side.of_cluster, "cluster", facts=cluster_facts)

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        return self._side.named_by(machine.spec.bootstrap.config_ref, machine.metadata.namespace)

    async def reconcile(self, key: Key) -> Outcome:
        obj = self._side.read(key)
        if obj is None or obj.deleting:
            return DONE
        machine = common.machine_of(self._side.caches, obj.metadata)
        cluster = common.cluster_of(self._side.caches, obj.metadata, machine)
        if held := await common.hold(self._side, obj, cluster, PUBLISH):
            return held
        if machine is None or cluster is None:
            return common.wait(obj, "WaitingForOwner", "no Machine owns it yet, or its Cluster is missing")
        if contract.data_secret_created(obj):
            return await self._publish(obj)
        if why := _not_yet(machine, cluster):
            return common.wait(obj, "WaitingForCluster", why)
        return await self._make(obj, cluster)

    async def _make(self, obj: ProviderObject, cluster: Cluster) -> Outcome:
        script = (obj.field(SimulatedBootstrapSpec, "spec") or SimulatedBootstrapSpec()).script
        if script.never:
            return common.wait(obj, "Scripted", "its script says that the data is never made")
        left = self._attempts.seconds_left(script, obj.metadata.creation_timestamp)
        if left:
            return Requeue(left, "the bootstrap data is being created")
        if self._attempts.fails(obj.metadata.uid, script):
            raise Retryable("cannot create the bootstrap data: the script lets this attempt fail")
        await self._create_secret(obj, cluster)
        return await self._publish(obj)

    async def _create_secret(self, obj: ProviderObject, cluster: Cluster) -> None:
        data = f"#cloud-config\n# makes {obj.key.name} a node of {cluster.metadata.name}\n".encode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": obj.key.name,
                "labels": {names.CLUSTER_NAME: cluster.metadata.name},
                "ownerReferences": [msgspec.to_builtins(common.owner_reference(obj))],
            },
            "type": names.SECRET_TYPE,
            "data": {"value": base64.b64encode(data).decode(), "format": base64.b64encode(b"cloud-config").decode()},
        }
        with contextlib.suppress(AlreadyExists):
            async with CREATE_SECRET:
                await self._client.create(SECRETS, obj.key.namespace, secret)

    async def _publish(self, obj: ProviderObject) -> Outcome:
        draft = obj.draft()
        draft.status["dataSecretName"] = obj.key.name
        common.put(draft.obj, contract.data_secret_created_path(obj), True)
        common.report(draft, obj, condition(READY, True, "DataSecretCreated"))
        await save(self._client, draft, PUBLISH)
        return DONE


def _not_yet(machine: Machine, cluster: Cluster) -> str:
    """Return why the bootstrap data cannot be created now; empty when it can."""
    if not cluster.status.initialization.infrastructure_provisioned:
        return f"the infrastructure of Cluster {cluster.key} is not provisioned"
    if not machine.is_control_plane and not cluster.status.initialization.control_plane_initialized:
        return f"Cluster {cluster.key} has no control plane yet that a worker could join"
    return ""


def _finished(obj: SimulatedBootstrap) -> bool:
    return obj.status.initialization.data_secret_created


def _finished_old(obj: OldSimulatedBootstrap) -> bool:
    return obj.status.ready
