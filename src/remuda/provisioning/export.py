"""Manifest of a declared Cluster as it runs: the objects that a user would write, and what else they need. Pure.

Applied again, the manifest changes nothing. It has no status and no metadata that the server or admission sets. Secrets
are not part of it: they are listed, with the field that needs each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.kube.core import SECRETS
from remuda.kube.objects import Key
from remuda.providers.controlplane import references
from remuda.providers.controlplane.referenced_objects import CONFIG_MAP
from remuda.providers.shared import author, names
from remuda.provisioning.generate import credential, takes_config
from remuda.provisioning.types import Cluster, MachinePool

Json = dict[str, Any]

_CONFIG = "spec.rkeConfig"
_SERVER_SETS = (names.CREATOR, author.AUTHOR, capi_names.LAST_APPLIED)  # annotations


class NeededObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a Cluster refers to, and the field that does."""

    kind: str
    key: Key
    field: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key if self.key.namespace else self.key.name}, for {self.field}"


class NeededObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that a Cluster needs: those to export with it, and those that the user must have or create."""

    configs: Sequence[NeededObject] = ()
    config_maps: Sequence[NeededObject] = ()
    others: Sequence[NeededObject] = ()


def needed(cluster: Cluster) -> NeededObjects:
    config, namespace = cluster.spec.rke_config, cluster.metadata.namespace
    if config is None:
        return NeededObjects()
    named = references.added(None, config, namespace, _CONFIG)
    found = [NeededObject(kind=_kind(one.resource), key=Key(one.namespace, one.name), field=one.field) for one in named]
    others = [one for one in found if one.kind != CONFIG_MAP.name]
    if config.infrastructure_ref is not None:
        reference = config.infrastructure_ref
        others.append(
            NeededObject(kind=reference.kind, key=Key(namespace, reference.name), field=f"{_CONFIG}.infrastructureRef")
        )
    if config.cluster_infrastructure is not None:
        others += _credential(cluster.spec.cloud_credential_secret_name, namespace, "spec.cloudCredentialSecretName")
    configs: list[NeededObject] = []
    for index, pool in enumerate(config.machine_pools):
        own, foreign = _of_pool(cluster, pool, f"{_CONFIG}.machinePools[{index}]")
        configs += own
        others += foreign
    return NeededObjects(
        configs=_unique(configs),
        config_maps=_unique([one for one in found if one.kind == CONFIG_MAP.name]),
        others=_unique(others),
    )


def _of_pool(cluster: Cluster, pool: MachinePool, at: str) -> tuple[list[NeededObject], list[NeededObject]]:
    """Return the Config of a pool, and the other objects that it needs."""
    reference, namespace = pool.machine_config_ref, cluster.metadata.namespace
    if reference is None:
        return [], []
    config = NeededObject(kind=reference.kind, key=Key(namespace, reference.name), field=f"{at}.machineConfigRef")
    if not takes_config(pool):
        return [], [config]
    own = f"{at}.cloudCredentialSecretName"
    field = own if pool.cloud_credential_secret_name else "spec.cloudCredentialSecretName"
    return [config], _credential(credential(cluster, pool), namespace, field)


def _credential(said: str, namespace: str, field: str) -> list[NeededObject]:
    access = author.credential(said, namespace, field)
    return [] if access is None else [NeededObject(kind="Secret", key=Key(access.namespace, access.name), field=field)]


def _kind(resource: str) -> str:
    return "Secret" if resource == SECRETS.plural else CONFIG_MAP.name


def _unique(found: Sequence[NeededObject]) -> list[NeededObject]:
    return list({(one.kind, one.key): one for one in reversed(found)}.values())[::-1]


def exported(obj: Mapping[str, Any]) -> Json:
    """Return an object as a user would write it."""
    metadata = obj["metadata"]
    kept: Json = {"name": metadata["name"], "namespace": metadata["namespace"]}
    if labels := metadata.get("labels"):
        kept["labels"] = labels
    annotations = metadata.get("annotations") or {}
    if own := {name: value for name, value in annotations.items() if name not in _SERVER_SETS}:
        kept["annotations"] = own
    rest = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept, **rest}
