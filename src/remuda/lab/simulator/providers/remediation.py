"""SimulatedRemediation: restarts the server of an unhealthy Machine, whose Node then becomes ready again.

The MachineHealthCheck deletes its request when it sees the Machine healthy.
"""

from __future__ import annotations

from remuda.kube.errors import ignore_not_found
from remuda.kube.objects import Key
from remuda.lab.simulator import nodes
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.common import ProviderKind
from remuda.lab.simulator.types import SimulatedRemediation
from remuda.lab.simulator.workload_registry import Workloads
from remuda.runtime.draft import save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

RESTART = step("simulatedremediation.restart-server", "reboots the simulated server of an unhealthy Machine")
PUBLISH = step("simulatedremediation.publish", "records that the server was restarted")


class RemediationProvider:
    def __init__(self, manager: Manager, family: Family, workloads: Workloads) -> None:
        self._side = ProviderKind(manager, family, family.remediation)
        self._client = manager.client
        self._workloads = workloads
        self._attempts = common.ScriptProgress()
        manager.controller(self._side.name, family.remediation, self.reconcile)

    async def reconcile(self, key: Key) -> Outcome:
        obj = self._side.read(key)
        if obj is None or obj.deleting:
            return DONE
        request: SimulatedRemediation = self._side.kind.decode(obj.value)
        machine = common.machine_of(self._side.caches, obj.metadata)
        cluster = common.cluster_of(self._side.caches, obj.metadata, machine)
        if held := await common.hold(self._side, obj, cluster, PUBLISH):
            return held
        if request.status.done or machine is None or cluster is None or machine.status.node_ref is None:
            return DONE
        script = request.spec.script
        if script.never:
            return common.wait(obj, "Scripted", "its script says that the server is never restarted")
        left = self._attempts.seconds_left(script, request.metadata.creation_timestamp)
        if left:
            return Requeue(left, "the server is being restarted")
        if self._attempts.fails(request.metadata.uid, script):
            raise Retryable("cannot restart the server: the script lets this attempt fail")
        client = await self._workloads.dial(cluster.key)
        with ignore_not_found():
            async with RESTART:
                await nodes.revive(client, machine.status.node_ref.name)
        draft = obj.draft()
        draft.status["done"] = True
        await save(self._client, draft, PUBLISH)
        return DONE
