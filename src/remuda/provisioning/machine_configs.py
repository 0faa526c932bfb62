"""Configs of a Cluster's pools: found, checked, and adopted.

A `<Driver>Config` belongs to one Cluster, which is its controller and is deleted together with it; a Config of another
Cluster is left alone. Everything that is missing is reported at once, each item with the pool that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.capi.cluster_index import controlled_by
from remuda.capi.contract import ProviderObject
from remuda.capi.external import DEFINITION, Externals, UnknownKind, UnlabelledKind, definition_name
from remuda.capi.types import MACHINE_DEPLOYMENT, Reference
from remuda.kube.core import SECRETS
from remuda.kube.errors import NotFound
from remuda.providers.shared import credentials, names
from remuda.providers.shared.credentials import BadReference
from remuda.provisioning import ProvisioningError, pools
from remuda.provisioning.generate import CannotBeMade, credential, takes_config
from remuda.provisioning.machine_templates import Material, known_options, pinned_options
from remuda.provisioning.types import CLUSTER, Cluster, MachinePool
from remuda.runtime.draft import save
from remuda.runtime.manager import Manager
from remuda.runtime.steps import step

OWN_CONFIG = step("provisioningcluster.own-config", "sets a Cluster as owner of a <Driver>Config that it uses")


class _Problem(ProvisioningError):
    """Problem of one pool, as text for users."""


class MachineConfigs:
    """Loader of the Configs and credentials of pools. Create it before the caches start."""

    def __init__(self, manager: Manager, externals: Externals) -> None:
        self._client = manager.client
        self._externals = externals
        self._definitions = manager.caches.of(DEFINITION, metadata_only=True)
        self._deployments = manager.caches.of(MACHINE_DEPLOYMENT)
        self._options: dict[str, tuple[object, Mapping[str, Mapping[str, Any]]]] = {}  # by definition, as it is

    async def gather(self, cluster: Cluster) -> dict[str, Material]:
        """Return the inputs of each pool's template, for pools with a Config. Raises CannotBeMade."""
        found: dict[str, Material] = {}
        problems: list[str] = []
        config = cluster.spec.rke_config
        for pool in config.machine_pools if config is not None else ():
            try:
                await self._check_credential(cluster, pool)
                if takes_config(pool):
                    found[pool.name] = await self._material(cluster, pool)
            except (_Problem, BadReference, UnknownKind, UnlabelledKind) as problem:
                problems.append(f"machine pool {pool.name}: {problem}")
        if problems:
            raise CannotBeMade("; ".join(problems))
        return found

    async def _material(self, cluster: Cluster, pool: MachinePool) -> Material:
        reference = config_reference(pool)
        assert reference is not None
        config = await self._externals.get(reference, cluster.metadata.namespace)
        if config is None:
            raise _Problem(f"{reference.kind} {cluster.metadata.namespace}/{reference.name} does not exist")
        await self._own(cluster, config)
        deployment = self._deployments.get(
            cluster.metadata.namespace, pools.deployment_name(cluster.metadata.name, pool.name)
        )
        noted = None if deployment is None else deployment.metadata.annotations.get(pools.DRIVER_OPTIONS)
        try:
            pinned = pinned_options(pool, noted)
        except ValueError as error:
            raise _Problem(str(error)) from None
        return Material(config=config.raw, options=await self._options_of(reference.kind), pinned=pinned)

    async def _own(self, cluster: Cluster, config: ProviderObject) -> None:
        if config.deleting:
            raise _Problem(f"{config} is being deleted")
        owner = config.metadata.controller
        if owner is not None and owner.uid != cluster.metadata.uid:
            raise _Problem(
                f"{config} belongs to {owner.kind} {owner.name}: a Config can serve only one cluster, create another "
                "one for this cluster"
            )
        if owner is not None:
            return
        draft = config.draft()
        draft.set_owner(controlled_by(CLUSTER, cluster.metadata))
        await save(self._client, draft, OWN_CONFIG)

    async def _options_of(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the options of a CRD, decoded once per resourceVersion."""
        name = definition_name(names.CONFIG_GROUP, kind)
        head = self._definitions.get("", name)
        state = None if head is None else (head.metadata.uid, head.metadata.resource_version)
        known = self._options.get(name)
        if known is not None and known[0] == state:
            return known[1]
        # The cache holds only the metadata of definitions, without their schemas.
        found = known_options(msgspec.json.decode(await self._client.get(DEFINITION.target, "", name)))
        self._options[name] = (state, found)
        return found

    async def _check_credential(self, cluster: Cluster, pool: MachinePool) -> None:
        said = credential(cluster, pool)
        if not said or not takes_config(pool):
            return
        place = credentials.place(said, cluster.metadata.namespace)
        try:
            # Only its existence is checked: each Job reads the fields itself, so that changes take effect.
            await self._client.get(SECRETS, *place)
        except NotFound:
            raise _Problem(f"Secret {place} does not exist (cloudCredentialSecretName {said})") from None


def config_reference(pool: MachinePool) -> Reference | None:
    """Return the reference to the pool's Config, without a version."""
    reference = pool.machine_config_ref
    if reference is None or not takes_config(pool):
        return None
    return Reference(api_group=names.CONFIG_GROUP, kind=reference.kind, name=reference.name)
