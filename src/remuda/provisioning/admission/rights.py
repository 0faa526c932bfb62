"""List the rights that the author of a Cluster or a `<Driver>Config` needs for what it refers to. Pure.

A Cluster uses a credential once for each pool, with the pool's Config, and once for what its machines share. So another
pool, or another Config for a pool, is a new use of the same credential. A Config decides whom the credentials of its
Clusters are shown to: a change of its options is a use of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from remuda.capi import inflection
from remuda.capi.admission.rules import read
from remuda.kube.admission import Review, Unseen
from remuda.kube.authorization import RequiredAccess
from remuda.kube.objects import value_at
from remuda.providers.controlplane import references
from remuda.providers.shared import author, names, restriction
from remuda.providers.shared.author import CredentialUse
from remuda.provisioning.admission.policy import options, pools_of, refers
from remuda.provisioning.generate import credential, takes_config
from remuda.provisioning.types import CLUSTER, Cluster

Json = dict[str, Any]

_CONFIG = "spec.rkeConfig"


# ---- a Cluster -------------------------------------------------------------------------------------------------------


def of_cluster(review: Review) -> list[RequiredAccess]:
    if review.subresource or review.new is None or review.by_manager:
        return []
    return [*_uses_drivers(review), *_refers(review), *_uses_credentials(review)]


def credential_uses(review: Review, obj: Json) -> list[CredentialUse]:
    cluster = read(CLUSTER, obj)
    config = cluster.spec.rke_config if cluster is not None else None
    if cluster is None or config is None:
        return []
    found: list[CredentialUse] = []
    for index, pool in enumerate(config.machine_pools):
        reference = pool.machine_config_ref
        if reference is None or not takes_config(pool):
            continue
        own = f"{_CONFIG}.machinePools[{index}].cloudCredentialSecretName"
        field = own if pool.cloud_credential_secret_name else "spec.cloudCredentialSecretName"
        content = ["pool", pool.name, reference.kind, reference.name]
        found += author.use(credential(cluster, pool), review.namespace, field, content)
    shared = config.cluster_infrastructure
    if shared is not None:
        content = ["infrastructure", msgspec.to_builtins(shared)]
        said = cluster.spec.cloud_credential_secret_name
        found += author.use(said, review.namespace, "spec.cloudCredentialSecretName", content)
    return found


record_author = author.records_author(credential_uses)
_uses_credentials = author.uses_credentials(credential_uses)


def _refers(review: Review) -> list[RequiredAccess]:
    """Return the rights to Secrets, ConfigMaps and Configs that a write newly names. A Cluster becomes the owner of the
    Configs of its pools."""
    old, new = read(CLUSTER, review.old), read(CLUSTER, review.new)
    after = new.spec.rke_config if new is not None else None
    if new is None or after is None or new.metadata.deleting:
        return []
    before = old.spec.rke_config if old is not None else None
    found = references.added(before, after, review.namespace, _CONFIG)
    known = {access.right for access in _configs(review, old)} if old is not None else set()
    return [*found, *(access for access in _configs(review, new) if access.right not in known)]


def _configs(review: Review, cluster: Cluster) -> Iterator[RequiredAccess]:
    for index, pool in enumerate(pools_of(cluster)):
        reference = pool.machine_config_ref
        if reference is None or not takes_config(pool) or not reference.kind or not reference.name:
            continue
        yield RequiredAccess(
            verb="get",
            group=names.CONFIG_GROUP,
            resource=inflection.plural(reference.kind.lower()),
            namespace=review.namespace,
            name=reference.name,
            field=f"{_CONFIG}.machinePools[{index}].machineConfigRef",
        )


def _drivers(kind: str, obj: Json) -> Iterator[tuple[str, str]]:
    """Admission runs before validation: nothing of the shape is certain."""
    config = value_at(obj, "spec", "rkeConfig")
    yield f"{_CONFIG}.clusterInfrastructure.driver", str(value_at(config, "clusterInfrastructure", "driver"))
    pools = value_at(config, "machinePools")
    for index, pool in enumerate(pools if isinstance(pools, list) else ()):
        kind = str(value_at(pool, "machineConfigRef", "kind"))
        yield f"{_CONFIG}.machinePools[{index}].machineConfigRef.kind", restriction.driver_of_kind(kind)


_uses_drivers = restriction.uses_driver(_drivers)


# ---- a <Driver>Config ------------------------------------------------------------------------------------------------


def of_config(review: Review) -> list[RequiredAccess]:
    """Return the rights to the credentials of the Clusters that refer to it."""
    if review.subresource or review.new is None or review.by_manager:
        return []
    if review.old is not None and options(review.old) == options(review.new):
        return []
    try:
        clusters = review.select(CLUSTER.api_version, CLUSTER.plural, review.namespace, {})
    except Unseen:
        return []
    found = [access for raw in clusters for access in _credentials(review, read(CLUSTER, raw))]
    return list({access.right: access for access in found}.values())


def _credentials(review: Review, cluster: Cluster | None) -> Iterator[RequiredAccess]:
    if cluster is None:
        return
    for pool in pools_of(cluster):
        if refers(pool, review.kind, review.name):
            access = author.credential(credential(cluster, pool), review.namespace, "")
            if access is not None:
                yield msgspec.structs.replace(access, advice=_advice(cluster, pool.name))


def _advice(cluster: Cluster, pool: str) -> str:
    return (
        f"pool {pool} of Cluster {cluster.key} creates servers with this credential and these options: ask an "
        "administrator for this right, or create another Config"
    )
