"""Deletion as a plan that can be read."""

from __future__ import annotations

from typing import Any

from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, Machine
from remuda.capi.types import Cluster as CapiCluster
from remuda.kube.objects import Condition, Kind, Object, ObjectMeta, OwnerReference
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.provisioning import removal
from remuda.provisioning.removal import RemainingObjects


def metadata(name: str = "prairie", *, deleting: bool = False, **more: Any) -> ObjectMeta:
    since = "2026-01-02T03:04:05Z" if deleting else None
    return ObjectMeta(name=name, namespace="ns", uid=name, deletion_timestamp=since, **more)


def machine(name: str, message: str = "", **more: Any) -> Machine:
    said = Condition(type="Deleting", status="True", reason="WaitingForInfrastructureDeletion", message=message)
    found = Machine(metadata=metadata(name, deleting=True, **more))
    status = type(found.status)(conditions=(said,))
    spec = type(found.spec)(cluster_name="prairie")
    return Machine(metadata=found.metadata, spec=spec, status=status)


def test_capi_cluster_is_deleted_once_and_awaited() -> None:
    stage = removal.plan(
        RemainingObjects(cluster=CapiCluster(metadata=metadata()), others=[(RKE_CONTROL_PLANE, RKEControlPlane())])
    )
    assert [(kind, obj.metadata.name) for kind, obj in stage.delete] == [(CAPI_CLUSTER, "prairie")]
    stage = removal.plan(RemainingObjects(cluster=CapiCluster(metadata=metadata(deleting=True))))
    assert stage.delete == ()
    assert stage.waits


def test_wait_message_names_machine_reason_and_since() -> None:
    left = RemainingObjects(
        cluster=CapiCluster(metadata=metadata(deleting=True)), machines=[machine("m-1", "the cloud is away")]
    )
    lines = removal.plan(left).message.splitlines()
    assert lines[0].startswith("Machine ns/m-1: the cloud is away (since 2026-01-02T03:04:05Z)")
    assert "cluster.x-k8s.io ns/prairie" in lines[1]


def test_long_wait_message_is_truncated() -> None:
    left = RemainingObjects(cluster=CapiCluster(), machines=[machine(f"m-{number}") for number in range(9)])
    lines = removal.plan(left).message.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 5 more"


def test_remaining_objects_without_capi_cluster_are_deleted_in_order() -> None:
    owned = OwnerReference(kind=MACHINE_DEPLOYMENT.name, uid="d", controller=True)
    made: list[tuple[Kind[Any], Object]] = [
        (RKE_CONTROL_PLANE, RKEControlPlane(metadata=metadata())),
        (MACHINE_SET, Object(metadata=metadata("s", owner_references=(owned,)))),
        (MACHINE_DEPLOYMENT, Object(metadata=metadata("d"))),
    ]
    stage = removal.plan(RemainingObjects(others=made))
    assert [kind for kind, _ in stage.delete] == [MACHINE_DEPLOYMENT]
    assert removal.plan(RemainingObjects(others=made[:2])).delete == []
    stage = removal.plan(RemainingObjects(others=made[:1]))
    assert [kind for kind, _ in stage.delete] == [RKE_CONTROL_PLANE]
    orphan = Machine(metadata=metadata("m"))
    assert removal.plan(RemainingObjects(machines=[orphan])).delete == [(MACHINE, orphan)]


def test_removal_without_remaining_objects_waits_for_nothing() -> None:
    assert removal.plan(RemainingObjects()).waits == ()
