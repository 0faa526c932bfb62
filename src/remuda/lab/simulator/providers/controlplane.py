"""SimulatedControlPlane: Machines whose servers are members of one etcd, made, replaced and removed one at a time.

Each Machine is created first and its bootstrap and infrastructure objects after it, already owned by it; a crash in
between is completed by the next reconcile. A Machine that goes is held by a hook until its member has left etcd. The
API counts as initialized when the first server has become a Node; then `<cluster>-kubeconfig` is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import msgspec

from remuda.capi import contract
from remuda.capi.contract import ProviderObject
from remuda.capi.external import Externals
from remuda.capi.machine.deletion import awaits_last_hooks
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import clock, conditions
from remuda.kube.client import Client
from remuda.kube.errors import AlreadyExists, Unreachable
from remuda.kube.objects import Key, OwnerReference
from remuda.lab.simulator import nodes
from remuda.lab.simulator.etcd import EtcdRefused
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common, controlplane_machines, controlplane_status
from remuda.lab.simulator.providers.bootstrap import SECRETS
from remuda.lab.simulator.providers.common import FINALIZER, ProviderKind, cluster_facts
from remuda.lab.simulator.providers.controlplane_machines import HOOK, DesiredControlPlane
from remuda.lab.simulator.providers.rollout import (
    ControlPlaneMachine,
    CreateMachine,
    Decision,
    DeleteMachine,
    WaitForMachine,
    decide,
)
from remuda.lab.simulator.workload_registry import Workloads
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

PUBLISH = step("simulatedcontrolplane.publish", "writes the status of a simulated control plane")
OWN_TEMPLATE = step("simulatedcontrolplane.own-template", "makes the Cluster an owner of the template of its servers")
CREATE_MACHINE = step("simulatedcontrolplane.create-machine", "creates a Machine of a control plane")
MARK_MACHINE = step("simulatedcontrolplane.mark-machine", "writes to a Machine whether it is up to date")
CREATE_BOOTSTRAP = step("simulatedcontrolplane.create-bootstrap", "creates the bootstrap object of a Machine")
CREATE_INFRASTRUCTURE = step("simulatedcontrolplane.create-infrastructure", "creates the server object of a Machine")
CREATE_KUBECONFIG = step("simulatedcontrolplane.create-kubeconfig", "writes the kubeconfig of the workload cluster")
DELETE_MACHINE = step("simulatedcontrolplane.delete-machine", "deletes a Machine of a control plane")
RELEASE_MACHINE = step(
    "simulatedcontrolplane.release-machine", "allows the deletion of a Machine whose member has left etcd"
)

_OWNED = "simulated control plane"  # an index of Machines by the uid of the control plane they belong to
_ETCD_SECONDS = 2.0
_SOON_SECONDS = 5.0  # a first Machine that takes longer to become a Node is shown in the status


class ControlPlaneProvider:
    def __init__(self, manager: Manager, family: Family, workloads: Workloads, externals: Externals) -> None:
        self._side = ProviderKind(manager, family, family.control_plane)
        self._client = manager.client
        self._workloads = workloads
        self._externals = externals
        self._machines = manager.caches.of(MACHINE)
        self._machines.index(_OWNED, _control_plane_uid)
        self._controller = manager.controller(
            self._side.name, family.control_plane, self.reconcile, concurrency=common.CONCURRENCY
        )
        self._controller.watch(self._machines, self._of_machine, "machine")
        self._controller.watch(manager.caches.of(CLUSTER), self._of_cluster, "cluster", facts=cluster_facts)
        externals.follow(self._controller, family.control_plane, lambda obj: (DesiredControlPlane.of(obj).template,))

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        owner = machine.metadata.controller
        if owner is not None and owner.kind == self._side.kind.name and owner.group == self._side.family.group:
            yield Key(machine.metadata.namespace, owner.name)

    def _of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        ref = cluster.spec.control_plane_ref
        if ref is not None and ref.kind == self._side.kind.name and ref.api_group == self._side.family.group:
            yield Key(cluster.metadata.namespace, ref.name)

    def look_again(self, cluster: Cluster) -> None:
        """Reconcile after a Node has appeared in the workload cluster, which no watch of the management
        cluster shows.
        """
        for key in self._of_cluster(cluster):
            self._controller.enqueue(key)

    async def reconcile(self, key: Key) -> Outcome:
        obj = self._side.read(key)
        if obj is None:
            return DONE
        cluster = common.cluster_of(self._side.caches, obj.metadata)
        if held := await common.hold(self._side, obj, cluster, PUBLISH):
            return held
        machines = self._machines.select(_OWNED, obj.metadata.uid)
        if obj.deleting:
            return await self._delete(obj, cluster, machines)
        if cluster is None:
            return common.wait(obj, "WaitingForOwner", "no Cluster owns it yet")
        if not cluster.status.initialization.infrastructure_provisioned:
            return common.wait(
                obj, "WaitingForCluster", f"the infrastructure of Cluster {cluster.key} is not provisioned"
            )
        return await self._manage(obj, cluster, machines)

    async def _manage(self, obj: ProviderObject, cluster: Cluster, machines: Sequence[Machine]) -> Outcome:
        """Read everything, and either change the set of Machines once, or report: a change triggers another reconcile
        at once, which reports.
        """
        obj = await self._protect(obj, cluster)
        wanted = DesiredControlPlane.of(self._side.kind.decode(obj.value))
        await self._own_template(obj, cluster, wanted)
        for machine in machines:
            await self._complete(obj, cluster, wanted, machine)
        client = await self._api(cluster)
        members = [await self._member(client, cluster, wanted, machine) for machine in machines]
        initialized = contract.initialized(obj) or await self._initialize(obj, cluster, members)
        decision = decide(members, wanted.replicas, _failure_domains(cluster))
        if isinstance(decision, CreateMachine) and members and not initialized:
            decision = WaitForMachine("the first Machine is not a Node yet")
        stuck = await self._look_after(machines, members, cluster)
        if not initialized and (young := _SOON_SECONDS - _age(machines)) > 0 and isinstance(decision, WaitForMachine):
            return Requeue(young, decision.why)
        if not await self._act(obj, cluster, wanted, decision) or initialized != contract.initialized(obj):
            await self._publish(obj, wanted, machines, members, initialized, decision)
        return _next_look(wanted, stuck)

    async def _protect(self, obj: ProviderObject, cluster: Cluster) -> ProviderObject:
        """Add the finalizer, and set the endpoint if no other object does."""
        lacks_endpoint = not cluster.spec.control_plane_endpoint.valid and not contract.endpoint(obj).valid
        if FINALIZER in obj.metadata.finalizers and not lacks_endpoint:
            return obj
        draft = obj.draft()
        draft.add_finalizer(FINALIZER)
        if lacks_endpoint:
            endpoint = await self._workloads.endpoint(cluster.key)
            draft.spec["controlPlaneEndpoint"] = msgspec.to_builtins(endpoint)
        value = await save(self._client, draft, PUBLISH)
        return ProviderObject(value, obj.target, obj.contract)

    async def _own_template(self, obj: ProviderObject, cluster: Cluster, wanted: DesiredControlPlane) -> None:
        """Make the Cluster own the template, so that it is deleted and moved with it."""
        template = await self._externals.get(wanted.template, obj.key.namespace)
        if template is None or template.metadata.owner(CLUSTER.name, CLUSTER.group) is not None:
            return
        draft = template.draft()
        name, uid = cluster.metadata.name, cluster.metadata.uid
        draft.set_owner(OwnerReference(api_version=CLUSTER.api_version, kind=CLUSTER.name, name=name, uid=uid))
        await save(self._client, draft, OWN_TEMPLATE)

    async def _api(self, cluster: Cluster) -> Client | None:
        try:
            return await self._workloads.dial(cluster.key)
        except Unreachable:
            return None

    async def _member(
        self, client: Client | None, cluster: Cluster, wanted: DesiredControlPlane, machine: Machine
    ) -> ControlPlaneMachine:
        name = machine.metadata.name
        voter = self._workloads.etcd(cluster.key).members.get(name)
        joined = voter is not None and not voter.learner
        has_node = machine.status.node_ref is not None
        if client is not None and joined and not has_node:
            has_node = await nodes.find(client, name) is not None
        infrastructure = await self._externals.get(machine.spec.infrastructure_ref, machine.metadata.namespace)
        return controlplane_machines.member(machine, infrastructure, wanted, settled=joined and has_node)

    async def _initialize(self, obj: ProviderObject, cluster: Cluster, members: Sequence[ControlPlaneMachine]) -> bool:
        if not any(member.settled for member in members):
            return False
        secret = controlplane_machines.kubeconfig_secret(obj, cluster, await self._workloads.kubeconfig(cluster.key))
        with contextlib.suppress(AlreadyExists):
            async with CREATE_KUBECONFIG:
                await self._client.create(SECRETS, obj.key.namespace, secret)
        return True

    # Machines

    async def _complete(
        self, obj: ProviderObject, cluster: Cluster, wanted: DesiredControlPlane, machine: Machine
    ) -> None:
        """Create the objects that a Machine refers to, unless they exist or have done their work."""
        if machine.metadata.deleting or machine.status.initialization.infrastructure_provisioned:
            return
        namespace = machine.metadata.namespace
        config = machine.spec.bootstrap.config_ref
        if config is not None and await self._externals.get(config, namespace) is None:
            made = controlplane_machines.bootstrap(self._side.family, cluster, wanted, machine)
            async with CREATE_BOOTSTRAP:
                await self._client.create(self._side.family.bootstrap.target, namespace, made)
        if await self._externals.get(machine.spec.infrastructure_ref, namespace) is None:
            template = await self._externals.get(wanted.template, namespace)
            if template is None:
                raise Retryable(f"the template {wanted.template} does not exist")
            async with CREATE_INFRASTRUCTURE:
                await self._externals.clone(
                    template,
                    name=machine.metadata.name,
                    owner=controlplane_machines.owner(machine),
                    labels=dict(machine.metadata.labels),
                    annotations=dict(wanted.metadata.annotations),
                )

    async def _act(
        self, obj: ProviderObject, cluster: Cluster, wanted: DesiredControlPlane, decision: Decision
    ) -> bool:
        """Carry out the decision; return whether something was done."""
        if isinstance(decision, DeleteMachine):
            async with DELETE_MACHINE:
                await self._client.delete(MACHINE.target, obj.key.namespace, decision.name)
            return True
        if not isinstance(decision, CreateMachine):
            return False
        made = controlplane_machines.machine(obj, self._side.family, cluster, wanted, decision.failure_domain)
        async with CREATE_MACHINE:
            value = await self._client.create(MACHINE.target, obj.key.namespace, made)
        machine = MACHINE.decode(value)
        await self._mark(value, machine, up_to_date=True)
        await self._complete(obj, cluster, wanted, machine)
        return True

    async def _look_after(
        self, machines: Sequence[Machine], members: Sequence[ControlPlaneMachine], cluster: Cluster
    ) -> str:
        """Set the UpToDate condition of each Machine, and release those that have left etcd. Return why one cannot."""
        stuck = ""
        for machine, member in zip(machines, members, strict=True):
            value = self._machines.raw(*machine.key)
            if value is None:
                continue
            if not member.deleting:
                await self._mark(value, machine, up_to_date=member.up_to_date)
            elif HOOK in machine.metadata.annotations and awaits_last_hooks(machine):
                stuck = self._leave(cluster, machine) or stuck
                if machine.metadata.name not in self._workloads.etcd(cluster.key).members:
                    await self._release(value)
        return stuck

    async def _mark(self, value: bytes, machine: Machine, *, up_to_date: bool) -> None:
        condition = controlplane_machines.up_to_date_condition(up_to_date)
        present = conditions.find(machine.status.conditions, condition.type)
        if present is not None and present.status == condition.status:
            return
        draft = Draft(MACHINE.target, value)
        conditions.put(draft.status, [condition], generation=machine.metadata.generation)
        await save(self._client, draft, MARK_MACHINE)

    def _leave(self, cluster: Cluster, machine: Machine) -> str:
        try:
            self._workloads.etcd(cluster.key).remove(machine.metadata.name)
        except EtcdRefused as refused:
            return f"the member of Machine {machine.metadata.name} cannot leave etcd: {refused}"
        return ""

    async def _release(self, value: bytes) -> None:
        draft = Draft(MACHINE.target, value)
        draft.set_annotation(HOOK, None)
        await save(self._client, draft, RELEASE_MACHINE)

    # -- status and deletion

    async def _publish(
        self,
        obj: ProviderObject,
        wanted: DesiredControlPlane,
        machines: Sequence[Machine],
        members: Sequence[ControlPlaneMachine],
        initialized: bool,
        decision: Decision,
    ) -> None:
        draft = obj.draft()
        current = [self._machines.get(*machine.key) or machine for machine in machines]
        controlplane_status.put(draft, obj, wanted, current, members, initialized, decision)
        await save(self._client, draft, PUBLISH)

    async def _delete(self, obj: ProviderObject, cluster: Cluster | None, machines: Sequence[Machine]) -> Outcome:
        if cluster is not None:
            self._workloads.etcd(cluster.key).end()
        for machine in machines:
            value = self._machines.raw(*machine.key)
            # The whole etcd is deleted, so no member has to leave it first.
            if value is not None and HOOK in machine.metadata.annotations:
                await self._release(value)
            if not machine.metadata.deleting:
                async with DELETE_MACHINE:
                    await self._client.delete(MACHINE.target, *machine.key)
        if machines:
            waiting = ", ".join(machine.metadata.name for machine in machines)
            return common.wait(obj, "WaitingForMachines", f"waits until these Machines are gone: {waiting}")
        draft = obj.draft()
        if draft.remove_finalizer(FINALIZER):
            await save(self._client, draft, PUBLISH)
        return DONE


def _control_plane_uid(machine: Machine) -> Iterable[str]:
    owner = machine.metadata.controller
    return (owner.uid,) if owner is not None else ()


def _next_look(wanted: DesiredControlPlane, stuck: str) -> Outcome:
    if stuck:
        return Requeue(_ETCD_SECONDS, stuck)
    left = clock.parse(wanted.rollout_after) - clock.time() if wanted.rollout_after else 0.0
    return Requeue(left, "Machines are replaced at the time in spec.rollout.after") if left > 0 else DONE


def _age(machines: Sequence[Machine]) -> float:
    """Return the seconds since the first Machine was created."""
    made = [machine.metadata.creation_timestamp or clock.now() for machine in machines]
    return clock.time() - clock.parse(min(made)) if made else 0.0


def _failure_domains(cluster: Cluster) -> list[str]:
    return [domain.name for domain in cluster.status.failure_domains if domain.control_plane]
