"""Manifests that servers apply to their cluster: files that the distribution watches, so none of them causes a restart.

The files are written even when they are empty: deleting a file would leave behind the objects it created.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import msgspec

from remuda.providers.controlplane.planner.observation import Cluster, Host
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.plan import File, compact

# Of the spec: what a restored snapshot may bring back. Maps of the user's own are kept to the letter.
_USERS_MAPS = ("chartValues", "machineGlobalConfig", "machineSelectorConfig")
_REMEMBERED = (
    *_USERS_MAPS,
    "additionalManifest",
    "dataDirectories",
    "etcd",
    "machineSelectorFiles",
    "networking",
    "registries",
    "upgradeStrategy",
)


def files(cluster: Cluster, host: Host) -> list[File]:
    folder = layout.of(cluster).manifests
    found = []
    if host.roles.control_plane:
        name = f"{cluster.distro.name}-etcd-snapshot-extra-metadata"
        found += [
            File(path=f"{folder}/{name}.yaml", content=_metadata(cluster, name), dynamic=True, minor=True),
            File(path=f"{folder}/addons.yaml", content=cluster.spec.additional_manifest.encode(), dynamic=True),
        ]
    if host.roles.server:
        found.append(File(path=f"{folder}/managed-chart-config.yaml", content=_charts(cluster), dynamic=True))
    return found


def _charts(cluster: Cluster) -> bytes:
    return b"".join(
        compact(
            {
                "apiVersion": "helm.cattle.io/v1",
                "kind": "HelmChartConfig",
                "metadata": {"name": chart, "namespace": "kube-system"},
                "spec": {"valuesContent": compact(_with_cluster(cluster, values)).decode()},
            }
        )
        + b"\n---\n"
        for chart, values in sorted(cluster.spec.chart_values.items())
    )


def _with_cluster(cluster: Cluster, values: Any) -> dict[str, Any]:
    """Charts are told which cluster they are in, as upstream tells them."""
    known = dict(values) if isinstance(values, dict) else {}
    if cluster.spec.management_cluster_name:
        whole = _part(known, "global")
        known["global"] = whole | {
            "cattle": _part(whole, "cattle") | {"clusterId": cluster.spec.management_cluster_name}
        }
    return known


def _part(values: dict[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _metadata(cluster: Cluster, name: str) -> bytes:
    """The distribution copies it into each snapshot: what the cluster was to be when that was taken."""
    spec = msgspec.to_builtins(cluster.spec)
    kept = {key: spec[key] if key in _USERS_MAPS else _without_nothing(spec[key]) for key in _REMEMBERED if key in spec}
    remembered = {
        "kubernetesVersion": cluster.spec.kubernetes_version,
        "rkeConfig": {key: value for key, value in kept.items() if value},
    }
    return compact(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "kube-system"},
            "data": {"provisioning-cluster-spec": base64.b64encode(stored_gzip(compact(remembered))).decode()},
        }
    )


def _without_nothing(value: Any) -> Any:
    """Remove empty values: an unset field and one explicitly set to nothing mean the same."""
    if isinstance(value, dict):
        parts = {key: _without_nothing(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, "", [], {})}
    return [_without_nothing(part) for part in value] if isinstance(value, list | tuple) else value


def stored_gzip(content: bytes) -> bytes:
    """gzip without compression: what compressors make of the same bytes differs from one to the next, and plans must
    not."""
    blocks = [content[start : start + 0xFFFF] for start in range(0, len(content), 0xFFFF)] or [b""]
    body = b"".join(
        struct.pack("<BHH", index == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for index, block in enumerate(blocks)
    )
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + body + struct.pack("<II", zlib.crc32(content), len(content))
