"""Config file of a host: the user's settings, and over them the settings that its roles and its place require.

The file does not say which server the host joins, nor which host begins the cluster: the host decides that by a list
that may change without a restart (`distros/install-common.sh`). So the file does not depend on the other hosts.

A worker never has the token of servers. Its own token contains the fingerprint of the cluster's CA, so that the worker
joins no other cluster. A server's token must be the bare one: the first server makes it the password of all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost, S3Access
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.arguments import absence, wanted
from remuda.providers.controlplane.render.plan import File
from remuda.providers.shared import names
from remuda.providers.shared.distros.contract import listed, refusals

FILE_ARGUMENTS = (
    "audit-policy-file",
    "cloud-provider-config",
    "flannel-conf",
)  # a content may stand in place of a path
SECURE_PORTS = {"kube-controller-manager": "10257", "kube-scheduler": "10259"}

_EXTERNAL = "node-external-ip"
_ETCD_TAINT = "node-role.kubernetes.io/etcd:NoExecute"
_CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"
# A kubelet does not start with other labels of these domains.
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_OPEN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OPEN_LABELS = frozenset(
    f"{domain}/{name}"
    for domain, names in {
        "kubernetes.io": ("hostname", "arch", "os"),
        "beta.kubernetes.io": ("arch", "os", "instance-type"),
        "node.kubernetes.io": ("instance-type",),
        "topology.kubernetes.io": ("region", "zone"),
        "failure-domain.beta.kubernetes.io": ("region", "zone"),
    }.items()
    for name in names
)
SERVER_AUTHORITY = "server/tls/server-ca.crt"  # a key of Cluster.authorities


class Configuration(msgspec.Struct, frozen=True):
    values: dict[str, Any]
    files: list[File]  # what values name
    kept_back: list[str]


def configure(cluster: ClusterFacts, host: ObservedHost) -> Configuration:
    found = wanted(cluster, host)
    values, kept_back = dict(found.values), list(found.kept_back)
    place = layout.of(cluster)
    files: list[File] = []
    if place.data != cluster.distro.data_dir:
        values["data-dir"] = place.data
    else:
        values.pop("data-dir", None)
    if host.roles.etcd:
        values |= _snapshot_settings(cluster)
        files += _snapshot_files(cluster)
    if host.roles.server:
        values |= _roles(host)
    if host.roles.control_plane:
        for component in SECURE_PORTS:
            _serve_verifiably(values, place, component)
    values |= _token_settings(cluster, host)
    values["node-name"] = host.node_name
    _addresses(cluster, host, values)
    kept_back += _labels(cluster, host, values)
    _taints(cluster, host, values)
    if host.provider_id and not argument(values, "kubelet", "provider-id"):
        values["kubelet-arg"] = [*listed(values.get("kubelet-arg")), f"provider-id={host.provider_id}"]
    files += _file_arguments(cluster, place, values, kept_back)
    values["private-registry"] = place.registries
    known = cluster.distro.arguments(host.roles.server, cluster.version)
    for key in sorted(values.keys() - known.keys()):
        del values[key]
        kept_back.append(f"{key}: {absence(cluster.distro, cluster.version, key)}")
    return Configuration({key: value for key, value in values.items() if value not in (None, "", [])}, files, kept_back)


def argument(values: dict[str, Any], component: str, flag: str) -> str:
    """Return the value that `<component>-arg` sets a component's flag to; the last one counts."""
    pairs = (item.partition("=") for item in listed(values.get(f"{component}-arg")))
    return next((value for name, _, value in reversed(list(pairs)) if name.lstrip("-") == flag), "")


def _roles(host: ObservedHost) -> dict[str, Any]:
    if not host.roles.control_plane:
        return dict.fromkeys(("disable-apiserver", "disable-controller-manager", "disable-scheduler"), True)
    return {} if host.roles.etcd else {"disable-etcd": True}


def _serve_verifiably(values: dict[str, Any], place: layout.HostLayout, component: str) -> None:
    """Make a component serve a certificate that a probe can verify. By default it signs one for itself, for one year,
    and nobody renews it: a probe that trusts it fails a year later (rancher/rancher#41125). It serves the API server's
    certificate instead, which the cluster's CA has signed and the distribution renews. A user's own choice counts."""
    added = []
    if not argument(values, component, "tls-cert-file") and not argument(values, component, "cert-dir"):
        pair = f"{place.server}/tls/serving-kube-apiserver"
        added += [f"tls-cert-file={pair}.crt", f"tls-private-key-file={pair}.key"]
    if not argument(values, component, "secure-port"):
        added.append(f"secure-port={SECURE_PORTS[component]}")
    values[f"{component}-arg"] = [*listed(values.get(f"{component}-arg")), *added]


# ---- addresses ---------------------------------------------------------------------------------------------------


def _addresses(cluster: ClusterFacts, host: ObservedHost, values: dict[str, Any]) -> None:
    ipv6_first = ":" in next(iter(listed(values.get("service-cidr"))), "").partition(",")[0]
    inside = sorted(_usable(host.internal_addresses), key=lambda address: (":" in address) != ipv6_first)
    outside = [address for address in _usable(host.external_addresses) if address not in inside]
    values.setdefault("node-ip", layout.one_of_each_family(inside))
    if inside and outside and _takes_external_addresses(cluster, values):
        values.setdefault(_EXTERNAL, layout.one_of_each_family(outside))
        if host.roles.server:
            values.setdefault("advertise-address", inside[0])
    if host.roles.server:
        endpoint = [cluster.endpoint.host] if cluster.endpoint is not None and cluster.endpoint.host else []
        values["tls-san"] = list(dict.fromkeys([*listed(values.get("tls-san")), *endpoint, *inside, *outside]))


def _takes_external_addresses(cluster: ClusterFacts, values: dict[str, Any]) -> bool:
    """RKE2 does not start with them beside a cloud provider, which finds them out itself."""
    found = refusals(cluster.distro.contract, cluster.version, values | {_EXTERNAL: "0.0.0.0"})  # noqa: S104
    return all(refusal.key != _EXTERNAL for refusal in found)


def _usable(addresses: Sequence[str]) -> list[str]:
    found = []
    for address in addresses:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            continue
        if not parsed.is_link_local and not parsed.is_unspecified:
            found.append(str(parsed))
    return list(dict.fromkeys(found))


# ---- labels and taints -------------------------------------------------------------------------------------------


def _labels(cluster: ClusterFacts, host: ObservedHost, values: dict[str, Any]) -> list[str]:
    refused = sorted(name for name in host.node_labels if not _may_be_label(name))
    ours = {
        names.NODE_MACHINE: host.uid,
        "plan.cattle.io/cluster-group": "cluster.x-k8s.io",
        "plan.cattle.io/cluster-kind": "Cluster",
        "plan.cattle.io/cluster-name": cluster.spec.cluster_name or cluster.name,
        "plan.cattle.io/machine-group": "cluster.x-k8s.io",
        "plan.cattle.io/machine-kind": "Machine",
        "plan.cattle.io/machine-name": host.name,
    }
    labels = {name: value for name, value in host.node_labels.items() if name not in refused} | ours
    written = {f"{name}={value}" for name, value in labels.items()}
    values["node-label"] = sorted(written | set(listed(values.get("node-label"))))
    return [f"label {name}: a kubelet does not start with a label of that domain" for name in refused]


def _may_be_label(name: str) -> bool:
    domain, slash, _ = name.rpartition("/")
    if not slash or name in _OPEN_LABELS or _is_below(domain, _OPEN_DOMAINS):
        return True
    return not _is_below(domain, _RESERVED_DOMAINS)


def _is_below(domain: str, parents: Sequence[str]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _taints(cluster: ClusterFacts, host: ObservedHost, values: dict[str, Any]) -> None:
    roles, found = host.roles, {str(taint) for taint in host.node_taints}
    if not roles.worker:
        if roles.control_plane:
            found.add(_CONTROL_PLANE_TAINT)
        if roles.etcd and (not roles.control_plane or cluster.distro.taints_etcd_beside_control_plane):
            found.add(_ETCD_TAINT)
    values["node-taint"] = sorted(found | set(listed(values.get("node-taint"))))


# ---- values that are files ---------------------------------------------------------------------------------------


def _file_arguments(
    cluster: ClusterFacts, place: layout.HostLayout, values: dict[str, Any], kept_back: list[str]
) -> list[File]:
    files = []
    for name in FILE_ARGUMENTS:
        value = values.get(name)
        if not isinstance(value, str) or (value.startswith("/") and "\n" not in value):
            continue
        content = cluster.config_files.get(value, value)
        if content.startswith("secret://"):
            del values[name]
            kept_back.append(f"{name}: {content} is not known")
            continue
        values[name] = place.config_file(name)
        files.append(File(path=values[name], content=content.encode()))
    return files


# ---- tokens -------------------------------------------------------------------------------------------------------


def _token_settings(cluster: ClusterFacts, host: ObservedHost) -> dict[str, Any]:
    if host.roles.server:
        return {"token": cluster.tokens.server, "agent-token": cluster.tokens.agent}
    authority = cluster.authorities.get(SERVER_AUTHORITY, b"")
    pinned = f"K10{fingerprint(authority)}::node:{cluster.tokens.agent}" if authority else cluster.tokens.agent
    return {"token": pinned}


@lru_cache(maxsize=256)
def fingerprint(authority: bytes) -> str:
    """Return the fingerprint that distributions compute: of the file if it is one certificate, else of its root."""
    certificates = x509.load_pem_x509_certificates(authority)
    if len(certificates) == 1:
        return hashlib.sha256(authority).hexdigest()
    by_subject = {certificate.subject: certificate for certificate in reversed(certificates)}
    root = certificates[0]
    for _ in certificates:
        root = by_subject.get(root.issuer, root)
    return hashlib.sha256(root.public_bytes(Encoding.DER)).hexdigest()


# ---- snapshots ----------------------------------------------------------------------------------------------------


def _snapshot_settings(cluster: ClusterFacts) -> dict[str, Any]:
    found: dict[str, Any] = {}
    etcd = cluster.spec.etcd
    if etcd is not None:
        if etcd.disable_snapshots:
            found["etcd-disable-snapshots"] = True
        if etcd.snapshot_retention:
            found["etcd-snapshot-retention"] = etcd.snapshot_retention
        if etcd.snapshot_schedule_cron:
            found["etcd-snapshot-schedule-cron"] = etcd.snapshot_schedule_cron
    if cluster.s3 is not None and _is_s3_enabled(cluster.s3):
        found |= _s3_settings(cluster, cluster.s3)
    return found


def _snapshot_files(cluster: ClusterFacts) -> list[File]:
    """The authority of the service, unless it is a file of the host already."""
    if cluster.s3 is None or not _is_s3_enabled(cluster.s3):
        return []
    content, path = _s3_authority(cluster, cluster.s3)
    return [File(path=path, content=content)] if content else []


def _is_s3_enabled(access: S3Access) -> bool:
    s3 = access.s3
    return any((s3.bucket, s3.endpoint, s3.folder, s3.region, s3.cloud_credential_name))


def _s3_settings(cluster: ClusterFacts, access: S3Access) -> dict[str, Any]:
    s3 = access.s3
    found = {
        "etcd-s3": True,
        "etcd-s3-bucket": s3.bucket,
        "etcd-s3-access-key": access.access_key,
        "etcd-s3-secret-key": access.secret_key,
        "etcd-s3-region": s3.region,
        "etcd-s3-folder": s3.folder,
        "etcd-s3-endpoint": s3.endpoint,
        "etcd-s3-endpoint-ca": _s3_authority(cluster, access)[1],
        "etcd-s3-skip-ssl-verify": s3.skip_ssl_verify or None,
        "etcd-s3-retention": s3.retention,
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def _s3_authority(cluster: ClusterFacts, access: S3Access) -> tuple[bytes, str]:
    """Return the content of the endpoint's CA file, if it is to be written, and the path of that file."""
    given = access.s3.endpoint_ca
    if not given or (given.endswith(".crt") and "\n" not in given):
        return b"", given
    content = given.encode()
    if "-----BEGIN" not in given:
        try:
            content = base64.b64decode("".join(given.split()), validate=True)
        except (binascii.Error, ValueError):
            return b"", ""  # refused at admission
    name = hashlib.md5(given.encode(), usedforsecurity=False).hexdigest()[:5]
    return content, layout.of(cluster).config_file(f"s3-endpoint-ca-{name}.crt")
