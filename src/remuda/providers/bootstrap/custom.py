"""Hosts that register themselves: the description they send, and the objects created from it. Pure.

A host is identified by its id (`X-Cattle-Id`), which never changes; its objects are all called `custom-<digest of the
id>`. The description is validated here, before any object is created: with the Cluster's registration token a host may
choose its roles, but no label that controllers read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import names as kube_names
from remuda.kube.objects import OwnerReference
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP

PREFIX = "x-cattle-"
DATA = "data"  # key of a request Secret: the headers as JSON, by their names without the prefix
REFUSED = "remuda.dev/refused"  # annotation of a request: why nothing is made of it

_ROLES = {
    "role-etcd": names.ETCD_ROLE,
    "role-control-plane": names.CONTROL_PLANE_ROLE,
    "role-worker": names.WORKER_ROLE,
}
_HEADERS = ("id", *_ROLES, "node-name", "address", "internal-address", "labels", "taints")
_LONGEST_VALUE = 4096
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVED = ("cattle.io", "cluster.x-k8s.io", "remuda.dev")
_ALLOWED = (names.OS,)

Json = dict[str, Any]


class BadRequest(ValueError):
    """Invalid description that a host has sent of itself. The text is for the reader of the host's log."""


class HostDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Validated description that a host has sent of itself."""

    id: str
    roles: Sequence[str] = ()  # labels of the requested roles
    node_name: str = ""
    address: str = ""
    internal_address: str = ""
    labels: Mapping[str, str] = {}
    taints: str = ""

    @property
    def name(self) -> str:
        return machine_name(self.id)


def machine_name(id: str) -> str:
    return f"custom-{digest(id)}"


def digest(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:12]


def provider_id(name: str) -> str:
    return f"custom://{name.removeprefix('custom-')}"


def machine_id(headers: Mapping[str, str]) -> str:
    """Return the id of any host, created by us or not. Raises BadRequest."""
    found = headers.get(f"{PREFIX}id", "").strip()
    if not found:
        raise BadRequest("the header X-Cattle-Id is missing: it identifies the host")
    if kube_names.label_value(found):
        raise BadRequest("X-Cattle-Id must be at most 63 letters, digits, '-', '_' or '.'")
    return found


def collect(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """The headers of a request, as a request Secret holds them. Raises BadRequest."""
    found = {}
    for name in _HEADERS:
        value = headers.get(PREFIX + name, "").strip()
        if len(value) > _LONGEST_VALUE:
            raise BadRequest(f"X-Cattle-{name.title()} is longer than {_LONGEST_VALUE} characters")
        if value:
            found[name] = [value]
    return found


def decode(data: bytes) -> HostDescription:
    """Decode the content of a request Secret. Raises BadRequest."""
    try:
        values = msgspec.json.decode(data, type=dict[str, list[str]])
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadRequest(f"cannot read the request: {error}") from None
    return read(values)


def read(values: Mapping[str, Sequence[str]]) -> HostDescription:
    """Raises BadRequest."""
    first = {name: (found[0].strip() if found else "") for name, found in values.items()}
    node_name = first.get("node-name", "").lower()
    if node_name and kube_names.dns1123_subdomain(node_name):
        raise BadRequest(f"{node_name!r} is not a valid node name: choose another one with --node-name")
    return HostDescription(
        id=machine_id({f"{PREFIX}id": first.get("id", "")}),
        roles=tuple(label for name, label in _ROLES.items() if first.get(name, "").lower() == "true"),
        node_name=node_name,
        address=first.get("address", ""),
        internal_address=first.get("internal-address", ""),
        labels=_labels(first.get("labels", "")),
        taints=_taints(first.get("taints", "")),
    )


def _labels(text: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals or kube_names.qualified_name(key) or kube_names.label_value(value):
            raise BadRequest(f"{pair!r} is not a label: write key=value")
        if is_reserved(key):
            raise BadRequest(f"a host cannot choose the label {key}: only the manager sets it")
        found[key] = value
    return found


def is_reserved(label: str) -> bool:
    """Return whether the label is reserved: controllers read it."""
    domain, slash, _ = label.partition("/")
    if not slash or label in _ALLOWED:
        return False
    return any(domain == one or domain.endswith(f".{one}") for one in _RESERVED)


def _taints(text: str) -> str:
    kept = []
    for taint in filter(None, (part.strip() for part in text.split(","))):
        pair, colon, effect = taint.rpartition(":")
        key, _, value = pair.partition("=")
        if not colon or effect not in _EFFECTS or kube_names.qualified_name(key) or kube_names.label_value(value):
            raise BadRequest(f"{taint!r} is not a taint: write key=value:NoSchedule (or PreferNoSchedule, NoExecute)")
        kept.append(taint)
    return ",".join(kept)


def refusal(request: HostDescription, machines: Sequence[Machine]) -> str:
    """Return why a new request must be refused in a Cluster that has these Machines; empty if it is accepted."""
    if not request.roles:
        return "the host has no role: add --etcd, --controlplane or --worker to the command"
    wanted = capi_names.label_value(request.node_name)
    for machine in machines:
        same_name = wanted and machine.metadata.labels.get(names.NODE_NAME) == wanted
        if not same_name or machine.metadata.labels.get(names.MACHINE_ID) == request.id:
            continue
        if machine.metadata.deleting:
            return (
                f"Machine {machine.key}, which had the node name {request.node_name}, is still being deleted: run the "
                "command again when it is gone"
            )
        return (
            f"another host is registered as node {request.node_name} (Machine {machine.key}). If this one replaces it, "
            "delete that Machine first and run the command again; else give this one a name of its own with --node-name"
        )
    return ""


# -- created objects


def request_secret(cluster: Cluster, values: Mapping[str, Sequence[str]], id: str) -> Json:
    """Return the request Secret. The Cluster owns it, so that it is deleted with the Cluster."""
    owner = OwnerReference(
        api_version=CLUSTER.api_version, kind=CLUSTER.name, name=cluster.metadata.name, uid=cluster.metadata.uid
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": names.REQUEST_TYPE,
        "metadata": {
            "name": machine_name(id),
            "labels": {names.CLUSTER_NAME: capi_names.label_value(cluster.metadata.name)},
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "stringData": {DATA: msgspec.json.encode(values).decode()},
    }


def bootstrap(request: HostDescription, cluster: Cluster) -> Json:
    return {
        "apiVersion": RKE_BOOTSTRAP.api_version,
        "kind": RKE_BOOTSTRAP.name,
        "metadata": _metadata(request, cluster, _labels_of(request, cluster), _annotations_of(request)),
        "spec": {"clusterName": cluster.metadata.name},
    }


def custom_machine(request: HostDescription, cluster: Cluster) -> Json:
    return {
        "apiVersion": CUSTOM_MACHINE.api_version,
        "kind": CUSTOM_MACHINE.name,
        "metadata": _metadata(request, cluster, _labels_of(request, cluster), _annotations_of(request)),
        "spec": {"providerID": provider_id(request.name)},
    }


def machine(request: HostDescription, cluster: Cluster) -> Json:
    def reference(kind: str) -> Json:
        return {"apiGroup": names.GROUP, "kind": kind, "name": request.name}

    return {
        "apiVersion": MACHINE.api_version,
        "kind": MACHINE.name,
        "metadata": _metadata(request, cluster, {**request.labels, **_labels_of(request, cluster)}, {}),
        "spec": {
            "clusterName": cluster.metadata.name,
            "bootstrap": {"configRef": reference(RKE_BOOTSTRAP.name)},
            "infrastructureRef": reference(CUSTOM_MACHINE.name),
        },
    }


def _metadata(request: HostDescription, cluster: Cluster, labels: Json, annotations: Json) -> Json:
    return {
        "name": request.name,
        "namespace": cluster.metadata.namespace,
        "labels": labels,
        **({"annotations": annotations} if annotations else {}),
    }


def _labels_of(request: HostDescription, cluster: Cluster) -> Json:
    name = capi_names.label_value(cluster.metadata.name)
    labels = {
        capi_names.CLUSTER_NAME: name,
        names.CLUSTER_NAME: name,
        names.MACHINE_ID: request.id,
        names.OS: request.labels.get(names.OS, "linux"),
        **dict.fromkeys(request.roles, "true"),
    }
    if names.CONTROL_PLANE_ROLE in request.roles:
        labels[capi_names.CONTROL_PLANE] = "true"
    if request.node_name:
        labels[names.NODE_NAME] = capi_names.label_value(request.node_name)
    return labels


def _annotations_of(request: HostDescription) -> Json:
    node_labels = ",".join(f"{key}={value}" for key, value in request.labels.items())
    found = {
        names.ADDRESS: request.address,
        names.INTERNAL_ADDRESS: request.internal_address,
        names.NODE_LABELS: node_labels,
        names.NODE_TAINTS: request.taints,
    }
    return {key: value for key, value in found.items() if value}
