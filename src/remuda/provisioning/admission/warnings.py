"""Warnings about valid settings: they have no effect, or they will wait for an object that does not exist yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remuda.capi import inflection
from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE
from remuda.kube.admission import Review, Unseen
from remuda.kube.client import Target
from remuda.kube.core import SECRETS
from remuda.kube.quantity import Quantity
from remuda.providers.controlplane.rules import keys, versions
from remuda.providers.shared import credentials, distros, names
from remuda.providers.shared.types.machine import NODE_DRIVER
from remuda.provisioning import fields
from remuda.provisioning.generate import credential, takes_config
from remuda.provisioning.pools import quantity
from remuda.provisioning.types import Cluster, MachinePool

_CONFIG = "spec.rkeConfig"
_QUOTAS = Target("v1", "resourcequotas")


def of_cluster(review: Review, cluster: Cluster) -> list[str]:
    config = cluster.spec.rke_config
    if config is None:
        return []
    version = versions.read(cluster.spec.kubernetes_version)
    said = [*versions.warnings(cluster.spec.kubernetes_version, "spec.kubernetesVersion"), *fields.warnings(cluster)]
    if version is not None:
        said += keys.warnings(config, distros.of(version), _CONFIG, version)
    said += _sizes(config.machine_pools)
    said += _quotas(review, cluster, config.machine_pools)
    for index, pool in enumerate(config.machine_pools):
        said += _absent(review, cluster, pool, f"{_CONFIG}.machinePools[{index}]")
    return said


def _sizes(pools: Sequence[MachinePool]) -> Iterator[str]:
    if not pools:
        return
    path = f"{_CONFIG}.machinePools"
    roles = (
        ("etcd member", [pool for pool in pools if pool.etcd_role]),
        ("control plane", [pool for pool in pools if pool.control_plane_role]),
        ("worker", [pool for pool in pools if pool.worker_role]),
    )
    for role, held in roles:
        if not held:
            yield f"{path}: no pool has workerRole: the cluster runs no user Pods until worker hosts register"
        elif not sum(map(quantity, held)):
            yield f"{path}: the cluster has no {role}, because the quantity of {_listed(held)} is 0"
    members = sum(map(quantity, roles[0][1]))
    if members and members % 2 == 0:
        yield (f"{path}: {members} etcd members tolerate no more failures than {members - 1}: use an odd number")


def _quotas(review: Review, cluster: Cluster, pools: Sequence[MachinePool]) -> Iterator[str]:
    """Name the ResourceQuotas that will not let all machines be created, where quotas are seen."""
    counted = f"count/{MACHINE.plural}.{MACHINE.group}"
    labels = {capi_names.CLUSTER_NAME: capi_names.label_value(cluster.metadata.name)}
    try:
        quotas = review.select(_QUOTAS.api_version, _QUOTAS.plural, review.namespace, {})
        limits = [quota for quota in quotas if counted in ((quota.get("spec") or {}).get("hard") or {})]
        present = len(review.select(MACHINE.api_version, MACHINE.plural, review.namespace, labels)) if limits else 0
    except Unseen:
        return
    missing = sum(map(quantity, pools)) - present
    for quota in limits:
        most = Quantity.parse(quota["spec"]["hard"][counted]).value()
        left = most - Quantity.parse(((quota.get("status") or {}).get("used") or {}).get(counted, 0)).value()
        if missing > max(left, 0):
            yield (
                f"{_CONFIG}.machinePools: {missing} more machines are declared, but ResourceQuota "
                f"{quota['metadata']['name']} of namespace {review.namespace} allows {max(left, 0)} more"
            )


def _listed(pools: Sequence[MachinePool]) -> str:
    return ", ".join(f"pool {pool.name}" for pool in pools)


def _absent(review: Review, cluster: Cluster, pool: MachinePool, path: str) -> Iterator[str]:
    reference = pool.machine_config_ref
    if reference is None or not takes_config(pool):
        return
    driver = reference.kind.removesuffix("Config").lower()
    if _is_missing(review, NODE_DRIVER.api_version, NODE_DRIVER.plural, "", driver):
        yield (
            f"{path}.machineConfigRef.kind: NodeDriver {driver} is not registered, so kind {reference.kind} does not "
            "exist yet"
        )
        return
    plural = inflection.plural(reference.kind.lower())
    if _is_missing(review, names.CONFIG_API_VERSION, plural, review.namespace, reference.name):
        yield (
            f"{path}.machineConfigRef.name: there is no {reference.kind} {review.namespace}/{reference.name} yet: "
            "the cluster is created once it exists"
        )
    said = credential(cluster, pool)
    if not said:
        return
    place = credentials.place(said, review.namespace)
    if _is_missing(review, SECRETS.api_version, SECRETS.plural, *place):
        yield f"{path}: there is no Secret {place} yet (cloudCredentialSecretName {said})"


def _is_missing(review: Review, api_version: str, plural: str, namespace: str, name: str) -> bool:
    """Return whether the object is known not to exist."""
    try:
        return review.lookup(api_version, plural, namespace, name) is None
    except Unseen:
        return False
