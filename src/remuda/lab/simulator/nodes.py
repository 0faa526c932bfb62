"""Behaviour of a simulated server once it runs: a control plane server joins etcd, and each server registers its Node.

A Node is registered once. One that vanishes later stays away, like that of a broken kubelet, and each failure in its
script happens once: a Node that was brought back (`revive`) stays healthy.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from remuda.capi import names
from remuda.capi.types import Machine
from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import AlreadyExists, NotFound, ignore_not_found
from remuda.lab.simulator.cloud import CloudHost
from remuda.lab.simulator.etcd import Etcd, EtcdRefused
from remuda.lab.simulator.types import MachineScript

NODES = Target("v1", "nodes")
FAILED = "simulator.remuda.dev/failed"  # marks a Node whose scripted failure has already happened
DEFAULT_VERSION = "v1.36.0"

Json = dict[str, Any]


def join_etcd(etcd: Etcd, name: str) -> str:
    """Advance a control plane server one step towards a voting member. Return why it is none yet; empty if it is."""
    try:
        if not etcd.born:
            etcd.bootstrap(name)
        else:
            etcd.join(name)
            etcd.promote(name)
    except EtcdRefused as refused:
        return str(refused)
    return ""


def node(machine: Machine, host: CloudHost) -> Json:
    """Return the Node as its kubelet would register it."""
    labels = {"kubernetes.io/hostname": machine.metadata.name, "kubernetes.io/os": "linux"}
    if machine.is_control_plane:
        labels["node-role.kubernetes.io/control-plane"] = ""
    version = machine.spec.version or DEFAULT_VERSION
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.metadata.name, "labels": labels},
        "spec": {
            "providerID": host.provider_id,
            "taints": [{"key": names.UNINITIALIZED_TAINT, "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": host.address},
                {"type": "Hostname", "address": machine.metadata.name},
            ],
            "conditions": _conditions(True),
            "nodeInfo": {
                "machineID": str(host.number),
                "systemUUID": str(host.number),
                "bootID": str(host.number),
                "kernelVersion": "6.12.0",
                "osImage": "Simulated Linux",
                "containerRuntimeVersion": "simulated://1.0.0",
                "kubeletVersion": version,
                "kubeProxyVersion": version,
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _conditions(well: bool) -> list[Json]:
    now = clock.now()
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    pressures = [
        {"type": f"{of}Pressure", "status": "False", "reason": "KubeletHasEnough", "message": "", **times}
        for of in ("Memory", "Disk", "PID")
    ]
    ready = {
        "type": "Ready",
        "status": "True" if well else "False",
        "reason": "KubeletReady" if well else "KubeletNotReady",
        "message": "the simulated kubelet works" if well else "the script of the server says so",
        **times,
    }
    return [*pressures, ready]


async def find(client: Client, name: str) -> Json | None:
    try:
        found: Json = msgspec.json.decode(await client.get(NODES, "", name))
    except NotFound:
        return None
    return found


async def register(client: Client, machine: Machine, host: CloudHost) -> None:
    with contextlib.suppress(AlreadyExists):
        await client.create(NODES, "", node(machine, host))


def trouble(script: MachineScript, found: Json) -> tuple[str, float]:
    """Return the next failure of a Node ("fails", "vanishes" or nothing), and in how many seconds it is due."""
    age = clock.time() - clock.parse(found["metadata"]["creationTimestamp"])
    due: list[tuple[float, str]] = []
    if script.node_fails_after_seconds is not None and FAILED not in (found["metadata"].get("annotations") or {}):
        due.append((script.node_fails_after_seconds - age, "fails"))
    if script.node_vanishes_after_seconds is not None:
        due.append((script.node_vanishes_after_seconds - age, "vanishes"))
    if not due:
        return "", 0.0
    seconds, what = min(due)
    return what, max(0.0, seconds)


async def fail(client: Client, name: str) -> None:
    await client.patch(NODES, "", name, {"metadata": {"annotations": {FAILED: ""}}})
    await client.patch(NODES, "", name, {"status": {"conditions": _conditions(False)}}, subresource="status")


async def remove_node(client: Client, name: str) -> None:
    with ignore_not_found():
        await client.delete(NODES, "", name)


async def revive(client: Client, name: str) -> None:
    """Restart the server."""
    await client.patch(NODES, "", name, {"status": {"conditions": _conditions(True)}}, subresource="status")
