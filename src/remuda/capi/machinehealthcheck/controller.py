"""The MachineHealthCheck controller: checks the selected Machines and requests the remediation of unhealthy ones.

It replaces no Machine itself: a condition asks the owner of the Machine, or a request asks an external controller. It
runs when a Machine, its Node or the Cluster changes, and when a failure has lasted for its timeout. While a cluster is
unreachable, no Machine is unhealthy because of that, and a condition reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from remuda.capi import names, pause
from remuda.capi.cluster_index import cluster_of, index_by_cluster, members
from remuda.capi.machinehealthcheck.health import Facts, Healthy, NodeFacts, Unhealthy, judge
from remuda.capi.machinehealthcheck.marks import (
    EXTERNALLY_REMEDIATED,
    OWNER_REMEDIATED,
    Marks,
    Request,
    marks,
)
from remuda.capi.machinehealthcheck.requests import Requests
from remuda.capi.machinehealthcheck.status import REMEDIATION_ALLOWED, Judged, Survey, counts, remediation_allowed
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_HEALTH_CHECK, Cluster, Machine, MachineHealthCheck
from remuda.kube import clock, conditions
from remuda.kube.conditions import UNKNOWN, condition
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.objects import Condition, Key, Object, OwnerReference
from remuda.kube.selectors import SelectorError
from remuda.runtime.controller import Controller
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable
from remuda.runtime.remote import PROVIDER_ID, Connection, RemoteClusters
from remuda.runtime.steps import step

MARK = step("machinehealthcheck.mark-machine", "writes the result of the health check to the conditions of a Machine")
PUBLISH = step("machinehealthcheck.publish", "writes the owner, the label and the status of a MachineHealthCheck")

# Between two runs of one health check, so that one run covers the changes of its many Machines.
INTERVAL_SECONDS = 1.0
_PROBE_AGAIN_SECONDS = 10.0


class Scope(NamedTuple):
    """Objects that one run has read."""

    check: MachineHealthCheck
    cluster: Cluster
    machines: list[Machine]
    connection: Connection

    @property
    def unreadable(self) -> str:
        """Return the reason why Nodes cannot be read that should be; empty if they can, or if there are none to read
        yet."""
        initialized = conditions.is_true(self.cluster.status.conditions, "ControlPlaneInitialized")
        if self.connection.connected or not initialized or not self.machines:
            return ""
        since = f" since {clock.rfc3339(self.connection.since)}" if self.connection.since else ""
        return f"Cluster {self.cluster.metadata.name} has not been reachable{since}"


class MachineHealthCheckController:
    def __init__(self, manager: Manager, remote: RemoteClusters, *, interval: float = INTERVAL_SECONDS) -> None:
        self._client = manager.client
        self._events = manager.events
        self._remote = remote
        self._checks = manager.caches.of(MACHINE_HEALTH_CHECK)
        self._clusters = manager.caches.of(CLUSTER)
        self._machines = manager.caches.of(MACHINE)
        self._caches = manager.caches
        index_by_cluster(manager.caches, MACHINE_HEALTH_CHECK)
        index_by_cluster(manager.caches, MACHINE)
        self._controller: Controller = manager.controller(
            "machinehealthcheck", MACHINE_HEALTH_CHECK, self.reconcile, interval=interval
        )
        self._controller.watch(self._clusters, lambda cluster: self._of_cluster(cluster.key))
        self._controller.watch(self._machines, self._of_machine)
        self._requests = Requests(manager.client, manager.caches, self._controller, self._of_request)
        remote.on_change(self._nodes_changed)

    # -- watches

    def _of_cluster(self, cluster: Key) -> list[Key]:
        return [check.key for check in members(self._caches, MACHINE_HEALTH_CHECK, cluster)]

    def _of_machine(self, machine: Machine) -> Iterable[Key]:
        for check in members(self._caches, MACHINE_HEALTH_CHECK, cluster_of(machine)):
            if _selects(check, machine):
                yield check.key

    def _of_request(self, request: Object) -> Iterable[Key]:
        machine = self._machines.get(*request.key)
        return () if machine is None else self._of_machine(machine)

    def _nodes_changed(self, cluster: Key, node: Any) -> None:
        for key in self._of_cluster(cluster):
            self._controller.enqueue(key)

    # -- reconcile

    async def reconcile(self, key: Key) -> Outcome:
        value = self._checks.raw(*key)
        if value is None:
            return DONE
        check, draft = MACHINE_HEALTH_CHECK.decode(value), Draft(MACHINE_HEALTH_CHECK.target, value)
        if check.metadata.deleting:
            return DONE
        cluster = self._clusters.get(key.namespace, check.spec.cluster_name)
        if cluster is not None and cluster.metadata.deleting:
            return DONE  # its Machines are deleted with it
        if cluster is None:
            name = check.spec.cluster_name
            blocked = Blocked("ObjectDoesNotExist", f"Cluster {key.namespace}/{name}", f"Cluster {name} does not exist")
            return await self._hold(check, draft, blocked)
        self._claim(draft, cluster)
        paused = pause.paused(cluster, check.metadata)
        if pause.is_paused(cluster, check.metadata):
            await self._publish(check, draft, [paused])
            return DONE
        try:
            scope = self._look(check, cluster)
        except SelectorError as error:
            message = f"spec.selector is invalid: {error}"
            return await self._hold(
                check, draft, Blocked("InvalidSelector", f"MachineHealthCheck {key}", message), paused
            )
        return await self._run(scope, draft, paused)

    async def _run(self, scope: Scope, draft: Draft, paused: Condition) -> Outcome:
        check, now = scope.check, clock.time()
        survey = Survey(
            [Judged(machine, judge(self._facts(machine, scope), check.spec.checks, now)) for machine in scope.machines]
        )
        limit = survey.limit(check.spec.remediation.trigger_if)
        problems = await self._mark_all(check, survey, hand_over=limit.allowed)
        allowed = remediation_allowed(survey, limit, scope.unreadable)
        self._emit_event(check, survey, allowed)
        draft.status.update(counts(survey, limit))
        await self._publish(check, draft, [allowed, paused], complete=not problems)
        if problems:
            # Prefer an error that is not a conflict: conflicts resolve themselves and would hide the cause.
            raise min(problems, key=_is_conflict)
        return _outcome(scope, survey, allowed, now)

    def _look(self, check: MachineHealthCheck, cluster: Cluster) -> Scope:
        """Read the Machines and Nodes. Raise SelectorError."""
        selector = check.spec.selector.compile()
        if selector.empty:
            raise SelectorError("it is empty and selects every Machine")
        machines = [
            machine
            for machine in members(self._caches, MACHINE, cluster.key)
            if selector.matches(machine.metadata.labels) and not _exempt(machine)
        ]
        return Scope(check, cluster, machines, self._remote.look(cluster.key))

    @staticmethod
    def _facts(machine: Machine, scope: Scope) -> Facts:
        connection, node = scope.connection, None
        if connection.nodes is not None:
            if machine.status.node_ref is not None:
                node = connection.nodes.get("", machine.status.node_ref.name)
            elif machine.spec.provider_id:  # it may have appeared before the Machine recorded it
                node = next(iter(connection.nodes.select(PROVIDER_ID, machine.spec.provider_id)), None)
        facts = None if node is None else NodeFacts(node.metadata.name, node.status.conditions)
        # A failed probe makes the known state of Nodes doubtful, until one succeeds or several have failed.
        readable = connection.connected and not connection.failures
        return Facts(machine, scope.cluster, facts, readable, connection.regained or 0.0)

    # -- consequences

    async def _mark_all(self, check: MachineHealthCheck, survey: Survey, *, hand_over: bool) -> list[Exception]:
        """Mark each Machine separately: a failure for one must not prevent the remediation of another."""
        problems: list[Exception] = []
        for judged in survey.judged:
            try:
                await self._mark(check, judged, hand_over=hand_over)
            except (StatusError, Retryable, OSError) as error:
                problems.append(error)
        return problems

    async def _mark(self, check: MachineHealthCheck, judged: Judged, *, hand_over: bool) -> None:
        machine, verdict, template = judged.machine, judged.verdict, check.spec.remediation.template_ref
        request: Request | None = None
        if template is not None and hand_over and isinstance(verdict, Unhealthy):
            request = await self._requests.ask(machine, template)
        found = marks(machine, verdict, hand_over=hand_over, request=request)
        if found:
            await self._write(check, machine, found)
        if request is not None and not request.made:
            raise Retryable(request.message)
        if template is not None and isinstance(verdict, Healthy):
            await self._requests.withdraw(machine, template)

    async def _write(self, check: MachineHealthCheck, machine: Machine, found: Marks) -> None:
        value = self._machines.raw(*machine.key)
        draft = Draft(MACHINE.target, value) if value is not None else None
        if draft is None or draft.resource_version != machine.metadata.resource_version:
            return  # it has changed since, and that event requeues the check
        conditions.put(draft.status, found.put, generation=machine.metadata.generation, remove=found.remove)
        try:
            await save(self._client, draft, MARK)
        except NotFound:
            return
        if any(one.type in (OWNER_REMEDIATED, EXTERNALLY_REMEDIATED) for one in found.put):
            message = f"MachineHealthCheck {check.metadata.name} requested remediation: {_why(machine, found)}"
            self._events.normal(machine, "MachineMarkedUnhealthy", message)

    def _emit_event(self, check: MachineHealthCheck, survey: Survey, allowed: Condition) -> None:
        before = conditions.find(check.status.conditions, REMEDIATION_ALLOWED)
        news = before is None or (before.status, before.message) != (allowed.status, allowed.message)
        if allowed.status == conditions.FALSE and survey.unhealthy and news:
            self._events.warning(check, "RemediationRestricted", allowed.message)

    @staticmethod
    def _claim(draft: Draft, cluster: Cluster) -> None:
        draft.set_label(names.CLUSTER_NAME, cluster.metadata.name)
        draft.set_owner(
            OwnerReference(
                api_version=CLUSTER.api_version, kind=CLUSTER.name, name=cluster.metadata.name, uid=cluster.metadata.uid
            )
        )

    async def _hold(self, check: MachineHealthCheck, draft: Draft, blocked: Blocked, *more: Condition) -> Outcome:
        """Publish a condition that reports why no Machine is checked."""
        held = condition(REMEDIATION_ALLOWED, UNKNOWN, blocked.reason, blocked.message)
        await self._publish(check, draft, [held, *more])
        return blocked

    async def _publish(
        self, check: MachineHealthCheck, draft: Draft, found: list[Condition], *, complete: bool = True
    ) -> None:
        conditions.put(draft.status, found, generation=check.metadata.generation)
        # An incomplete run must not claim that it has applied this generation to all Machines.
        if complete:
            draft.status["observedGeneration"] = check.metadata.generation
        await save(self._client, draft, PUBLISH)


def _outcome(scope: Scope, survey: Survey, allowed: Condition, now: float) -> Outcome:
    seconds = None if survey.next_check is None else max(survey.next_check - now, 0.0)
    key = scope.check.key
    if scope.unreadable:
        return Blocked("ConnectionDown", f"Cluster {scope.cluster.key}", scope.unreadable, seconds)
    why = "a Machine becomes unhealthy if its failure lasts"
    if scope.connection.failures and scope.connection.connected:
        why = "the last probe of the workload cluster failed"
        seconds = _PROBE_AGAIN_SECONDS if seconds is None else min(seconds, _PROBE_AGAIN_SECONDS)
    if allowed.status == conditions.FALSE and survey.unhealthy:
        return Blocked(allowed.reason, f"MachineHealthCheck {key}", allowed.message, seconds)
    return DONE if seconds is None else Requeue(seconds, why)


def _selects(check: MachineHealthCheck, machine: Machine) -> bool:
    try:
        return check.spec.selector.compile().matches(machine.metadata.labels)
    except SelectorError:
        return False


def _exempt(machine: Machine) -> bool:
    return names.SKIP_REMEDIATION in machine.metadata.annotations or names.PAUSED in machine.metadata.annotations


def _why(machine: Machine, found: Marks) -> str:
    result = conditions.find([*found.put, *machine.status.conditions], "HealthCheckSucceeded")
    return result.message if result is not None else ""


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, AlreadyExists | Conflict)
