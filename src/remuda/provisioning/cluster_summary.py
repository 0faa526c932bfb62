"""One line about a cluster: a status word, how many of its machines are ready, and the reason. Pure.

The word is derived from the conditions that carry the verdict on health (`capi.health`), so it agrees with `describe`
and `why`. A cluster is `Ready` only if that verdict is good, its controller has seen the last change, and every machine
that it declares is ready. Whatever is stale or unknown is not `Ready`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.capi import health, names
from remuda.providers.shared.types.controlplane import NO_SERVER
from remuda.provisioning import tree

Json = Mapping[str, Any]
Word = Literal["Creating", "Ready", "Updating", "Degraded", "Stuck", "Paused", "Deleting"]

# Reasons of a bad verdict on health: something that worked does not work any more, or nobody knows. Other reasons of a
# Ready that is not True are waits of a change that is being made.
_HEALTH_REASONS = {
    health.API_SILENT,
    health.WAITING_FOR_API,
    health.MACHINE_FAILED,
    health.SERVER_LOST,
    health.NODE_LOST,
    health.NODE_NOT_READY,
    NO_SERVER,
}
_SUMMARIES = ("Ready", "Available")


class ClusterSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    status: Word
    ready_machines: int | None  # None: the user may not list Machines
    machines: int  # that it declares
    version: str = ""
    driver: str = ""  # several: separated by commas
    created: str = ""  # RFC 3339
    reason: str = ""  # one line; empty if the cluster is ready
    id: str = ""  # of the management Cluster


def summarize(declared: Json | None, cluster: Json | None, machines: Sequence[Json] | None) -> ClusterSummary:
    """Return the summary of a cluster.

    `declared`: the declared Cluster, if there is one; `cluster`: that of Cluster API, if it exists already. `machines`:
    its Machines; None if the user may not list them.
    """
    root = declared if declared is not None else cluster
    assert root is not None, "a cluster is declared, or exists"
    known = machines or ()
    live = [one for one in known if not _metadata(one).get("deletionTimestamp")]
    ready = sum(_condition(one, "Ready").get("status") == "True" for one in live)
    desired = _desired(declared, cluster, live)
    complete = machines is None or ready == desired == len(known)
    status, reason = _status(declared, cluster, known, complete=complete)
    metadata = _metadata(root)
    return ClusterSummary(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or ""),
        status=status,
        ready_machines=None if machines is None else ready,
        machines=desired,
        version=_version(declared, live),
        driver=_driver(declared, live),
        created=str(metadata.get("creationTimestamp") or ""),
        reason="" if status == "Ready" else _brief(reason) or f"{ready} of {desired} machines are ready",
        id=str(((declared or {}).get("status") or {}).get("clusterName") or ""),
    )


def _status(
    declared: Json | None, cluster: Json | None, machines: Sequence[Json], *, complete: bool
) -> tuple[Word, str]:
    root: Json = declared or cluster or {}
    found = tree.judge(root)
    reason = found.message or found.reason
    if found.state == "deleting":
        return "Deleting", reason
    if cluster is not None and _is_paused(cluster):
        return "Paused", "controllers do not change it, and its state may be out of date"
    if found.state in ("stalled", "held") or found.trouble:
        return "Stuck", reason
    if found.well and declared is not None and cluster is None:
        return "Degraded", f"the Cluster of {names.GROUP} does not exist"
    if found.well and cluster is not None and _metadata(cluster).get("deletionTimestamp"):
        return "Degraded", f"the Cluster of {names.GROUP} is being deleted"
    if found.well:
        return ("Ready", "") if complete else ("Updating", _of_machines(machines))
    if _is_being_created(root, cluster, machines):
        return "Creating", reason
    if found.reason in _HEALTH_REASONS:
        return "Degraded", reason
    return "Updating", reason


def _is_being_created(root: Json, cluster: Json | None, machines: Sequence[Json]) -> bool:
    """Return whether the cluster has not been ready yet.

    No condition records that. But machines of the beginning are created before the control plane is initialized, and a
    cluster that has been ready lost that afterwards; a replacement and a later change come after it, too.
    """
    began = _condition(cluster or {}, "ControlPlaneInitialized")
    if began.get("status") != "True":
        return True
    initialized = str(began.get("lastTransitionTime") or "")
    if any(_joined_never(one) and _created(one) <= initialized for one in machines):
        return True
    return str(_summary(root).get("lastTransitionTime") or "") <= initialized


def _summary(root: Json) -> Json:
    return next((one for type in _SUMMARIES if (one := _condition(root, type))), {})


def _joined_never(machine: Json) -> bool:
    return not ((machine.get("status") or {}).get("nodeRef") or {}).get("name")


def _created(obj: Json) -> str:
    return str(_metadata(obj).get("creationTimestamp") or "")


def _is_paused(cluster: Json) -> bool:
    spec, annotations = cluster.get("spec") or {}, _metadata(cluster).get("annotations") or {}
    return bool(spec.get("paused")) or names.PAUSED in annotations


def _of_machines(machines: Sequence[Json]) -> str:
    """Return what a cluster that works waits for: machines that come, or go."""
    for machine in sorted(machines, key=_created):
        name = _metadata(machine).get("name")
        if _metadata(machine).get("deletionTimestamp"):
            return f"Machine {name} is being deleted"
        ready = _condition(machine, "Ready")
        if ready.get("status") != "True":
            said = _one_line(str(ready.get("message") or "")).removeprefix("* ")
            return f"waiting for Machine {name}" + (f": {said}" if said else "")
    return ""


def _desired(declared: Json | None, cluster: Json | None, live: Sequence[Json]) -> int:
    if declared is not None:
        pools = _pools(declared)
        if not pools:  # hosts register themselves
            return len(live)
        scaled = [one for one in pools if one.get("autoscalingMaxSize") is not None]
        fixed = sum(int(_quantity(one)) for one in pools if one not in scaled)
        return fixed + sum(_count_of_pool(declared, one, live) for one in scaled)
    status = (cluster or {}).get("status") or {}
    counts = [(status.get(part) or {}).get("desiredReplicas") for part in ("controlPlane", "workers")]
    known = [int(one) for one in counts if one is not None]
    return max(sum(known), len(live)) if known else len(live)


def _quantity(pool: Json) -> int:
    found = pool.get("quantity")
    return 1 if found is None else int(found)


def _count_of_pool(declared: Json, pool: Json, live: Sequence[Json]) -> int:
    """Return the machines of a pool whose number an autoscaler sets."""
    from remuda.provisioning.pools import deployment_name

    wanted = deployment_name(str(_metadata(declared).get("name")), str(pool.get("name")))
    return sum((_metadata(one).get("labels") or {}).get(names.DEPLOYMENT_NAME) == wanted for one in live)


def _version(declared: Json | None, live: Sequence[Json]) -> str:
    if declared is not None:
        return str((declared.get("spec") or {}).get("kubernetesVersion") or "")
    found = {str((one.get("spec") or {}).get("version") or "") for one in live} - {""}
    return ",".join(sorted(found))


def _driver(declared: Json | None, live: Sequence[Json]) -> str:
    if declared is not None:
        kinds = [str((one.get("machineConfigRef") or {}).get("kind") or "") for one in _pools(declared)]
        found = [kind.removesuffix("Config").removesuffix("MachineTemplate").lower() for kind in kinds]
        return ",".join(dict.fromkeys(found)) or "custom"
    references = [(one.get("spec") or {}).get("infrastructureRef") or {} for one in live]
    kinds = [str(one.get("kind") or "").removesuffix("Machine").lower() for one in references]
    return ",".join(dict.fromkeys(kinds))


def _pools(declared: Json) -> Sequence[Json]:
    return ((declared.get("spec") or {}).get("rkeConfig") or {}).get("machinePools") or ()


def _condition(obj: Json, type: str) -> Json:
    found = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one.get("type") == type), {})


def _metadata(obj: Json) -> Json:
    return obj.get("metadata") or {}


def _brief(message: str) -> str:
    """Return the first line without what happens next and where to read more, which `remuda why` shows."""
    first, *rest = _one_line(message).split("; ")
    return "; ".join([first, *(one for one in rest if one.startswith("also "))])


def _one_line(message: str) -> str:
    return " ".join(message.partition("\n")[0].split())
