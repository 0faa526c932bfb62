"""Rules for version changes: which version may follow which.

The rules compare with the version that nodes run, not with the one requested last: a user who has requested a version
that does not exist, or whose upgrade is half done, can request another one (a wrong version must not wedge a cluster).
So a downgrade is one only if a node already runs something newer; and a minor version is skipped only if a server would
skip it. `running` looks the versions up for admission; everything else is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import MACHINE
from remuda.kube.admission import Review, Unseen
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.providers.shared import names
from remuda.providers.shared.distros import BadVersion, Version, parse_version

# The minors of Kubernetes 1 that are known to have been released, by distribution: first and last.
KNOWN_MINORS: Mapping[str, tuple[int, int]] = {"k3s": (25, 37), "rke2": (25, 37), "nano": (25, 37)}

_KUBELETS_BEHIND = 3  # minors that a kubelet may be older than the API server


class RunningNode(msgspec.Struct, frozen=True, kw_only=True):
    """Node, with the known facts about its version."""

    machine: str
    version: str  # of its kubelet: v1.36.4+k3s1
    server: bool


def read(text: str) -> Version | None:
    """None: it is none."""
    try:
        return parse_version(text)
    except BadVersion:
        return None


def complaints(text: str, path: str) -> list[FieldError]:
    if not text:
        return [required(path, "the distribution and its version, as in v1.36.4+k3s1")]
    try:
        parse_version(text)
    except BadVersion as error:
        return [invalid(path, text, str(error))]
    return []


def warnings(text: str, path: str) -> list[str]:
    version = read(text)
    if version is None:
        return []
    first, last = KNOWN_MINORS[version.distro]
    if version.major == 1 and first <= version.minor <= last:
        return []
    return [
        f"{path}: {text} is not a release that this manager knows (v1.{first} to v1.{last}); "
        "if it does not exist, its installation will fail"
    ]


def transitions(old: str, new: str, running: Sequence[RunningNode], path: str) -> list[FieldError]:
    """Return the errors of a version change. If no server is known, the previously requested version counts
    as running.
    """
    before, after = read(old), read(new)
    if before is None or after is None or old == new:
        return []
    if before.distro != after.distro:
        return [forbidden(path, f"cannot change the distribution of a cluster from {before.distro} to {after.distro}")]
    nodes = [(node, version) for node in running if (version := read(node.version)) is not None]
    if not any(node.server for node, _ in nodes):
        nodes.append((RunningNode(machine="", version=old, server=True), before))
    return [*_backwards(nodes, after, path), *_leaps(nodes, after, path)]


def _backwards(nodes: Sequence[tuple[RunningNode, Version]], after: Version, path: str) -> list[FieldError]:
    newer = [node for node, version in nodes if version > after]
    if not newer:
        return []
    why = f"is a downgrade: {_who(newer)}, and an older version cannot read the data of a newer one"
    return [invalid(path, after.text, f"{why}; restore a snapshot instead")]


def _leaps(nodes: Sequence[tuple[RunningNode, Version]], after: Version, path: str) -> list[FieldError]:
    left_behind = [
        node
        for node, version in nodes
        if (version.major, version.minor + (1 if node.server else _KUBELETS_BEHIND)) < (after.major, after.minor)
    ]
    if not left_behind:
        return []
    lowest = min(version for node, version in nodes if node in left_behind)
    why = f"skips a minor version: {_who(left_behind)}; upgrade to v{lowest.major}.{lowest.minor + 1} first"
    return [invalid(path, after.text, why)]


def _who(nodes: Sequence[RunningNode]) -> str:
    said = [
        f"{f'Machine {node.machine} runs' if node.machine else 'the cluster is of'} {node.version}"
        for node in nodes[:3]
    ]
    more = f" (and {len(nodes) - 3} more)" if len(nodes) > 3 else ""
    return ", ".join(said) + more


# ---- versions that nodes run --------------------------------------------------------------------------------------


def running(review: Review, cluster: str) -> Sequence[RunningNode]:
    """Return the versions that the cluster's nodes are known to run."""
    labels = {capi_names.CLUSTER_NAME: cluster}
    try:
        machines = review.select(MACHINE.api_version, MACHINE.plural, review.namespace, labels)
    except Unseen:
        return []
    return [found for machine in machines if (found := running_on(machine)) is not None]


def running_on(machine: dict[str, Any]) -> RunningNode | None:
    """Return the version that the Machine's node runs; None if nothing is known of its node yet."""
    version = ((machine.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion")
    if not version:
        return None
    metadata = machine["metadata"]
    labels = metadata.get("labels") or {}
    server = any(labels.get(role) == "true" for role in (names.ETCD_ROLE, names.CONTROL_PLANE_ROLE))
    return RunningNode(machine=metadata["name"], version=version, server=server)
