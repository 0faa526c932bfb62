"""Gathers the tree of one cluster through the API, as any user could: nothing is asked of controllers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.inflection import plural
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK
from remuda.kube.client import Client, Target, list_all
from remuda.kube.errors import StatusError
from remuda.provisioning import tree
from remuda.provisioning.tree import Branch
from remuda.provisioning.types import CLUSTER

Json = dict[str, Any]

_NOT_FOUND = 404


class NoSuchCluster(Exception):
    """In the user's words."""


async def find(client: Client, namespace: str, name: str) -> str:
    """The namespace of a cluster; raises NoSuchCluster when there is none of that name, or several."""
    places = set()
    for kind in (CLUSTER, CAPI_CLUSTER):
        for value in await _listed(client, kind.target, namespace, f"metadata.name={name}"):
            places.add(str(value["metadata"]["namespace"]))
    if not places:
        raise NoSuchCluster(f"there is no cluster {name}{f' in namespace {namespace}' if namespace else ''}")
    if len(places) > 1:
        raise NoSuchCluster(f"there is a cluster {name} in each of {', '.join(sorted(places))}: say which with -n")
    return places.pop()


async def look(client: Client, namespace: str, name: str) -> Branch:
    """Raises NoSuchCluster."""
    cluster = await _get(client, CAPI_CLUSTER.target, namespace, name)
    declared = await _get(client, CLUSTER.target, namespace, name)
    below = None if cluster is None else await _Below(client, cluster).look()
    if declared is not None:
        version = str((declared.get("spec") or {}).get("kubernetesVersion") or "")
        return tree.branch(declared, [] if below is None else [below], note=version)
    if below is None:
        raise NoSuchCluster(f"there is no cluster {namespace}/{name}")
    return below


class _Below:
    """One look at what belongs to a Cluster of Cluster API: as many requests as it has kinds, however many machines."""

    def __init__(self, client: Client, cluster: Json) -> None:
        self._client = client
        self._cluster = cluster
        self._namespace, self._name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        self._labelled = f"{capi_names.CLUSTER_NAME}={capi_names.label_value(self._name)}"
        self._served: dict[str, str] = {}  # group → the version that the server likes best; empty: none
        self._listed: dict[Target, dict[str, Json]] = {}

    async def look(self) -> Branch:
        spec = self._cluster.get("spec") or {}
        of = f"Cluster {self._name}"
        branches = [
            await self._referred(reference, of)
            for reference in (spec.get("infrastructureRef"), spec.get("controlPlaneRef"))
            if reference
        ]
        machines: dict[str, list[Branch]] = defaultdict(list)
        for machine in await self._all(MACHINE.target):
            deployment = machine["metadata"].get("labels", {}).get(capi_names.DEPLOYMENT_NAME, "")
            machines[deployment].append(await self._machine(machine))
        checks = await self._all(MACHINE_HEALTH_CHECK.target)
        for deployment in await self._all(MACHINE_DEPLOYMENT.target):
            own = machines.pop(deployment["metadata"]["name"], [])
            branches.append(tree.branch(deployment, own, note=_count(deployment, own)))
        branches += [machine for others in machines.values() for machine in others]
        branches += [tree.branch(check) for check in checks if not tree.judge(check).well]
        return tree.branch(self._cluster, branches)

    async def _machine(self, machine: Json) -> Branch:
        spec, metadata = machine.get("spec") or {}, machine["metadata"]
        of = f"Machine {metadata['name']}"
        references = (spec.get("infrastructureRef"), (spec.get("bootstrap") or {}).get("configRef"))
        found = [await self._referred(one, of) for one in references if one]
        version = (((machine.get("status") or {}).get("nodeInfo")) or {}).get("kubeletVersion") or ""
        return tree.branch(machine, found, note=str(version))

    async def _referred(self, reference: Json, of: str) -> Branch:
        group, kind, name = (str(reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
        version = await self._version(group)
        found = await self._one(Target(version, plural(kind).lower()), name) if version else None
        return tree.missing(kind, name, self._namespace, of) if found is None else tree.branch(found)

    async def _version(self, group: str) -> str:
        if group not in self._served:
            try:
                found = msgspec.json.decode(await self._client.raw_get(f"/apis/{group}"))
            except StatusError as error:
                if error.code != _NOT_FOUND:
                    raise
                self._served[group] = ""
            else:
                self._served[group] = str(found["preferredVersion"]["groupVersion"])
        return self._served[group]

    async def _one(self, target: Target, name: str) -> Json | None:
        """Whoever made it need not have put the label of the cluster on it."""
        if target not in self._listed:
            self._listed[target] = {one["metadata"]["name"]: one for one in await self._all(target)}
        return self._listed[target].get(name) or await _get(self._client, target, self._namespace, name)

    async def _all(self, target: Target) -> list[Json]:
        return await _listed(self._client, target, self._namespace, label_selector=self._labelled)


def _count(deployment: Json, machines: Sequence[Branch]) -> str:
    return f"{len(machines)} of {(deployment.get('spec') or {}).get('replicas', 1)}"


async def _get(client: Client, target: Target, namespace: str, name: str) -> Json | None:
    try:
        found: Json = msgspec.json.decode(await client.get(target, namespace, name))
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
        return None
    return found


async def _listed(
    client: Client, target: Target, namespace: str, field_selector: str = "", *, label_selector: str = ""
) -> list[Json]:
    try:
        listing = await list_all(
            client, target, namespace, field_selector=field_selector, label_selector=label_selector
        )
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
        return []
    kinds = {"apiVersion": target.api_version}
    return [{**kinds, **msgspec.json.decode(value)} for value in listing.items]
