"""SimulatedCluster: shared settings of a cluster's servers. It reports the API endpoint and the failure domains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import CLUSTER, Cluster
from remuda.kube.conditions import condition
from remuda.kube.objects import Key
from remuda.lab.simulator.kinds import Family
from remuda.lab.simulator.providers import common
from remuda.lab.simulator.providers.common import FINALIZER, READY, ProviderKind, cluster_facts
from remuda.lab.simulator.types import OldSimulatedCluster, SimulatedCluster, SimulatedClusterSpec
from remuda.lab.simulator.workload_registry import Workloads
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

PUBLISH = step("simulatedcluster.publish", "writes the status of a simulated cluster")
REMOVE = step("simulatedcluster.remove-workload", "removes the workload cluster with all its data")


class ClusterProvider:
    def __init__(self, manager: Manager, family: Family, workloads: Workloads) -> None:
        self._side = ProviderKind(manager, family, family.cluster)
        self._client = manager.client
        self._workloads = workloads
        self._attempts = common.ScriptProgress()
        self._side.index_unfinished(_finished_old if family.old else _finished)
        controller = manager.controller(self._side.name, family.cluster, self.reconcile, concurrency=common.CONCURRENCY)
        controller.watch(manager.caches.of(CLUSTER), self._of_cluster, "cluster", facts=cluster_facts)

    def _of_cluster(self, cluster: Cluster) -> Iterable[Key]:
        return self._side.named_by(cluster.spec.infrastructure_ref, cluster.metadata.namespace)

    async def reconcile(self, key: Key) -> Outcome:
        obj = self._side.read(key)
        if obj is None or names.EXTERNALLY_MANAGED in obj.metadata.annotations:
            return DONE
        cluster = common.cluster_of(self._side.caches, obj.metadata)
        if held := await common.hold(self._side, obj, cluster, PUBLISH):
            return held
        if obj.deleting:
            return await self._delete(obj, cluster)
        if cluster is None:
            return common.wait(obj, "WaitingForOwner", "no Cluster owns it yet")
        return await self._provision(obj, cluster)

    async def _provision(self, obj: ProviderObject, cluster: Cluster) -> Outcome:
        spec = obj.field(SimulatedClusterSpec, "spec") or SimulatedClusterSpec()
        if contract.provisioned(obj):
            return await self._publish(obj, spec, cluster)
        if spec.script.never:
            return common.wait(obj, "Scripted", "its script says that it is never provisioned")
        left = self._attempts.seconds_left(spec.script, obj.metadata.creation_timestamp)
        if left:
            return Requeue(left, "the infrastructure is being provisioned")
        if self._attempts.fails(obj.metadata.uid, spec.script):
            raise Retryable("cannot provision the infrastructure: the script lets this attempt fail")
        return await self._publish(obj, spec, cluster)

    async def _publish(self, obj: ProviderObject, spec: SimulatedClusterSpec, cluster: Cluster) -> Outcome:
        draft = obj.draft()
        draft.add_finalizer(FINALIZER)
        if not spec.without_endpoint and not spec.control_plane_endpoint.valid:
            endpoint = await self._workloads.endpoint(cluster.key)
            draft.spec["controlPlaneEndpoint"] = msgspec.to_builtins(endpoint)
        common.put(draft.obj, contract.provisioned_path(obj), True)
        self._put_failure_domains(draft, obj, spec)
        common.report(draft, obj, condition(READY, True, "Provisioned"))
        await save(self._client, draft, PUBLISH)
        return DONE

    @staticmethod
    def _put_failure_domains(draft: Draft, obj: ProviderObject, spec: SimulatedClusterSpec) -> None:
        if not spec.failure_domains:
            draft.status.pop("failureDomains", None)
            return
        domains = [msgspec.to_builtins(domain) for domain in spec.failure_domains]
        if obj.old:
            draft.status["failureDomains"] = {domain.pop("name"): domain for domain in domains}
        else:
            draft.status["failureDomains"] = domains

    async def _delete(self, obj: ProviderObject, cluster: Cluster | None) -> Outcome:
        name = cluster.metadata.name if cluster is not None else obj.metadata.labels.get(names.CLUSTER_NAME, "")
        if name:
            async with REMOVE:
                await self._workloads.remove(Key(obj.key.namespace, name))
        draft = obj.draft()
        if draft.remove_finalizer(FINALIZER):
            await save(self._client, draft, PUBLISH)
        return DONE


def _finished(obj: SimulatedCluster) -> bool:
    return obj.status.initialization.provisioned


def _finished_old(obj: OldSimulatedCluster) -> bool:
    return obj.status.ready
