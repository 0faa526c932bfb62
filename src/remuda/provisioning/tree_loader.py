"""Loader of one cluster's tree: it reads the API with the user's rights and asks no controller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.inflection import plural
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET
from remuda.kube.client import Client, Target, list_all
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import Forbidden, NotFound
from remuda.kube.similar_names import did_you_mean, similar
from remuda.provisioning import ProvisioningError, tree, troubles
from remuda.provisioning.tree import Branch
from remuda.provisioning.types import CLUSTER

Json = dict[str, Any]

T = TypeVar("T")


class NoSuchCluster(ProvisioningError):
    """Error with a message for users."""


async def find(client: Client, namespace: str, name: str) -> str:
    """Return the namespace of a cluster. Raises NoSuchCluster if no cluster, or several, have the name."""
    places = set()
    for kind in (CLUSTER, CAPI_CLUSTER):
        for value in await _listed(client, kind.target, namespace, f"metadata.name={name}"):
            places.add(str(value["metadata"]["namespace"]))
    if not places:
        kinds = (CLUSTER, CAPI_CLUSTER)
        known = [one["metadata"]["name"] for kind in kinds for one in await _listed(client, kind.target, namespace)]
        where = f" in namespace {namespace}" if namespace else ""
        raise NoSuchCluster(f"cluster {name} not found{where}{did_you_mean(similar(name, known))}")
    if len(places) > 1:
        raise NoSuchCluster(
            f"several clusters are called {name}, in namespaces {', '.join(sorted(places))}: choose one with -n"
        )
    return places.pop()


async def look(client: Client, namespace: str, name: str) -> Branch:
    """Raises NoSuchCluster."""
    cluster = await _get(client, CAPI_CLUSTER.target, namespace, name)
    declared = await _get(client, CLUSTER.target, namespace, name)
    if declared is None and cluster is None:
        raise NoSuchCluster(f"cluster {namespace}/{name} not found")
    known = _Known(client)
    below = None if cluster is None else await _Below(known, cluster, declared=declared is not None).look()
    ending = await _Ending(known, below).look(_namespaces(namespace, declared))
    if declared is not None:
        version = str((declared.get("spec") or {}).get("kubernetesVersion") or "")
        return tree.branch(declared, [*([] if below is None else [below]), *ending], note=version)
    assert below is not None
    return msgspec.structs.replace(below, branches=(*below.branches, *ending))


def _namespaces(namespace: str, declared: Json | None) -> list[str]:
    """Return those whose end a cluster may wait for: its own, and that of its management Cluster."""
    if declared is None or not declared["metadata"].get("deletionTimestamp"):
        return [namespace]
    managed = str((declared.get("status") or {}).get("clusterName") or "")
    return [namespace, managed] if managed else [namespace]


class _Known:
    """The server's groups, as far as they were asked for."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._served: dict[str, str] = {"": "v1"}  # group → the version that the server likes best; empty: none

    async def version(self, group: str) -> str:
        if group not in self._served:
            try:
                found = msgspec.json.decode(await self.client.raw_get(f"/apis/{group}"))
            except NotFound:
                self._served[group] = ""
            else:
                self._served[group] = str(found["preferredVersion"]["groupVersion"])
        return self._served[group]

    async def kind(self, version: str, resource: str) -> str:
        """Return the kind of a resource; empty if there is none. Lists of Kubernetes' own kinds do not name it."""
        if not version:
            return ""
        found = msgspec.json.decode(await self.client.raw_get(f"/{'apis' if '/' in version else 'api'}/{version}"))
        return next((str(one["kind"]) for one in found["resources"] if one["name"] == resource), "")


class _Below:
    """One look at what belongs to a Cluster of Cluster API: as many requests as it has kinds, however many machines."""

    def __init__(self, known: _Known, cluster: Json, *, declared: bool) -> None:
        self._known = known
        self._client = known.client
        self._cluster = cluster
        self._declared = declared
        self._namespace, self._name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        self._labelled = f"{capi_names.CLUSTER_NAME}={capi_names.label_value(self._name)}"
        self._listed: dict[Target, dict[str, Json]] = {}

    async def look(self) -> Branch:
        spec = self._cluster.get("spec") or {}
        branches = await self._referred(self._cluster, spec.get("infrastructureRef"), spec.get("controlPlaneRef"))
        machines: dict[str, list[Branch]] = defaultdict(list)
        for machine in await self._all(MACHINE.target):
            deployment = machine["metadata"].get("labels", {}).get(capi_names.DEPLOYMENT_NAME, "")
            machines[deployment].append(await self._machine(machine))
        sets = await self._held_sets()
        checks = await self._all(MACHINE_HEALTH_CHECK.target)
        for one in await self._all(MACHINE_DEPLOYMENT.target):
            own = machines.pop(one["metadata"]["name"], [])
            branches.append(tree.branch(one, [*sets.pop(one["metadata"]["name"], []), *own], note=_count(one, own)))
        branches += [one for others in (*machines.values(), *sets.values()) for one in others]
        branches += [tree.branch(check) for check in checks if not tree.judge(check).well]
        return tree.branch(self._cluster, branches)

    async def _machine(self, machine: Json) -> Branch:
        spec = machine.get("spec") or {}
        found = await self._referred(
            machine, spec.get("infrastructureRef"), (spec.get("bootstrap") or {}).get("configRef")
        )
        version = (((machine.get("status") or {}).get("nodeInfo")) or {}).get("kubeletVersion") or ""
        return tree.branch(machine, [tree.part_of_machine(machine, one) for one in found], note=str(version))

    async def _held_sets(self) -> dict[str, list[Branch]]:
        """Return MachineSets that cannot go, by their MachineDeployment; all others are left out of the tree."""
        if not self._cluster["metadata"].get("deletionTimestamp"):
            return {}
        found: dict[str, list[Branch]] = defaultdict(list)
        for one in await self._all(MACHINE_SET.target):
            if (made := tree.branch(one)).judgement.trouble:
                found[one["metadata"].get("labels", {}).get(capi_names.DEPLOYMENT_NAME, "")].append(made)
        return found

    async def _referred(self, of: Json, *references: Json | None) -> list[Branch]:
        found = [await self._refer(of, one) for one in references if one]
        return [one for one in found if one is not None]

    async def _refer(self, of: Json, reference: Json) -> Branch | None:
        group, kind, name = (str(reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
        version = await self._known.version(group)
        found = await self._one(Target(version, plural(kind).lower()), name) if version else None
        if found is not None:
            return tree.branch(found)
        return tree.missing(kind, name, of, installed=bool(version), declared=self._declared)

    async def _one(self, target: Target, name: str) -> Json | None:
        """Return an object by name, even without the cluster's label: its creator need not have set the label."""
        if target not in self._listed:
            self._listed[target] = {one["metadata"]["name"]: one for one in await self._all(target)}
        return self._listed[target].get(name) or await _get(self._client, target, self._namespace, name)

    async def _all(self, target: Target) -> list[Json]:
        return await _listed(self._client, target, self._namespace, label_selector=self._labelled)


class _Ending:
    """Namespaces that are being deleted, each with the objects in it that another program's finalizer keeps."""

    def __init__(self, known: _Known, below: Branch | None) -> None:
        self._known = known
        self._seen = set() if below is None else {(one.kind, one.name) for _, one in tree.walk(below)}

    async def look(self, names: Sequence[str]) -> list[Branch]:
        found = []
        for name in names:
            namespace = await self._allowed(_get(self._known.client, NAMESPACES, "", name))
            if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
                obj = {"apiVersion": "v1", "kind": "Namespace", **namespace}
                found.append(tree.branch(obj, await self._kept(name, troubles.remaining(obj))))
        return found

    async def _kept(self, namespace: str, resources: Sequence[tuple[str, str]]) -> list[Branch]:
        found = []
        for resource, group in resources:
            version = await self._known.version(group)
            kind = await self._known.kind(version, resource)
            target = Target(version, resource)
            listed = await self._allowed(_listed(self._known.client, target, namespace)) if kind else None
            for one in listed or ():
                made = tree.branch({"kind": kind, **one})
                if made.judgement.trouble and (made.kind, made.name) not in self._seen:
                    found.append(made)
        return found

    @staticmethod
    async def _allowed(request: Awaitable[T]) -> T | None:
        """Return the result, or None if the user may not read it: tenants see only objects of their own clusters."""
        try:
            return await request
        except Forbidden:
            return None


def _count(deployment: Json, machines: Sequence[Branch]) -> str:
    return f"{len(machines)} of {(deployment.get('spec') or {}).get('replicas', 1)}"


async def _get(client: Client, target: Target, namespace: str, name: str) -> Json | None:
    try:
        found: Json = msgspec.json.decode(await client.get(target, namespace, name))
    except NotFound:
        return None
    return found


async def _listed(
    client: Client, target: Target, namespace: str, field_selector: str = "", *, label_selector: str = ""
) -> list[Json]:
    try:
        listing = await list_all(
            client, target, namespace, field_selector=field_selector, label_selector=label_selector
        )
    except NotFound:
        return []
    kinds = {"apiVersion": target.api_version}
    return [{**kinds, **msgspec.json.decode(value)} for value in listing.items]
