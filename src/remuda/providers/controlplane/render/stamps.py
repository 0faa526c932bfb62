"""Restart stamps: one checksum over all that requires a restart, and one over all that requires a restart with a drain.

The list of servers to join by, certificates and manifests are in neither.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from remuda.providers.controlplane.planner.observation import Cluster
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.instructions import source, user_environment
from remuda.providers.controlplane.render.plan import File, compact

RESTART_STAMP = "RESTART_STAMP"
DRAIN_HASH = "DRAIN_HASH"

# What a kubelet reads only when it registers its Node: Nodes that are there are changed through the API (`nodes`).
_ONCE = ("node-label", "node-taint")
# Settings that no Pod can notice: the service is restarted for them, and Pods stay.
_UNNOTICED = ("tls-san", "etcd-disable-snapshots", "etcd-snapshot-", "etcd-s3")


def stamps(cluster: Cluster, files: Sequence[File]) -> dict[str, str]:
    settings = layout.of(cluster).settings
    lasting = [file for file in files if not file.dynamic]

    def without(keys: tuple[str, ...]) -> list[File]:
        return [_without(file, keys) if file.path == settings else file for file in lasting]

    return {
        RESTART_STAMP: _stamp(cluster, without(_ONCE)),
        DRAIN_HASH: _stamp(cluster, without(_ONCE + _UNNOTICED)),
    }


def _stamp(cluster: Cluster, files: Sequence[File]) -> str:
    parts: list[Any] = [
        cluster.spec.provision_generation,
        source(cluster),
        sorted(user_environment(cluster).items()),
        [[file.path, file.permissions, hashlib.sha256(file.content).hexdigest()] for file in files],
        cluster.config_generation,
    ]
    return hashlib.sha256(compact(parts)).hexdigest()


def _without(file: File, keys: tuple[str, ...]) -> File:
    values = json.loads(file.content)
    kept = {key: value for key, value in values.items() if not key.startswith(keys)}
    return File(path=file.path, content=compact(kept), permissions=file.permissions)
