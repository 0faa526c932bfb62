"""Carry out the planner's decision, act by act, each as a named step.

Any act may be repeated or left undone: the next run decides again on the state it finds. An act that fails does not
prevent the others from being tried.
"""

from __future__ import annotations

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE, Machine
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import Object
from remuda.kube.wait import Wait
from remuda.providers.controlplane import nodes, plan_secrets, removal
from remuda.providers.controlplane.gather import Gathered, Gatherer
from remuda.providers.controlplane.planner.decision import (
    Act,
    Decision,
    Deliver,
    Expel,
    Forget,
    Hold,
    Leave,
    Mark,
    Release,
    RequestDrain,
    RequestUncordon,
    RunAgain,
)
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, RKEBootstrap
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.events import Events
from remuda.runtime.outcome import Retryable
from remuda.runtime.steps import Step, step

MARK = step("rkecontrolplane.mark-init-node", "marks the host that initializes the cluster")
UNMARK = step("rkecontrolplane.unmark-init-node", "removes the init node mark from another host")
LABEL = step("rkecontrolplane.label-server", "sets Cluster API's control plane label on a Machine")

_EXPECTED = (StatusError, Retryable, OSError, TimeoutError)


class DecisionExecutor:
    """Executor of the acts of one planner run."""

    def __init__(
        self, client: Client, events: Events, source: Gatherer, plane: RKEControlPlane, gathered: Gathered
    ) -> None:
        self._client = client
        self._events = events
        self._source = source
        self._plane = plane
        self._gathered = gathered
        self.held: list[Wait] = []  # acts that were not carried out
        self.errors: list[Exception] = []

    async def carry_out(self, decision: Decision) -> None:
        for act in decision.acts:
            try:
                await self._carry_out(act)
            except _EXPECTED as error:
                self.errors.append(error)

    async def _carry_out(self, act: Act) -> None:
        match act:
            case Mark():
                await self._mark(act)
            case Deliver():
                await self._deliver(act)
            case RunAgain():
                await self._run_again(act)
            case RequestDrain():
                if (secret := self._gathered.secrets.get(act.host)) is not None:
                    await plan_secrets.request_drain(self._client, secret, act.options)
            case RequestUncordon():
                if (secret := self._gathered.secrets.get(act.host)) is not None:
                    await plan_secrets.request_uncordon(self._client, secret, act.options)
            case Hold():
                if (machine := self._machine(act.host)) is not None:
                    await removal.hold(self._client, self._source.machines, machine)
            case Release():
                await self._release(act)
            case Leave():
                await self._leave(act)
            case Expel():
                await self._expel(act)
            case Forget():
                await self._forget(act)

    # ---- marks

    async def _mark(self, act: Mark) -> None:
        """Move the mark. The old mark is removed first: two marks would begin two clusters, while a missing mark only
        causes another election."""
        for name, bootstrap in self._gathered.bootstraps.items():
            if name != act.host and bootstrap.metadata.labels.get(names.INIT_NODE):
                await self._label(bootstrap, None, UNMARK)
        chosen = self._gathered.bootstraps.get(act.host)
        if chosen is not None:
            await self._label(chosen, "true", MARK)
            self._record_event(self._plane, "InitNodeElected", f"Machine {act.host} begins the cluster: {act.why}")

    async def _label(self, bootstrap: RKEBootstrap, value: str | None, named: Step) -> None:
        present = self._source.bootstraps.raw(*bootstrap.key)
        if present is None:
            return
        draft = Draft(RKE_BOOTSTRAP.target, present)
        draft.set_label(names.INIT_NODE, value)
        await save(self._client, draft, named)

    # ---- plans

    async def _deliver(self, act: Deliver) -> None:
        secret = self._gathered.secrets.get(act.host)
        if secret is None:
            return
        await plan_secrets.deliver(self._client, self._source.plans, secret, act.plan)
        if (machine := self._machine(act.host)) is not None:
            self._record_event(machine, "PlanDelivered", act.why)

    async def _run_again(self, act: RunAgain) -> None:
        secret = self._gathered.secrets.get(act.host)
        if secret is None:
            return
        await plan_secrets.run_again(self._client, secret)
        if (machine := self._machine(act.host)) is not None:
            self._record_event(machine, "PlanRetried", f"attempt {act.attempt}")

    # ---- going

    async def _release(self, act: Release) -> None:
        if (machine := self._machine(act.host)) is not None:
            await removal.release(self._client, self._source.machines, machine)
            self._record_event(machine, "Released", act.why)

    async def _leave(self, act: Leave) -> None:
        host = next((one for one in self._gathered.observed.hosts if one.name == act.host), None)
        client = self._gathered.connection.client
        if host is None or host.node is None or client is None:
            return
        refusal = await nodes.leave(client, self._gathered.observed.cluster.distro, host.node.name)
        if refusal is not None:
            self.held.append(refusal)
        elif (machine := self._machine(act.host)) is not None:
            self._record_event(machine, "LeavesEtcd", f"asked the etcd member on Node {host.node.name} to leave")

    async def _expel(self, act: Expel) -> None:
        client = self._gathered.connection.client
        if client is not None:
            await nodes.expel(client, act.node)
            self._record_event(
                self._plane,
                "MemberExpelled",
                f"removed etcd member {act.member}, which belongs to no Machine: deleted Node {act.node}",
            )

    # ---- Machines

    async def label_servers(self) -> None:
        """Set Cluster API's control plane label on Machines. Users who assign roles need not know this label."""
        for host in self._gathered.observed.hosts:
            machine = self._machine(host.name)
            if machine is None or machine.is_control_plane or not host.roles.control_plane or host.deleting:
                continue
            try:
                await self._label_server(machine)
            except _EXPECTED as error:
                self.errors.append(error)

    async def _label_server(self, machine: Machine) -> None:
        present = self._source.machines.raw(*machine.key)
        # Since the decision, another Machine may have been created under this name.
        if present is None or MACHINE.decode(present).metadata.uid != machine.metadata.uid:
            return
        draft = Draft(MACHINE.target, present)
        draft.set_label(capi_names.CONTROL_PLANE, "true")
        await save(self._client, draft, LABEL)

    # ---- nodes

    async def _forget(self, act: Forget) -> None:
        client = self._gathered.connection.client
        if client is not None:
            await nodes.forget(client, act.node)
            self._record_event(
                self._plane, "NodeForgotten", f"deleted Node {act.node}: it is not ready, and its Machine was deleted"
            )

    async def keep_nodes(self) -> None:
        """Set labels and taints of Nodes as in the plans that their hosts have applied."""
        connection = self._gathered.connection
        if connection.client is None or connection.nodes is None:
            return
        for host in self._gathered.observed.hosts:
            node = connection.nodes.get("", host.node.name) if host.node is not None and not host.deleting else None
            if node is None or host.report.state != "succeeded":
                continue
            try:
                changed = await nodes.keep(connection.client, node, host.report.plan)
            except _EXPECTED as error:
                self.errors.append(error)
                continue
            if changed and (machine := self._machine(host.name)) is not None:
                self._record_event(
                    machine, "NodeUpdated", f"set the labels and taints of Node {node.metadata.name} as in its config"
                )

    def _machine(self, host: str) -> Machine | None:
        return self._gathered.machines.get(host)

    def _record_event(self, about: Object, reason: str, message: str) -> None:
        self._events.normal(about, reason, message)
