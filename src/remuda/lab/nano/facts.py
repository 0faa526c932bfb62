"""Facts about a host as a node of the cluster: its name, addresses and roles, and the Node it registers.

Labels and taints of the configuration apply when the Node is registered, as with a kubelet; later they belong to the
cluster.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import socket
from base64 import b32encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from remuda.kube import clock
from remuda.kube.names import dns1123_subdomain
from remuda.lab.nano import arguments
from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import write_file

Obj = dict[str, Any]

NODE_FOLDER = "/etc/rancher/node"
NO_PODS = "nano.remuda.dev/runs-no-pods"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
ETCD_LABEL = "node-role.kubernetes.io/etcd"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    addresses: tuple[str, ...]
    external_addresses: tuple[str, ...] = ()
    control_plane: bool = False
    etcd: bool = False
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    provider_id: str = ""
    version: str = ""
    instance_type: str = ""
    annotations: dict[str, str] = {}

    @property
    def address(self) -> str:
        return self.addresses[0]


def gather(configuration: Configuration, host: NanoHost, version: str) -> NodeDescription:
    """Collect the facts. Raise FatalError."""
    name = configuration.text("node-name") or socket.gethostname()
    if configuration.flag("with-node-id"):
        name = f"{name}-{_node_id(host)}"
    name = name.lower()
    if complaints := dns1123_subdomain(name):
        raise FatalError(f"node-name {name!r}: {complaints[0]}")
    server = configuration.role == "server"
    addresses = tuple(configuration.split("node-ip")) or (host.own_address(),)
    return NodeDescription(
        name=name,
        addresses=addresses,
        external_addresses=tuple(configuration.split("node-external-ip")),
        control_plane=server and not configuration.flag("disable-apiserver"),
        etcd=server and not configuration.flag("disable-etcd"),
        labels=dict(_label(item) for item in configuration.items("node-label")),
        taints=tuple(taint(item) for item in configuration.items("node-taint")),
        provider_id=configuration.argument("kubelet-arg", "provider-id") or f"{configuration.flavour.name}://{name}",
        version=version,
        instance_type=configuration.flavour.name,
        annotations=_annotations(configuration, name, addresses),
    )


def node(facts: NodeDescription) -> Obj:
    """Return the Node as it is registered."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "labels": {**facts.labels, **standard_labels(facts)},
            "annotations": facts.annotations,
        },
        "spec": {"providerID": facts.provider_id, "taints": list(facts.taints)},
        "status": status(facts, None),
    }


def standard_labels(facts: NodeDescription) -> dict[str, str]:
    architecture = _architecture()
    labels = {
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "kubernetes.io/hostname": facts.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": facts.instance_type,
    }
    if facts.control_plane:
        labels[CONTROL_PLANE_LABEL] = "true"
    if facts.etcd:
        labels[ETCD_LABEL] = "true"
    return labels


def status(facts: NodeDescription, before: Obj | None) -> Obj:
    """Return the status. `before`: the previous conditions, whose times stay if nothing has changed."""
    addresses = [{"type": "InternalIP", "address": address} for address in facts.addresses]
    addresses += [{"type": "ExternalIP", "address": address} for address in facts.external_addresses]
    addresses.append({"type": "Hostname", "address": facts.name})
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_kib()}Ki", "pods": "110"}
    return {
        "addresses": addresses,
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": _conditions(before or {}),
        "nodeInfo": {
            "architecture": _architecture(),
            "bootID": _line("/proc/sys/kernel/random/boot_id"),
            "containerRuntimeVersion": "nano://runs-no-pods",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": facts.version,
            "kubeletVersion": facts.version,
            "machineID": _line("/etc/machine-id"),
            "operatingSystem": "linux",
            "osImage": "nano, a stand-in that runs no Pods",
            "systemUUID": _line("/etc/machine-id"),
        },
    }


def _conditions(before: Obj) -> list[Obj]:
    known = {one["type"]: one for one in before.get("conditions") or ()}
    wanted = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "nano is posting ready status; it runs no Pods"),
    ]
    now = clock.now()
    return [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": known[kind]["lastTransitionTime"]
            if kind in known and known[kind]["status"] == value
            else now,
        }
        for kind, value, reason, message in wanted
    ]


def _label(item: str) -> tuple[str, str]:
    key, _, value = item.partition("=")
    return key, value


def taint(item: str) -> dict[str, str]:
    """Parse `key=value:effect` or `key:effect`. Raise FatalError."""
    head, colon, effect = item.rpartition(":")
    if not colon or effect not in _EFFECTS:
        raise FatalError(f"node-taint {item!r}: key=value:effect, with an effect of {', '.join(_EFFECTS)}")
    key, _, value = head.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _annotations(configuration: Configuration, name: str, addresses: Sequence[str]) -> dict[str, str]:
    shown: list[str] = [configuration.role]
    for key, values in sorted(configuration.values.items()):
        for value in values:
            shown += [f"--{key}", "********" if key in arguments.SECRET else value]
    text = msgspec.json.encode(shown).decode()
    digest = b32encode(hashlib.sha256(repr(sorted(configuration.values.items())).encode()).digest()).decode()
    domain = f"{configuration.flavour.name}.io"
    return {
        NO_PODS: "true",
        f"{domain}/hostname": name,
        f"{domain}/internal-ip": ",".join(addresses),
        f"{domain}/node-args": text,
        f"{domain}/node-config-hash": digest,
    }


def node_password(host: NanoHost) -> str:
    """Return the node's password, created once; it proves the node's identity."""
    path = host.path(NODE_FOLDER) / "password"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = secrets.token_hex(16)
        write_file(path, made.encode() + b"\n")
        return made


def _node_id(host: NanoHost) -> str:
    path = host.path(NODE_FOLDER) / "id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = secrets.token_hex(4)
        write_file(path, made.encode() + b"\n")
        return made


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _memory_kib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
