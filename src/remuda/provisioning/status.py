"""Status of a provisioning Cluster. Pure: the same facts give the same bytes.

Ready, Updated and Provisioned all report the RKEControlPlane's message, in one line, as Rancher's tools expect. While
there is no RKEControlPlane, they report what prevents its creation. Its own Ready has the full list of waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import Cluster as CapiCluster
from remuda.capi.types import MachineDeployment
from remuda.kube import conditions
from remuda.kube.conditions import UNKNOWN, condition
from remuda.kube.objects import Condition
from remuda.kube.quotas import Exceeded, find_exceeded
from remuda.providers.shared import author
from remuda.providers.shared.types.controlplane import READY as CONTROL_PLANE_READY
from remuda.providers.shared.types.controlplane import RECONCILED, RKEControlPlane
from remuda.provisioning.consequence import Consequence
from remuda.provisioning.generate import uses_credential
from remuda.provisioning.pools import POOL_NAME
from remuda.provisioning.types import (
    AUTHOR_RECORDED,
    CREATED,
    HELD,
    PROVISIONED,
    READY,
    RECONCILING,
    REMOVED,
    RKE_CLUSTER_CONDITION,
    STALLED,
    UPDATED,
    Cluster,
)

Json = dict[str, Any]

REMOTE_PROBE = "RemoteConnectionProbe"  # condition of a CAPI Cluster: its API answers


class Problem(msgspec.Struct, frozen=True):
    reason: str
    message: str
    lasting: bool = True  # somebody has to do something


class ClusterStatusInputs(msgspec.Struct, frozen=True, kw_only=True):
    not_created: Problem | None = None  # why there is no management Cluster
    not_made: Problem | None = None  # why the objects are not as they shall be
    held: Sequence[Consequence] = ()
    control_plane: RKEControlPlane | None = None
    capi_cluster: CapiCluster | None = None
    deployments: Sequence[MachineDeployment] = ()


def write(status: Json, cluster: Cluster, facts: ClusterStatusInputs) -> None:
    """Write all conditions and fields into a raw status."""
    problem = facts.not_created or facts.not_made
    missing = _missing_machines(facts.deployments)
    ready = _ready(facts, problem or missing)
    news = [
        _done(CREATED, facts.not_created),
        _done(RKE_CLUSTER_CONDITION, problem),
        *(msgspec.structs.replace(ready, type=type) for type in (READY, UPDATED, PROVISIONED)),
        *_progress(ready, problem or missing or _stalled(facts.control_plane)),
    ]
    remove = [REMOVED]
    if author.of(cluster.metadata.annotations) is None and uses_credential(cluster):
        news.append(condition(AUTHOR_RECORDED, False, author.NO_AUTHOR, author.unknown(f"Cluster {cluster.key}")))
    else:
        remove.append(AUTHOR_RECORDED)
    if facts.held:
        news.append(condition(HELD, True, "WouldReplaceMachines", "; ".join(str(one) for one in facts.held)))
    else:
        remove.append(HELD)
    conditions.put(status, news, generation=cluster.metadata.generation, remove=remove)
    status["fleetWorkspaceName"] = cluster.metadata.namespace
    status.pop("ready", None)  # as Rancher has it: absent is false
    if ready.status == conditions.TRUE:
        status["ready"] = True
    if initialized(facts.control_plane):
        status["clientSecretName"] = capi_names.kubeconfig_secret(cluster.metadata.name)
    answers = _answers(facts.capi_cluster)
    if answers or "agentDeployed" in status:
        status["agentDeployed"] = answers
    if problem is None or problem.lasting:  # what is refused for good has been seen, and nothing more comes of it
        status["observedGeneration"] = cluster.metadata.generation


def initialized(control_plane: RKEControlPlane | None) -> bool:
    return control_plane is not None and bool(control_plane.status.initialization.control_plane_initialized)


def _answers(cluster: CapiCluster | None) -> bool:
    return cluster is not None and conditions.is_true(cluster.status.conditions, REMOTE_PROBE)


def _done(type: str, problem: Problem | None) -> Condition:
    if problem is None:
        return condition(type, True, type)
    return condition(type, False, problem.reason, problem.message)


def _ready(facts: ClusterStatusInputs, problem: Problem | None) -> Condition:
    if problem is not None:
        return condition(READY, False, problem.reason, problem.message)
    said = (
        None
        if facts.control_plane is None
        else conditions.find(facts.control_plane.status.conditions, CONTROL_PLANE_READY)
    )
    if said is None or facts.control_plane is None:
        return condition(
            READY, UNKNOWN, "Waiting", "waiting for the RKEControlPlane to report its first Ready condition"
        )
    # This Ready is about an earlier generation: copied, it would claim that the last change is applied.
    if said.status == conditions.TRUE and _outdated(facts.control_plane):
        return condition(
            READY, UNKNOWN, "Waiting", "waiting for the RKEControlPlane controller to reconcile the last change"
        )
    return condition(READY, said.status, said.reason or "Reported", _one_line(facts.control_plane, said))


def _one_line(control_plane: RKEControlPlane, ready: Condition) -> str:
    """Return the first wait, where waits are what is told; else what the list of them begins with."""
    waits = conditions.find(control_plane.status.conditions, RECONCILED)
    if waits is not None and waits.status != conditions.TRUE and waits.reason == ready.reason:
        return waits.message
    return ready.message.partition("\n")[0]


def _stalled(control_plane: RKEControlPlane | None) -> Problem | None:
    found = None if control_plane is None else conditions.find(control_plane.status.conditions, STALLED)
    stalled = found is not None and found.status == conditions.TRUE
    return Problem(found.reason, found.message) if found is not None and stalled else None


def _outdated(control_plane: RKEControlPlane) -> bool:
    return control_plane.status.observed_generation < control_plane.metadata.generation


def _missing_machines(deployments: Sequence[MachineDeployment]) -> Problem | None:
    """Return why machines are not created that the pools ask for, if nothing but a user can change that."""
    said = []
    for one in sorted(deployments, key=lambda one: one.metadata.name):
        exceeded = exceeded_quota(one)
        if exceeded is not None:
            pool = one.spec.template.metadata.labels.get(POOL_NAME, one.metadata.name)
            said.append(
                f"pool {pool}: cannot create machines: ResourceQuota {exceeded.name} of namespace "
                f"{one.metadata.namespace} is exhausted (used {exceeded.used}, limited {exceeded.limited}); delete "
                "machines, or ask an administrator to raise it"
            )
    return Problem("QuotaExceeded", "; ".join(said)) if said else None


def exceeded_quota(deployment: MachineDeployment) -> Exceeded | None:
    """Return the quota that keeps a MachineDeployment from growing."""
    growing = conditions.find(deployment.status.conditions, "ScalingUp")
    return find_exceeded(growing.message) if growing is not None and growing.status == conditions.TRUE else None


def _progress(ready: Condition, problem: Problem | None) -> list[Condition]:
    """Return the kstatus conditions Reconciling and Stalled."""
    lasting = problem if problem is not None and problem.lasting else None
    working = lasting is None and ready.status != conditions.TRUE
    reason, message = (lasting.reason, lasting.message) if lasting is not None else ("NotStalled", "")
    return [
        condition(STALLED, lasting is not None, reason, message),
        condition(RECONCILING, working, ready.reason if working else "NotReconciling", ready.message * working),
    ]


def write_removal(status: Json, cluster: Cluster, reason: str, message: str) -> None:
    news = [
        condition(REMOVED, UNKNOWN, reason, message),
        condition(READY, False, "Removing", message),
        condition(RECONCILING, True, "Removing", message),
        condition(STALLED, False, "NotStalled"),  # a deletion removes the cause of a stall
    ]
    conditions.put(status, news, generation=cluster.metadata.generation, remove=[HELD])
    status.pop("ready", None)
