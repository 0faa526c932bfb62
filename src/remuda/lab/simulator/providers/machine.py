"""SimulatedMachine: one server in the cloud, and its Node.

A server is created when the Machine has its bootstrap data. It has the name of this object and the tag of its cluster.
Neither changes when objects are moved to another management cluster, so the server is created only once. The finalizer
is added before the server is created and removed after it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.conditions import condition
from remuda.kube.objects import Key
from remuda.lab.simulator import nodes
from remuda.lab.simulator.cloud import Cloud, CloudError, CloudHost, HostRequest, provider_id
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.common import FINALIZER, READY, ProviderKind, cluster_facts, machine_facts
from remuda.lab.simulator.types import MachineScript, OldSimulatedMachine, SimulatedMachine, SimulatedMachineSpec
from remuda.lab.simulator.workload_registry import Workloads
from remuda.runtime.draft import save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

PUBLISH = step("simulatedmachine.publish", "writes the status of a simulated server")
PROTECT = step("simulatedmachine.protect", "adds the finalizer and the provider ID before the server is created")
CREATE_HOST = step("simulatedmachine.create-host", "creates a server in the cloud")
REMOVE_HOST = step("simulatedmachine.remove-host", "removes a server from the cloud")
REGISTER = step("simulatedmachine.register-node", "registers the Node of a server in the workload cluster")

_LONG_BOOT_SECONDS = 10.0  # a boot that takes longer is shown in a condition
_ETCD_SECONDS = 1.0  # between two attempts to become a member

Registered = Callable[[Key], None]  # called with the Cluster in which a Node has appeared


class MachineProvider:
    def __init__(
        self, manager: Manager, family: Family, cloud: Cloud, workloads: Workloads, registered: Registered
    ) -> None:
        self._side = ProviderKind(manager, family, family.machine)
        self._client = manager.client
        self._cloud = cloud
        self._workloads = workloads
        self._registered = registered
        self._done: set[str] = set()  # uids of reported servers whose Node has no scripted failure left
        self._side.index_unfinished(_finished_old if family.old else _finished)
        controller = manager.controller(self._side.name, family.machine, self.reconcile, concurrency=common.CONCURRENCY)
        controller.watch(manager.caches.of(MACHINE), self._of_machine, "machine", facts=machine_facts)
        controller.watch(manager.caches.of(CLUSTER), self._side.of_cluster, "cluster", facts=cluster_facts)

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        return self._side.named_by(machine.spec.infrastructure_ref, machine.metadata.namespace)

    async def reconcile(self, key: Key) -> Outcome:
        obj = self._side.read(key)
        if obj is None:
            return DONE
        machine = common.machine_of(self._side.caches, obj.metadata)
        cluster = common.cluster_of(self._side.caches, obj.metadata, machine)
        if held := await common.hold(self._side, obj, cluster, PUBLISH):
            return held
        if obj.deleting:
            return await self._delete(obj, machine)
        if machine is None or cluster is None:
            return common.wait(obj, "WaitingForOwner", "no Machine owns it yet, or its Cluster is missing")
        if obj.metadata.uid in self._done:
            return DONE
        if why := _not_yet(machine, cluster):
            return common.wait(obj, "WaitingForBootstrap", why)
        return await self._provision(obj, machine, cluster)

    async def _provision(self, obj: ProviderObject, machine: Machine, cluster: Cluster) -> Outcome:
        script = (obj.field(SimulatedMachineSpec, "spec") or SimulatedMachineSpec()).script
        obj = await self._protect(obj, machine, cluster)
        host = await self._create(obj, machine, cluster, script)
        booting = host.ready_at - clock.time()
        if booting > 0:
            if booting > _LONG_BOOT_SECONDS:
                await self._publish(obj, host, "Booting", f"the server {host.provider_id} boots")
            return Requeue(booting, "the server boots")
        try:
            outcome = await self._become_node(obj, machine, cluster, host, script)
        finally:
            await self._publish(obj, host)
        if outcome is DONE:
            self._done.add(obj.metadata.uid)  # only now, so that a lost report is repeated
        return outcome

    async def _protect(self, obj: ProviderObject, machine: Machine, cluster: Cluster) -> ProviderObject:
        """Add the finalizer, and with it all fields of the spec about the server: one write instead of two."""
        draft = obj.draft()
        draft.add_finalizer(FINALIZER)
        draft.spec["providerID"] = provider_id(obj.key.name, str(cluster.key))
        if obj.old and machine.spec.failure_domain:
            draft.spec["failureDomain"] = machine.spec.failure_domain
        return ProviderObject(await save(self._client, draft, PROTECT), obj.target, obj.contract)

    async def _create(
        self, obj: ProviderObject, machine: Machine, cluster: Cluster, script: MachineScript
    ) -> CloudHost:
        request = HostRequest(
            name=obj.key.name,
            tag=str(cluster.key),
            failure_domain=machine.spec.failure_domain,
            boot_seconds=script.boot_seconds,
            refusals=script.refusals,
            answers_lost=script.answers_lost,
        )
        try:
            async with CREATE_HOST:
                return await self._cloud.create(request)
        except CloudError as error:
            if not contract.provisioned(obj):
                await self._publish(obj, None, "CreationFailed", str(error))
            raise Retryable(str(error)) from None

    async def _publish(self, obj: ProviderObject, host: CloudHost | None, reason: str = "", message: str = "") -> None:
        """Report the state. Without a reason: the server runs."""
        draft = obj.draft()
        if host is not None and not reason:
            draft.status["addresses"] = [
                {"type": "InternalIP", "address": host.address},
                {"type": "Hostname", "address": host.name},
            ]
            common.put(draft.obj, contract.provisioned_path(obj), True)
            if host.failure_domain and not obj.old:
                draft.status["failureDomain"] = host.failure_domain
        common.report(draft, obj, condition(READY, not reason, reason or "Provisioned", message))
        await save(self._client, draft, PUBLISH)

    # -- Node

    async def _become_node(
        self, obj: ProviderObject, machine: Machine, cluster: Cluster, host: CloudHost, script: MachineScript
    ) -> Outcome:
        """Register the Node before the server is reported, if that takes no time: then the first reconcile completes
        everything.
        """
        starting = host.ready_at + script.node_seconds - clock.time()
        if starting > 0:
            return Requeue(starting, "the kubelet starts")
        if script.bootstrap_fails:
            return common.wait(obj, "Scripted", "its script says that the server never becomes a Node")
        if machine.is_control_plane and (why := self._join(obj, machine, cluster)):
            return Requeue(_ETCD_SECONDS, why)
        client = await self._api(machine, cluster)
        found = await nodes.find(client, machine.metadata.name)
        if found is None:
            if machine.status.node_ref is not None or machine.metadata.deleting:
                return DONE
            async with REGISTER:
                await nodes.register(client, machine, host)
            self._registered(cluster.key)
            found = await nodes.find(client, machine.metadata.name)
        return await self._trouble(obj, client, machine.metadata.name, script, found)

    def _join(self, obj: ProviderObject, machine: Machine, cluster: Cluster) -> str:
        etcd = self._workloads.etcd(cluster.key)
        if machine.metadata.name in etcd.members:
            return nodes.join_etcd(etcd, machine.metadata.name)
        if machine.metadata.deleting:
            return ""
        if contract.provisioned(obj):
            etcd.adopt(machine.metadata.name)
        return nodes.join_etcd(etcd, machine.metadata.name)

    async def _api(self, machine: Machine, cluster: Cluster) -> Client:
        if machine.is_control_plane:
            return await self._workloads.start(cluster.key)
        return await self._workloads.dial(cluster.key)

    async def _trouble(
        self, obj: ProviderObject, client: Client, name: str, script: MachineScript, found: common.Json | None
    ) -> Outcome:
        what, seconds = nodes.trouble(script, found) if found is not None else ("", 0.0)
        if not what:
            return DONE
        if seconds:
            return Requeue(seconds, f"the script says that the Node {what} next")
        await (nodes.fail if what == "fails" else nodes.remove_node)(client, name)
        return Requeue(0.0, "checking the script for another failure of the Node")

    # -- deletion

    async def _delete(self, obj: ProviderObject, machine: Machine | None) -> Outcome:
        cluster = Key(obj.key.namespace, obj.metadata.labels.get(names.CLUSTER_NAME, ""))
        if machine is not None:
            cluster = Key(obj.key.namespace, machine.spec.cluster_name)
        draft = obj.draft()
        if not draft.remove_finalizer(FINALIZER):
            return DONE
        async with REMOVE_HOST:
            await self._cloud.remove(obj.key.name, str(cluster))
        self._workloads.etcd(cluster).take_host(machine.metadata.name if machine is not None else obj.key.name)
        self._done.discard(obj.metadata.uid)
        await save(self._client, draft, PUBLISH)
        return DONE


def _not_yet(machine: Machine, cluster: Cluster) -> str:
    """Return why the server cannot be created now; empty when it can."""
    if machine.metadata.deleting and not machine.status.initialization.infrastructure_provisioned:
        return f"Machine {machine.key} is being deleted"
    if not cluster.status.initialization.infrastructure_provisioned:
        return f"the infrastructure of Cluster {cluster.key} is not provisioned"
    if machine.spec.bootstrap.data_secret_name is None:
        return f"Machine {machine.key} has no bootstrap data yet"
    return ""


def _finished(obj: SimulatedMachine) -> bool:
    return obj.status.initialization.provisioned


def _finished_old(obj: OldSimulatedMachine) -> bool:
    return obj.status.ready
