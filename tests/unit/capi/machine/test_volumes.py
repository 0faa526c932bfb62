"""Which attached volumes are waited for."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi.machine.drain_stages import attached_volumes, blocking_volumes, name_on_node, volumes_message
from remuda.capi.machine.workload import Node, PersistentVolume, VolumeAttachment
from tests.unit.capi.machine.objects import pod


def node(*volumes: str) -> Node:
    raw = {"metadata": {"name": "n-1"}, "status": {"volumesAttached": [{"name": name} for name in volumes]}}
    return msgspec.convert(raw, Node)


def attachment(name: str, volume: str = "", where: str = "n-1") -> VolumeAttachment:
    source = {"persistentVolumeName": volume} if volume else {}
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"nodeName": where, "source": source}}, VolumeAttachment
    )


def volume(name: str, claim: str = "", handle: str = "") -> PersistentVolume:
    spec: dict[str, Any] = {}
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim}
    if handle:
        spec["csi"] = {"driver": "disk.test", "volumeHandle": handle}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def claiming(name: str, claim: str) -> Any:
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


def test_attached_volumes_include_attachments_and_node_status() -> None:
    found = attached_volumes(
        node("kubernetes.io/csi/x^1"), [attachment("a", "pv-1"), attachment("b", "pv-2", "other"), attachment("c")]
    )
    assert found == {"pv-1", "c", "kubernetes.io/csi/x^1"}


def test_all_attached_volumes_block_by_default() -> None:
    assert blocking_volumes({"pv-1", "odd"}, [], []) == ["odd", "pv-1"]


def test_volume_with_two_names_is_counted_once() -> None:
    one = volume("pv-1", handle="h")
    assert name_on_node(one) == "kubernetes.io/csi/disk.test^h"
    assert blocking_volumes({"pv-1", name_on_node(one)}, [], [one]) == ["pv-1"]
    assert blocking_volumes({name_on_node(one)}, [], [one]) == [name_on_node(one)]


def test_volumes_of_undrained_pods_do_not_block() -> None:
    mine, theirs = volume("pv-1", "data-1", "h1"), volume("pv-2", "data-2", "h2")
    found = {"pv-1", "pv-2", name_on_node(mine), name_on_node(theirs)}
    assert blocking_volumes(found, [claiming("daemon", "data-1")], [mine, theirs]) == ["pv-2"]


def test_ephemeral_volume_claim_is_matched_by_pod_and_volume_name() -> None:
    daemon = pod("daemon", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert blocking_volumes({"pv-1"}, [daemon], [volume("pv-1", "daemon-scratch")]) == []


def test_volume_message_counts_and_names_attached_volumes() -> None:
    assert volumes_message(["a", "b", "c"]) == "* 3 volumes are still attached: a, b, c"
    assert volumes_message(["pv-1"]) == "* 1 volume is still attached: pv-1"
    assert (
        volumes_message([f"pv-{i}" for i in range(5)])
        == "* 5 volumes are still attached: pv-0, pv-1, pv-2, ... (2 more)"
    )
