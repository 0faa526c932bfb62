"""Cluster API objects of one pool: a MachineDeployment, and a MachineHealthCheck if remediation is wanted. Pure.

Labels, taints and roles are metadata of the machine template, which Cluster API propagates to Machines in place: only
another infrastructure template replaces machines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK
from remuda.kube import clock
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.provisioning.types import IN_PLACE_ONLY, MachinePool

Json = dict[str, Any]

POOL_NAME = "rke.cattle.io/rke-machine-pool-name"  # label of Machines
DRIVER_OPTIONS = "remuda.dev/driver-options"  # annotation of a MachineDeployment: what the driver had when it was made
_LINUX = "linux"
_LONGEST_SECONDS = 2**31 - 1  # durations of Cluster API are int32


def deployment_name(cluster: str, pool: str) -> str:
    return names.join(cluster, pool)


def is_autoscaled(pool: MachinePool) -> bool:
    return pool.autoscaling_min_size is not None and pool.autoscaling_max_size is not None


def quantity(pool: MachinePool) -> int:
    return 1 if pool.quantity is None else pool.quantity


def roles_without_machines(pools: Sequence[MachinePool], wanted: Mapping[str, int] = {}) -> list[str]:
    """Return the roles that no machine would have, of those that a cluster cannot do without. `wanted`: other
    quantities, by pool."""
    holders = {
        "etcd member": [pool for pool in pools if pool.etcd_role],
        "control plane": [pool for pool in pools if pool.control_plane_role],
    }
    return [role for role, held in holders.items() if not any(_least(pool, wanted) for pool in held)]


def _least(pool: MachinePool, wanted: Mapping[str, int]) -> int:
    """An autoscaled pool has as many machines as its lower bound, whatever its quantity."""
    declared = wanted.get(pool.name, quantity(pool))
    return max(declared, pool.autoscaling_min_size or 0) if is_autoscaled(pool) else declared


def last_one(role: str) -> str:
    """Return why a role must keep a machine."""
    return f"no {role} would be left: without one, the cluster and its data are lost"


def with_replicas(deployment: Json, present: int | None) -> Json:
    """The MachineDeployment of an autoscaled pool with as many machines as it has, within its bounds."""
    annotations, spec = deployment["metadata"]["annotations"], deployment["spec"]
    least, most = int(annotations[capi_names.AUTOSCALER_MIN_SIZE]), int(annotations[capi_names.AUTOSCALER_MAX_SIZE])
    wanted = spec["replicas"] if present is None else present
    return {**deployment, "spec": {**spec, "replicas": max(least, min(wanted, most))}}


def machine_deployment(
    cluster: str,
    pool: MachinePool,
    *,
    infrastructure: Mapping[str, str],
    bootstrap: str,
    longest_host_name: int = 0,
    options_note: str | None = None,
) -> Json:
    """`infrastructure`: the template's reference. Raises clock.BadDuration."""
    name = deployment_name(cluster, pool.name)
    os = {names.OS: pool.machine_os or _LINUX}
    spec: Json = {
        "clusterName": cluster,
        "replicas": quantity(pool),
        "rollout": {"strategy": _strategy(pool)},
        "deletion": {"order": "Oldest"},
        "paused": pool.paused,
        "selector": {"matchLabels": {capi_names.CLUSTER_NAME: cluster, capi_names.DEPLOYMENT_NAME: name}},
        "template": {
            "metadata": {
                "labels": {
                    **pool.labels,
                    **os,
                    capi_names.CLUSTER_NAME: cluster,
                    names.CLUSTER_NAME: cluster,
                    capi_names.DEPLOYMENT_NAME: name,
                    POOL_NAME: pool.name,
                    **_roles(pool),
                },
                **_annotations(pool, longest_host_name),
            },
            "spec": {
                "clusterName": cluster,
                "bootstrap": {
                    "configRef": {"apiGroup": names.GROUP, "kind": RKE_BOOTSTRAP_TEMPLATE.name, "name": bootstrap}
                },
                "infrastructureRef": dict(infrastructure),
                **_deletion(pool),
            },
        },
    }
    annotations = {**pool.machine_deployment_annotations, **_sizes(pool)}
    if options_note is not None:
        annotations[DRIVER_OPTIONS] = options_note
    return {
        "apiVersion": MACHINE_DEPLOYMENT.api_version,
        "kind": MACHINE_DEPLOYMENT.name,
        "metadata": {
            "name": name,
            "labels": {**pool.labels, **pool.machine_deployment_labels, **os, capi_names.CLUSTER_NAME: cluster},
            "annotations": annotations,
        },
        "spec": spec,
    }


def machine_health_check(cluster: str, pool: MachinePool) -> Json | None:
    """Return the MachineHealthCheck; None if remediation is off, or the pool's machines may not be replaced. Raises
    clock.BadDuration."""
    timeout = seconds(pool.unhealthy_node_timeout)
    if not timeout or pool.replacement == IN_PLACE_ONLY:
        return None
    name = deployment_name(cluster, pool.name)
    unhealthy = [{"type": "Ready", "status": status, "timeoutSeconds": timeout} for status in ("Unknown", "False")]
    checks: Json = {"unhealthyNodeConditions": unhealthy}
    startup = seconds(pool.node_startup_timeout)
    if startup is not None:
        checks["nodeStartupTimeoutSeconds"] = startup
    trigger: Json = {}
    if pool.max_unhealthy:
        trigger["unhealthyLessThanOrEqualTo"] = _amount(pool.max_unhealthy)
    if pool.unhealthy_range:
        trigger["unhealthyInRange"] = pool.unhealthy_range
    spec: Json = {
        "clusterName": cluster,
        "selector": {"matchLabels": {capi_names.DEPLOYMENT_NAME: name}},
        "checks": checks,
    }
    if trigger:
        spec["remediation"] = {"triggerIf": trigger}
    return {
        "apiVersion": MACHINE_HEALTH_CHECK.api_version,
        "kind": MACHINE_HEALTH_CHECK.name,
        "metadata": {"name": name, "labels": {capi_names.CLUSTER_NAME: cluster}},
        "spec": spec,
    }


def seconds(text: str | None) -> int | None:
    """Return a duration in whole seconds. Raises clock.BadDuration."""
    return None if not text else max(0, min(int(clock.parse_duration(text)), _LONGEST_SECONDS))


def _strategy(pool: MachinePool) -> Json:
    update = pool.rolling_update
    found: Json = {}
    if update is not None and update.max_unavailable is not None:
        found["maxUnavailable"] = update.max_unavailable
    if update is not None and update.max_surge is not None:
        found["maxSurge"] = update.max_surge
    return {"type": "RollingUpdate", **({"rollingUpdate": found} if found else {})}


def _roles(pool: MachinePool) -> dict[str, str]:
    roles = {
        names.ETCD_ROLE: pool.etcd_role,
        names.CONTROL_PLANE_ROLE: pool.control_plane_role,
        capi_names.CONTROL_PLANE: pool.control_plane_role,
        names.WORKER_ROLE: pool.worker_role,
    }
    return {label: "true" for label, held in roles.items() if held}


def _annotations(pool: MachinePool, longest_host_name: int) -> Json:
    found = {}
    if not pool.drain_before_delete:
        found[capi_names.EXCLUDE_NODE_DRAINING] = "true"
    if longest_host_name:
        found[names.HOSTNAME_LENGTH_LIMIT] = str(longest_host_name)
    if pool.labels:
        found[names.NODE_LABELS] = json.dumps(dict(pool.labels), sort_keys=True, separators=(",", ":"))
    if pool.taints:
        found[names.NODE_TAINTS] = msgspec.json.encode(pool.taints).decode()
    return {"annotations": found} if found else {}


def _deletion(pool: MachinePool) -> Json:
    timeout = seconds(pool.drain_before_delete_timeout)
    return {} if timeout is None else {"deletion": {"nodeDrainTimeoutSeconds": timeout}}


def _sizes(pool: MachinePool) -> dict[str, str]:
    if not is_autoscaled(pool):
        return {}
    return {
        capi_names.AUTOSCALER_MIN_SIZE: str(pool.autoscaling_min_size),
        capi_names.AUTOSCALER_MAX_SIZE: str(pool.autoscaling_max_size),
    }


def _amount(text: str) -> int | str:
    return int(text) if text.isdigit() else text
