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
    below = None if cluster is None else await _of_cluster(client, cluster)
    if declared is not None:
        version = str((declared.get("spec") or {}).get("kubernetesVersion") or "")
        return tree.branch(declared, [] if below is None else [below], note=version)
    if below is None:
        raise NoSuchCluster(f"there is no cluster {namespace}/{name}")
    return below


async def _of_cluster(client: Client, cluster: Json) -> Branch:
    namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
    spec = cluster.get("spec") or {}
    of = f"Cluster {name}"
    branches = [
        await _referred(client, namespace, reference, of)
        for reference in (spec.get("infrastructureRef"), spec.get("controlPlaneRef"))
        if reference
    ]
    selector = f"{capi_names.CLUSTER_NAME}={capi_names.label_value(name)}"
    machines: dict[str, list[Branch]] = defaultdict(list)
    for machine in await _listed(client, MACHINE.target, namespace, label_selector=selector):
        deployment = machine["metadata"].get("labels", {}).get(capi_names.DEPLOYMENT_NAME, "")
        machines[deployment].append(await _of_machine(client, machine))
    checks = await _listed(client, MACHINE_HEALTH_CHECK.target, namespace, label_selector=selector)
    for deployment in await _listed(client, MACHINE_DEPLOYMENT.target, namespace, label_selector=selector):
        own = machines.pop(deployment["metadata"]["name"], [])
        branches.append(tree.branch(deployment, own, note=_count(deployment, own)))
    branches += [machine for others in machines.values() for machine in others]
    branches += [tree.branch(check) for check in checks if not tree.judge(check).well]
    return tree.branch(cluster, branches)


async def _of_machine(client: Client, machine: Json) -> Branch:
    spec, metadata = machine.get("spec") or {}, machine["metadata"]
    of = f"Machine {metadata['name']}"
    references = (spec.get("infrastructureRef"), (spec.get("bootstrap") or {}).get("configRef"))
    found = [await _referred(client, metadata["namespace"], one, of) for one in references if one]
    version = (((machine.get("status") or {}).get("nodeInfo")) or {}).get("kubeletVersion") or ""
    return tree.branch(machine, found, note=str(version))


async def _referred(client: Client, namespace: str, reference: Json, of: str) -> Branch:
    """Whatever its version is: the server says which it likes best."""
    group, kind, name = (str(reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
    try:
        preferred = msgspec.json.decode(await client.raw_get(f"/apis/{group}"))["preferredVersion"]["groupVersion"]
    except StatusError as error:
        if error.code != _NOT_FOUND:
            raise
        return tree.missing(kind, name, namespace, of)
    found = await _get(client, Target(preferred, plural(kind).lower()), namespace, name)
    return tree.missing(kind, name, namespace, of) if found is None else tree.branch(found)


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
