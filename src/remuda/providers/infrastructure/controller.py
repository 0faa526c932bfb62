"""RKECluster: provisioned as soon as a Cluster owns it, because the servers of such a cluster share nothing.

It invents no endpoint: where the API is reached is the control plane's to say, unless the user has put something before
the servers and written it here.
"""

from __future__ import annotations

from remuda.capi import names as capi_names
from remuda.capi.pausing import paused
from remuda.capi.types import CLUSTER, Cluster
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Key
from remuda.providers.infrastructure.types import READY, RKE_CLUSTER, RKECluster
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

NAME = "rkecluster"
PUBLISH = step("rkecluster.publish", "writes that the infrastructure of a cluster is provisioned")


def add(manager: Manager) -> None:
    RKEClusterController(manager)


class RKEClusterController:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._objects = manager.caches.of(RKE_CLUSTER)
        self._clusters = manager.caches.of(CLUSTER)
        controller = manager.controller(NAME, RKE_CLUSTER, self.reconcile)
        controller.watch(self._clusters, _infrastructure_of, "cluster", facts=_facts)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._objects.raw(*key)
        if value is None:
            return DONE
        obj = RKE_CLUSTER.decode(value)
        if obj.metadata.deleting or capi_names.EXTERNALLY_MANAGED in obj.metadata.annotations:
            return DONE
        draft = Draft(RKE_CLUSTER.target, value)
        outcome = self._decide(draft, obj, self._cluster_of(obj))
        await save(self._client, draft, PUBLISH)
        return outcome

    def _cluster_of(self, obj: RKECluster) -> Cluster | None:
        owner = obj.metadata.owner("Cluster", capi_names.GROUP)
        found = None if owner is None else self._clusters.get(obj.metadata.namespace, owner.name)
        return found if found is not None and owner is not None and found.metadata.uid == owner.uid else None

    def _decide(self, draft: Draft, obj: RKECluster, cluster: Cluster | None) -> Outcome:
        pause = paused(cluster, obj.metadata)
        news = [pause]
        outcome: Outcome = DONE
        if pause.status == conditions.TRUE:
            outcome = Blocked("Paused", f"RKECluster {obj.key}", pause.message)
        elif cluster is not None:
            draft.status.setdefault("initialization", {})["provisioned"] = True
            news.append(condition(READY, True, "Provisioned"))
        else:
            why = "no Cluster owns it yet: one owns it that names it in spec.infrastructureRef"
            news.append(condition(READY, False, "WaitingForCluster", why))
            outcome = Blocked("WaitingForCluster", f"RKECluster {obj.key}", why)
        conditions.put(draft.status, news, generation=obj.metadata.generation)
        return outcome


def _infrastructure_of(cluster: Cluster) -> list[Key]:
    reference = cluster.spec.infrastructure_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_CLUSTER.group, RKE_CLUSTER.name):
        return []
    return [Key(cluster.metadata.namespace, reference.name)]


def _facts(cluster: Cluster) -> object:
    return cluster.spec.infrastructure_ref, cluster.spec.paused, cluster.metadata.uid
