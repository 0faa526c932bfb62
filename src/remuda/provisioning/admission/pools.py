"""Validation of machine pools: each by itself, and all of them together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from remuda.capi import amounts
from remuda.capi.admission.machine_fields import amount_complaints
from remuda.kube import clock
from remuda.kube import names as kube_names
from remuda.kube.errors import FieldError, duplicate, forbidden, invalid, required
from remuda.providers.controlplane.rules import configuration
from remuda.providers.shared import names
from remuda.provisioning.generate import takes_config
from remuda.provisioning.machine_templates import pinned_options
from remuda.provisioning.pools import deployment_name, last_one, roles_without_machines
from remuda.provisioning.types import Cluster, MachinePool, ObjectReference

_WINDOWS = "windows"
_SHORTEST_HOST_NAME, _LONGEST_HOST_NAME = 10, 63
_DURATIONS = ("drainBeforeDeleteTimeout", "nodeStartupTimeout", "unhealthyNodeTimeout")
_RANGE = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")


def complaints(cluster: Cluster, path: str) -> list[FieldError]:
    config = cluster.spec.rke_config
    assert config is not None
    pools = config.machine_pools
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, pool in enumerate(pools):
        at = f"{path}[{index}]"
        if pool.name in seen:
            found.append(duplicate(f"{at}.name", pool.name))
        seen.add(pool.name)
        found += _pool(cluster, pool, at)
    if pools:
        found += _together(pools, path)
    return found + _host_name(
        config.machine_pool_defaults.hostname_length_limit, "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit"
    )


def _together(pools: Sequence[MachinePool], path: str) -> list[FieldError]:
    """A cluster without members of etcd, or without an API server, could never come up."""
    missing = []
    if not any(pool.etcd_role for pool in pools):
        missing.append("etcdRole")
    if not any(pool.control_plane_role for pool in pools):
        missing.append("controlPlaneRole")
    if missing:
        return [required(path, f"no pool has {' or '.join(missing)}: the cluster could never start")]
    return [forbidden(path, _not_left(role)) for role in roles_without_machines(pools)]


def transitions(old: Sequence[MachinePool], new: Sequence[MachinePool], path: str) -> list[FieldError]:
    """Deny the removal of all pools, which would delete every machine. A cluster may be created without pools, for
    hosts that register themselves."""
    if not old or new:
        return []
    kept = roles_without_machines(old)
    return [forbidden(path, _not_left(role)) for role in roles_without_machines(new) if role not in kept]


def _not_left(role: str) -> str:
    return f"{last_one(role)}. To remove the cluster, delete it"


def _pool(cluster: Cluster, pool: MachinePool, at: str) -> list[FieldError]:
    namespace = cluster.metadata.namespace
    found = _name(cluster.metadata.name, pool.name, f"{at}.name")
    found += _reference(pool, namespace, f"{at}.machineConfigRef")
    if not (pool.etcd_role or pool.control_plane_role or pool.worker_role):
        found.append(required(at, f"pool {pool.name} has no role: set etcdRole, controlPlaneRole or workerRole"))
    if pool.machine_os == _WINDOWS:
        found.append(forbidden(f"{at}.machineOS", "Windows is not supported"))
    found += kube_names.validate_labels(pool.labels, f"{at}.labels")
    found += configuration.taints(pool.taints, f"{at}.taints")
    found += configuration.credential(pool.cloud_credential_secret_name, namespace, f"{at}.cloudCredentialSecretName")
    found += kube_names.validate_labels(pool.machine_deployment_labels, f"{at}.machineDeploymentLabels")
    found += kube_names.validate_annotations(pool.machine_deployment_annotations, f"{at}.machineDeploymentAnnotations")
    found += _host_name(pool.hostname_length_limit, f"{at}.hostnameLengthLimit")
    found += _sizes(pool, at)
    found += _updates(pool, f"{at}.rollingUpdate")
    found += _health(pool, at)
    if pool.quantity is not None and pool.quantity < 0:
        found.append(invalid(f"{at}.quantity", pool.quantity, "must not be negative"))
    if pool.userdata is not None and pool.userdata.inline_userdata and takes_config(pool):
        why = "is only for other infrastructure providers: set user data in the driver's Config"
        found.append(forbidden(f"{at}.userdata.inlineUserdata", why))
    try:
        pinned_options(pool, None)
    except ValueError as error:
        found.append(invalid(f"{at}.dynamicSchemaSpec", pool.dynamic_schema_spec, str(error)))
    return found


def _name(cluster: str, pool: str, path: str) -> list[FieldError]:
    if not pool:
        return [required(path)]
    found = [
        invalid(path, pool, f"is used as a label value of machines: {text}") for text in kube_names.label_value(pool)
    ]
    deployment = deployment_name(cluster, pool)
    found += [
        invalid(path, pool, f"gives the MachineDeployment the invalid name {deployment!r}: {text}")
        for text in kube_names.dns1123_subdomain(deployment)
    ]
    return found


def _reference(pool: MachinePool, namespace: str, path: str) -> list[FieldError]:
    reference = pool.machine_config_ref
    if reference is None:
        return [required(path, "the <Driver>Config that its machines are created from")]
    found = reference_complaints(reference, namespace, path)
    if takes_config(pool) and reference.kind and not reference.kind.endswith("Config"):
        why = (
            "is not a <Driver>Config; for another provider's template, set an apiVersion other than "
            f"{names.CONFIG_API_VERSION}"
        )
        found.append(invalid(f"{path}.kind", reference.kind, why))
    return found


def reference_complaints(reference: ObjectReference, namespace: str, path: str) -> list[FieldError]:
    found = [] if reference.kind else [required(f"{path}.kind")]
    if not reference.name:
        found.append(required(f"{path}.name"))
    elif problems := kube_names.dns1123_subdomain(reference.name):
        found += [invalid(f"{path}.name", reference.name, text) for text in problems]
    if reference.namespace and reference.namespace != namespace:
        found.append(invalid(f"{path}.namespace", reference.namespace, f"must be the Cluster's own, {namespace}"))
    return found


def _host_name(limit: int, path: str) -> list[FieldError]:
    if not limit or _SHORTEST_HOST_NAME <= limit <= _LONGEST_HOST_NAME:
        return []
    return [invalid(path, limit, f"must be between {_SHORTEST_HOST_NAME} and {_LONGEST_HOST_NAME}")]


def _sizes(pool: MachinePool, at: str) -> list[FieldError]:
    least, most = pool.autoscaling_min_size, pool.autoscaling_max_size
    if least is None and most is None:
        return []
    if least is None or most is None:
        absent = "autoscalingMinSize" if least is None else "autoscalingMaxSize"
        return [required(f"{at}.{absent}", "set both autoscalingMinSize and autoscalingMaxSize, or neither")]
    if least < 0 or least > most:
        return [invalid(f"{at}.autoscalingMinSize", least, f"must be from 0 to autoscalingMaxSize, which is {most}")]
    if least == 0 and (pool.etcd_role or pool.control_plane_role):
        return [invalid(f"{at}.autoscalingMinSize", least, "must be more than 0 for etcd and control plane pools")]
    return []


def _updates(pool: MachinePool, path: str) -> list[FieldError]:
    update = pool.rolling_update
    if update is None:
        return []
    given = (("maxUnavailable", update.max_unavailable, 0), ("maxSurge", update.max_surge, 1))
    found = [error for name, amount, _ in given for error in amount_complaints(amount, f"{path}.{name}")]
    if found:
        return found
    counts = [amounts.resolve(default if amount is None else amount, 100, up=True) for _, amount, default in given]
    if not any(counts):
        found.append(invalid(path, "0", "maxUnavailable and maxSurge cannot both be 0: no machine could be replaced"))
    return found


def _health(pool: MachinePool, at: str) -> list[FieldError]:
    found = []
    values = (pool.drain_before_delete_timeout, pool.node_startup_timeout, pool.unhealthy_node_timeout)
    for name, text in zip(_DURATIONS, values, strict=True):
        if text and (problem := _duration_problem(text)):
            found.append(invalid(f"{at}.{name}", text, problem))
    if pool.max_unhealthy:
        found += amount_complaints(_number(pool.max_unhealthy), f"{at}.maxUnhealthy")
    if pool.unhealthy_range:
        found += _range(pool.unhealthy_range, f"{at}.unhealthyRange")
    return found


def _duration_problem(text: str) -> str:
    try:
        return "must not be negative" if clock.parse_duration(text) < 0 else ""
    except clock.BadDuration as error:
        return str(error)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _range(text: str, path: str) -> list[FieldError]:
    match = _RANGE.fullmatch(text)
    if match is None:
        return [invalid(path, text, "must be two numbers, as in [1-3]")]
    if int(match[1]) > int(match[2]):
        return [invalid(path, text, "is an empty range: its start is above its end")]
    return []
