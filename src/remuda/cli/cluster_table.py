"""Table of `remuda get clusters`: one line per cluster with its status word, machines and reason.

The words come from `provisioning.cluster_summary`. Three lists give all of it, however many clusters there are.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE
from remuda.cli.tree_text import age
from remuda.kube import clock
from remuda.kube.client import Target, list_all
from remuda.kube.errors import Forbidden, NotFound, StatusError
from remuda.kube.objects import Key
from remuda.provisioning.cluster_summary import ClusterSummary, summarize
from remuda.provisioning.types import CLUSTER

if TYPE_CHECKING:
    from remuda.kube.http import HttpClient

Json = dict[str, Any]

HEADS = ("NAME", "STATUS", "MACHINES", "VERSION", "DRIVER", "AGE", "REASON")
WIDE_HEADS = (*HEADS[:-1], "ID", HEADS[-1])
COLOURS: Mapping[str, str] = {
    "Ready": "green",
    "Creating": "yellow",
    "Updating": "yellow",
    "Degraded": "red",
    "Stuck": "red",
    "Paused": "yellow",
    "Deleting": "magenta",
}
_LEAST_INTERVAL = 1.0  # seconds between two looks of a watch
_RETRY_SECONDS = 1.0  # after a watch has ended
_KINDS = (CLUSTER.target, CAPI_CLUSTER.target, MACHINE.target)


class Summaries(msgspec.Struct, frozen=True):
    declared: Sequence[ClusterSummary]
    others: Sequence[ClusterSummary]  # of Cluster API, without a declaration


async def load(client: HttpClient, namespace: str, labels: str = "", names: Sequence[str] = ()) -> Summaries:
    """Return the clusters of a namespace, or of all. `labels`: a selector of the declared Cluster, or of the other."""
    declared = await _listed(client, CLUSTER.target, namespace, labels)
    chosen = await _listed(client, CAPI_CLUSTER.target, namespace, labels)
    clusters = await _listed(client, CAPI_CLUSTER.target, namespace) if labels else chosen
    machines = await _machines(client, namespace)
    found = [
        summarize(one, clusters.get(key), None if machines is None else machines[_labelled(key)])
        for key, one in declared.items()
        if not names or key.name in names
    ]
    known = await _listed(client, CLUSTER.target, namespace) if labels else declared
    others = [
        summarize(None, one, None if machines is None else machines[_labelled(key)])
        for key, one in chosen.items()
        if key not in known and (not names or key.name in names)
    ]
    return Summaries(found, others)


def _labelled(key: Key) -> Key:
    return Key(key.namespace, capi_names.label_value(key.name))


async def _machines(client: HttpClient, namespace: str) -> Mapping[Key, list[Json]] | None:
    """Return the Machines by the label of their cluster; None if the user may not list them."""
    found: dict[Key, list[Json]] = defaultdict(list)
    try:
        listed = await _listed(client, MACHINE.target, namespace)
    except Forbidden:
        return None
    for one in listed.values():
        metadata = one["metadata"]
        label = (metadata.get("labels") or {}).get(capi_names.CLUSTER_NAME, "")
        found[Key(metadata["namespace"], label)].append(one)
    return found


async def _listed(client: HttpClient, target: Target, namespace: str, labels: str = "") -> dict[Key, Json]:
    try:
        listing = await list_all(client, target, namespace, label_selector=labels)
    except NotFound:  # a server without that kind
        return {}
    objects = [{"apiVersion": target.api_version, **msgspec.json.decode(value)} for value in listing.items]
    return {Key(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in objects}


def heads(*, wide: bool, namespaces: bool) -> list[str]:
    return ["NAMESPACE"] * namespaces + list(WIDE_HEADS if wide else HEADS)


def row(one: ClusterSummary, *, wide: bool, namespaces: bool, now: float | None = None) -> list[str]:
    moment = clock.time() if now is None else now
    ready = "?" if one.ready_machines is None else str(one.ready_machines)
    cells = [one.name, one.status, f"{ready}/{one.machines}", one.version, one.driver, age(one.created, moment)]
    return [one.namespace] * namespaces + cells + [one.id] * wide + [one.reason]


async def changes(
    client: HttpClient, namespace: str, labels: str, names: Sequence[str], seen: Summaries
) -> AsyncGenerator[ClusterSummary, None]:
    """Yield each summary that differs from the one before; those of deleted clusters are not repeated."""
    changed = asyncio.Event()
    known = {(one.namespace, one.name): one for one in (*seen.declared, *seen.others)}
    tasks = [asyncio.create_task(_watch(client, target, namespace, changed)) for target in _KINDS]
    try:
        while True:
            await changed.wait()
            changed.clear()
            with suppress(StatusError):
                news = await load(client, namespace, labels, names)
                current = {(one.namespace, one.name): one for one in (*news.declared, *news.others)}
                for key, one in current.items():
                    if known.get(key) != one:
                        yield one
                known = current
            await asyncio.sleep(_LEAST_INTERVAL)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(client: HttpClient, target: Target, namespace: str, changed: asyncio.Event) -> None:
    while True:
        with suppress(StatusError):
            async with aclosing(client.watch(target, namespace)) as stream:
                async for change in stream:
                    if change.type != "BOOKMARK":
                        changed.set()
        await asyncio.sleep(_RETRY_SECONDS)
        changed.set()  # changes between two watches are not reported
