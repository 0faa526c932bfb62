"""Edits of a declared Cluster that people ask for by name: which pool is meant, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.patches import apply_json_patch
from remuda.provisioning.declaration import BadRequest
from remuda.provisioning.edits import Scale, quantities, scale_patch, scaled, version_patch, version_troubles

ETCD, CONTROL, WORKER = {"etcdRole": True}, {"controlPlaneRole": True}, {"workerRole": True}
REF = {"machineConfigRef": {"kind": "SimConfig", "name": "x"}}


def cluster(*pools: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "prairie", "namespace": "n", "uid": "u"}
    spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"machinePools": list(pools)}}
    return {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": spec}


def pool(name: str, *roles: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, **REF, **{key: value for role in roles for key, value in role.items()}, **more}


USUAL = cluster(pool("s", ETCD, CONTROL, quantity=3), pool("w", WORKER))
SPLIT = cluster(pool("e", ETCD, quantity=3), pool("c", CONTROL, quantity=2), pool("a", WORKER), pool("b", WORKER))


def test_scale_selects_pools_by_role_or_name() -> None:
    assert scaled(USUAL, Scale(servers=5, workers=0)) == {"s": 5, "w": 0}
    assert scaled(cluster(pool("all", ETCD, CONTROL, WORKER)), Scale(servers=3)) == {"all": 3}
    assert scaled(SPLIT, Scale(pools={"a": 2, "e": 5})) == {"a": 2, "e": 5}


@pytest.mark.parametrize(
    ("obj", "wanted", "said"),
    [
        (SPLIT, Scale(workers=3), "several pools of workers: choose with --pool a=N --pool b=N"),
        (SPLIT, Scale(servers=3), "several pools of servers: choose with --pool e=N --pool c=N"),
        (SPLIT, Scale(pools={"e": 0}), "no etcd member would be left"),
        (SPLIT, Scale(pools={"c": 0}), "no control plane would be left"),
        (SPLIT, Scale(pools={"x": 1}), r"no pool x; it has e \(etcd, 3\), c \(control plane, 2\), a \(worker, 1\)"),
        (cluster(pool("s", ETCD, CONTROL)), Scale(workers=1), "no pool of workers"),
        (cluster(), Scale(workers=1), "no machine pools"),
        (USUAL, Scale(workers=-1), "the quantity must be 0 or more"),
        (USUAL, Scale(workers=1, pools={"w": 2}), "give only one"),
        (
            cluster(pool("w", WORKER, autoscalingMinSize=1, autoscalingMaxSize=4)),
            Scale(workers=3),
            "scaled by an autoscaler, from 1 to 4",
        ),
    ],
)
def test_invalid_scale_request_is_rejected(obj: dict[str, Any], wanted: Scale, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        scaled(obj, wanted)


def test_scale_patch_changes_only_quantity() -> None:
    assert scale_patch(USUAL, {"s": 3, "w": 1}) == []
    patched = apply_json_patch(USUAL, scale_patch(USUAL, {"s": 3, "w": 4}))
    assert quantities(patched) == {"s": 3, "w": 4}
    patched["spec"]["rkeConfig"]["machinePools"][1].pop("quantity")
    assert patched == USUAL
    with pytest.raises(BadRequest, match="deleted in the meantime"):
        scale_patch(cluster(), {"w": 2})


def test_version_patch_changes_only_version() -> None:
    assert version_patch(USUAL, "v1.34.1+k3s1") == []
    patched = apply_json_patch(USUAL, version_patch(USUAL, "v1.35.0+k3s1"))
    assert patched == {**USUAL, "spec": {**USUAL["spec"], "kubernetesVersion": "v1.35.0+k3s1"}}


def test_version_troubles_explain_unsupported_target() -> None:
    assert version_troubles(USUAL, "v1.35.0+k3s1", []) == []
    (told,) = version_troubles(USUAL, "v1.36.0+k3s1", [])
    assert told == "v1.36.0+k3s1 skips a minor version: the cluster is of v1.34.1+k3s1; upgrade to v1.35 first"
    assert version_troubles(USUAL, "v1.35.0+rke2r1", []) == [
        "cannot change the distribution of a cluster from k3s to rke2"
    ]
