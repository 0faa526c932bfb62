"""Write the status of the control plane, and our two conditions of each Machine.

Machines belong to Cluster API, so their other conditions are never touched. A status that the next event replaces
within moments is not written at all.
"""

from __future__ import annotations

from remuda.capi.pause import paused
from remuda.capi.types import MACHINE, Cluster, Machine
from remuda.capi.write_rate import WriteRate, matters
from remuda.kube import conditions
from remuda.kube.conditions import UNKNOWN, condition
from remuda.kube.objects import Condition, Key
from remuda.providers.controlplane import status
from remuda.providers.controlplane.gather import Gathered
from remuda.providers.controlplane.planner.decision import HostStatus
from remuda.providers.shared.types.controlplane import (
    AVAILABLE,
    HELD,
    READY,
    RECONCILED,
    RKE_CONTROL_PLANE,
    STABLE,
    RKEControlPlane,
)
from remuda.runtime.draft import Draft
from remuda.runtime.informer import Informer
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import Outcome, Requeue, soonest
from remuda.runtime.steps import step

PUBLISH = step("rkecontrolplane.publish", "writes the status of a control plane")
TELL_MACHINE = step("rkecontrolplane.tell-machine", "writes the planner's conditions of a Machine")

_WRITTEN_AT_ONCE = (AVAILABLE, READY, STABLE, HELD, "Paused")


class Publisher:
    def __init__(self, manager: Manager, machines: Informer[Machine], pace: WriteRate, machine_pace: WriteRate) -> None:
        self._client = manager.client
        self._events = manager.events
        self._machines = machines
        self._pace = pace
        self._machine_pace = machine_pace

    def forget(self, key: Key) -> None:
        self._pace.forget(key)

    async def publish(
        self, value: bytes, cluster: Cluster, gathered: Gathered, judged: status.ControlPlaneStatusInputs
    ) -> Outcome:
        outcomes = []
        for host in judged.observed.hosts:
            reported = judged.decision.hosts.get(host.name) or HostStatus(phase="waiting")
            outcomes.append(
                await self._write_conditions(gathered.machines[host.name], status.of_machine(host, reported))
            )
        outcomes.append(await self._publish(value, cluster, judged))
        return soonest(*outcomes)

    # ---- the control plane

    async def _publish(self, value: bytes, cluster: Cluster, judged: status.ControlPlaneStatusInputs) -> Outcome:
        plane, draft = RKE_CONTROL_PLANE.decode(value), Draft(RKE_CONTROL_PLANE.target, value)
        report = status.derive(judged)
        news = [paused(cluster, plane.metadata), *report.conditions]
        if judged.error:
            news = [one for one in news if one.type != RECONCILED]
            news.append(condition(RECONCILED, UNKNOWN, "Failed", judged.error))
        conditions.put(draft.status, news, generation=plane.metadata.generation)
        draft.status["observedGeneration"] = plane.metadata.generation
        if judged.decision.initialized:
            draft.status.setdefault("initialization", {})["controlPlaneInitialized"] = True
        draft.status.update(status.counts(judged))
        if not judged.decision.waits and not judged.error:
            draft.status["appliedSpec"] = draft.spec
        self._report_held(plane, news)
        important = matters(draft, _WRITTEN_AT_ONCE)
        rest = await self._pace.save(self._client, draft, plane.metadata, PUBLISH, matters=important)
        if report.look_again is None:
            return rest
        return soonest(rest, Requeue(report.look_again, "waiting for the API"))

    def _report_held(self, plane: RKEControlPlane, news: list[Condition]) -> None:
        after, before = conditions.find(news, HELD), conditions.find(plane.status.conditions, HELD)
        if (
            after is not None
            and after.status == conditions.TRUE
            and (before is None or before.message != after.message)
        ):
            self._events.warning(plane, HELD, after.message)

    # ---- Machines

    async def _write_conditions(self, machine: Machine, news: list[Condition]) -> Outcome:
        present = self._machines.get(*machine.key)
        value = self._machines.raw(*machine.key)
        if present is None or value is None or present.metadata.uid != machine.metadata.uid:
            return soonest()
        if status.same(present.status.conditions, news):
            return soonest()
        draft = Draft(MACHINE.target, value)
        conditions.put(draft.status, news, generation=present.metadata.generation)
        important = any(one.status != UNKNOWN and not status.same(present.status.conditions, [one]) for one in news)
        return await self._machine_pace.save(self._client, draft, present.metadata, TELL_MACHINE, matters=important)
