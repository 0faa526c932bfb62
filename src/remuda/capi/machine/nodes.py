"""Propagation from a Machine to its Node: labels, annotations and taints, as one patch of the Node.

Kubelet, cloud provider and users all write to the Node. So only what came from the Machine is ever removed, and three
annotations on the Node (the trackers) record what that was. A Node that is in its desired state gets no patch at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.capi import names
from remuda.capi.types import Cluster, Machine
from remuda.capi.types.shared import MachineTaint

Json = dict[str, Any]
Patterns = Sequence[re.Pattern[str]]


class NodeSync(NamedTuple):
    """Desired state of the Node, as far as the Machine determines it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    identity: Mapping[str, str]  # annotations that name the Machine of this Node
    taints: Sequence[MachineTaint]
    interruptible: bool
    outdated: bool


def desired(
    machine: Machine,
    cluster: Cluster,
    *,
    interruptible: bool = False,
    outdated: bool = False,
    more_labels: Patterns = (),
    more_annotations: Patterns = (),
) -> NodeSync:
    identity = {
        names.NODE_CLUSTER_NAME: machine.spec.cluster_name,
        names.NODE_CLUSTER_NAMESPACE: cluster.metadata.namespace,
        names.NODE_MACHINE: machine.metadata.name,
    }
    owner = machine.metadata.controller
    if owner is not None:
        identity |= {names.NODE_OWNER_KIND: owner.kind, names.NODE_OWNER_NAME: owner.name}
    return NodeSync(
        labels={key: value for key, value in machine.metadata.labels.items() if _is_node_label(key, more_labels)},
        annotations={
            key: value
            for key, value in machine.metadata.annotations.items()
            if _in_domain(key, names.MANAGED_NODE_DOMAIN) or _is_among(key, more_annotations)
        },
        identity=identity,
        taints=machine.spec.taints,
        interruptible=interruptible,
        outdated=outdated,
    )


def patch_for(node: Json, sync: NodeSync) -> Json:
    """Return the merge patch that updates the Node, bound to the version that was read; empty if it is up to date."""
    metadata = node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    changed: Json = {}
    new_labels = differences(labels, _labels(annotations, sync))
    new_annotations = differences(annotations, _annotations(annotations, sync))
    if new_labels:
        changed["labels"] = new_labels
    if new_annotations:
        changed["annotations"] = new_annotations
    patch: Json = {"metadata": changed} if changed else {}
    old_taints = (node.get("spec") or {}).get("taints") or []
    taints = _taints(old_taints, annotations.get(names.NODE_TAINTS_FROM_MACHINE), sync)
    if taints != old_taints:
        patch["spec"] = {"taints": taints or None}
    if patch:
        # A merge patch replaces the whole list of taints. The version makes it fail if another client has added one.
        patch.setdefault("metadata", {})["resourceVersion"] = metadata["resourceVersion"]
    return patch


# ---- labels and annotations --------------------------------------------------------------------------------------


def _is_node_label(key: str, more: Patterns) -> bool:
    return (
        key.split("/")[0] == names.NODE_ROLE_PREFIX
        or _in_domain(key, names.NODE_RESTRICTION_DOMAIN)
        or _in_domain(key, names.MANAGED_NODE_DOMAIN)
        or _is_among(key, more)
    )


def _in_domain(key: str, domain: str) -> bool:
    prefix = key.split("/")[0]
    return prefix == domain or prefix.endswith(f".{domain}")


def _is_among(key: str, patterns: Patterns) -> bool:
    return any(pattern.search(key) for pattern in patterns)


def _labels(trackers: Mapping[str, str], sync: NodeSync) -> dict[str, str | None]:
    wanted = with_removals(trackers.get(names.NODE_LABELS_FROM_MACHINE), sync.labels)
    return wanted | {names.INTERRUPTIBLE: ""} if sync.interruptible else wanted


def _annotations(trackers: Mapping[str, str], sync: NodeSync) -> dict[str, str | None]:
    always = [f"{taint.key}:{taint.effect}" for taint in sync.taints if taint.propagation == "Always"]
    return {
        **with_removals(trackers.get(names.NODE_ANNOTATIONS_FROM_MACHINE), sync.annotations),
        **sync.identity,
        names.NODE_LABELS_FROM_MACHINE: track(sync.labels),
        names.NODE_ANNOTATIONS_FROM_MACHINE: track(sync.annotations),
        names.NODE_TAINTS_FROM_MACHINE: track(always),
    }


def with_removals(tracker: str | None, wanted: Mapping[str, str]) -> dict[str, str | None]:
    dropped: dict[str, str | None] = dict.fromkeys(tracked(tracker) - wanted.keys())
    return dropped | dict(wanted)


def differences(present: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def track(keys: Mapping[str, str] | Sequence[str]) -> str:
    return ",".join(sorted(keys))


def tracked(text: str | None) -> set[str]:
    return {entry for entry in (text or "").split(",") if entry}


# ---- taints ------------------------------------------------------------------------------------------------------


def _taints(present: Sequence[Json], tracker: str | None, sync: NodeSync) -> list[Json]:
    always = {identity_of(taint): taint for taint in map(_as_json, _propagated(sync.taints, "Always"))}
    # Only a Node that was never synchronised has no tracker. On any other, a missing OnInitialization taint was
    # removed on purpose.
    first_time = tracker is None
    once = {identity_of(taint): taint for taint in map(_as_json, _propagated(sync.taints, "OnInitialization"))}
    wanted = always | (once if first_time else {})
    if sync.outdated:
        taint = {"key": names.OUTDATED_REVISION_TAINT, "effect": "PreferNoSchedule"}
        wanted[identity_of(taint)] = taint
    gone = tracked(tracker) - always.keys()
    # Both taints belong to Cluster API. The first ends with this patch; the second stays only if it is wanted above.
    gone |= {f"{names.UNINITIALIZED_TAINT}:NoSchedule", f"{names.OUTDATED_REVISION_TAINT}:PreferNoSchedule"}
    return merged_taints(present, wanted, gone)


def merged_taints(present: Sequence[Json], wanted: Mapping[str, Json], gone: Collection[str]) -> list[Json]:
    """Return the complete list, because a merge patch replaces lists: existing taints in the Node's order, then new
    ones. Taints are compared by key and effect."""
    kept = [_kept(taint, wanted) for taint in present if identity_of(taint) in wanted or identity_of(taint) not in gone]
    seen = {identity_of(taint) for taint in kept}
    return kept + [taint for identity, taint in wanted.items() if identity not in seen]


def _kept(taint: Json, wanted: Mapping[str, Json]) -> Json:
    """Return the taint, with the value that the Machine sets."""
    mine = wanted.get(identity_of(taint))
    return taint if mine is None or taint.get("value", "") == mine.get("value", "") else mine


def _propagated(taints: Sequence[MachineTaint], when: str) -> list[MachineTaint]:
    return [taint for taint in taints if taint.propagation == when]


def _as_json(taint: MachineTaint) -> Json:
    found = {"key": taint.key, "effect": taint.effect}
    return found | {"value": taint.value} if taint.value else found


def identity_of(taint: Json) -> str:
    return f"{taint['key']}:{taint['effect']}"
