"""Files of a host, in the order they are written, and deletions of those that it no longer needs.

Manifests are files that the distribution watches, so none of them causes a restart. They are written even when they are
empty: deleting a file would leave behind the objects it created.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources
from typing import Any

import msgspec

from remuda.providers.controlplane.planner.observation import ClusterFacts, ExtraFile, ObservedHost, RegistryAccess
from remuda.providers.controlplane.render import layout, tunnel
from remuda.providers.controlplane.render.config import SERVER_AUTHORITY, Configuration
from remuda.providers.controlplane.render.plan import DELETE, File, Plan, compact, indented
from remuda.providers.shared import distros
from remuda.providers.shared.types.configuration import RegistryConfig

INIT = "init"  # content of the list of servers on the host that initializes the cluster
# Fields of the spec that a restored snapshot may bring back. Users' own maps are kept verbatim.
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


def files(
    cluster: ClusterFacts, host: ObservedHost, configuration: Configuration, servers: Sequence[str]
) -> list[File]:
    place = layout.of(cluster)
    found = [
        *_registry_files(cluster),
        *configuration.files,
        *_extra(cluster, host),
        File(path=place.settings, content=indented(configuration.values)),
        *_authorities(cluster, host, place),
        File(path=place.servers, content="".join(f"{url}\n" for url in servers).encode(), dynamic=True, minor=True),
        *_manifest_files(cluster, host),
        File(path=place.tool, content=_tool(), dynamic=True, minor=True),
        *tunnel.files(cluster, host),
        *_manager(cluster, place),
    ]
    return list({file.path: file for file in found}.values())  # of two files at one path, the last one wins


def vanished(before: Plan, now: Sequence[File], place: layout.HostLayout) -> list[File]:
    """Return deletions of the files that the previous plan wrote or deleted and the new one lacks. Files below the
    server's own directory and the CA directory are never deleted: certificates and manifests outlive their delivery."""
    present = {file.path for file in now}
    lasting = (f"{place.server}/", f"{place.authorities}/")
    gone = (file for file in before.files if file.path not in present and not file.path.startswith(lasting))
    return [
        File(path=file.path, action=DELETE, dynamic=file.dynamic, minor=file.minor)
        for file in sorted(gone, key=lambda file: file.path)
    ]


def _extra(cluster: ClusterFacts, host: ObservedHost) -> list[File]:
    chosen = (entry for entry in cluster.files if entry.selector is None or entry.selector.matches(host.labels))
    return [_written(file) for entry in chosen for file in entry.files]


def _written(file: ExtraFile) -> File:
    digits = file.permissions or "600"
    return File(path=file.path, content=file.content, permissions=digits.rjust(4, "0"), dynamic=file.dynamic)


def _authorities(cluster: ClusterFacts, host: ObservedHost, place: layout.HostLayout) -> list[File]:
    """Servers get the cluster's authorities before their first start; everybody else only whom to trust.

    They are staged: an agent resets owner and mode of the files it writes, and RKE2 gives some of these to user etcd.
    """
    trusted = File(
        path=place.authority, content=cluster.authorities.get(SERVER_AUTHORITY, b""), dynamic=True, minor=True
    )
    if not host.roles.server:
        return [trusted]
    return [
        trusted,
        *(
            File(path=f"{place.authorities}/{path}", content=content, dynamic=True, minor=True)
            for path, content in sorted(cluster.authorities.items())
        ),
    ]


def _manager(cluster: ClusterFacts, place: layout.HostLayout) -> list[File]:
    """Return a file with all CAs of the manager, while there are several: hosts that registered with one CA stay
    connected when another CA signs the manager's certificate."""
    at = cluster.tunnel
    if at is None or at.authority.count(b"BEGIN CERTIFICATE") < 2:
        return []
    known = {"certificate-authority-data": base64.b64encode(at.authority).decode(), "server": at.manager}
    return [File(path=place.manager, content=indented(known), dynamic=True, minor=True)]


@cache
def _tool() -> bytes:
    return resources(distros).joinpath("host_tool.py").read_bytes()


# ---- registries ---------------------------------------------------------------------------------------------------


def _registry_files(cluster: ClusterFacts) -> list[File]:
    """Return the registry files. The distribution's file exists even if empty, because it is read only at a start."""
    place = layout.of(cluster)
    content, certificates = _registry_config(cluster, place)
    found = [File(path=place.registries, content=indented(content) if content else b"")]
    if content:
        found.insert(0, File(path=layout.AGENT_REGISTRIES, content=indented(content), dynamic=True))
    return [*found[:-1], *certificates, found[-1]]


def _registry_config(cluster: ClusterFacts, place: layout.HostLayout) -> tuple[dict[str, Any], list[File]]:
    wanted = cluster.spec.registries
    if wanted is None or not (wanted.mirrors or wanted.configs):
        return {}, []
    certificates: list[File] = []
    configs = {}
    for host, config in sorted(wanted.configs.items()):
        access = cluster.registries.get(host, RegistryAccess())
        folder = f"{place.data}/etc/tls/registries/{host.replace('/', '_')}"
        tls = _tls(folder, config, access, certificates)
        configs[host] = {name: part for name, part in (("auth", _auth(access)), ("tls", tls)) if part}
    mirrors = {
        name: {key: value for key, value in (("endpoint", list(m.endpoint)), ("rewrite", dict(m.rewrite))) if value}
        for name, m in wanted.mirrors.items()
    }
    return {name: part for name, part in (("mirrors", mirrors), ("configs", configs)) if part}, certificates


def _auth(access: RegistryAccess) -> dict[str, str]:
    found = {
        "username": access.username,
        "password": access.password,
        "auth": access.auth,
        "identity_token": access.identity_token,
    }
    return {key: value for key, value in found.items() if value}


def _tls(folder: str, config: RegistryConfig, access: RegistryAccess, certificates: list[File]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    parts = (
        ("cert_file", "tls.crt", access.certificate),
        ("key_file", "tls.key", access.key),
        ("ca_file", "ca.crt", access.authority or _bundle(config)),
    )
    for key, name, content in parts:
        if content:
            found[key] = f"{folder}/{name}"
            certificates.append(File(path=found[key], content=content.encode()))
    if config.insecure_skip_verify:
        found["insecure_skip_verify"] = True
    return found


def _bundle(config: RegistryConfig) -> str:
    try:
        return base64.b64decode(config.ca_bundle, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""  # refused at admission


# ---- manifests ----------------------------------------------------------------------------------------------------


def _manifest_files(cluster: ClusterFacts, host: ObservedHost) -> list[File]:
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


def _charts(cluster: ClusterFacts) -> bytes:
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


def _with_cluster(cluster: ClusterFacts, values: Any) -> dict[str, Any]:
    """Add the cluster's id to chart values, as upstream does."""
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


def _metadata(cluster: ClusterFacts, name: str) -> bytes:
    """Return the metadata that the distribution copies into each snapshot: the desired state of the cluster at that
    time.
    """
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
    """Return gzip without compression: compressors differ in their output for the same input, and a plan must always
    have the same bytes."""
    blocks = [content[start : start + 0xFFFF] for start in range(0, len(content), 0xFFFF)] or [b""]
    body = b"".join(
        struct.pack("<BHH", index == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for index, block in enumerate(blocks)
    )
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + body + struct.pack("<II", zlib.crc32(content), len(content))
