"""MachineDeployments that users write themselves: which machines a change deletes or replaces, known beforehand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, Machine
from remuda.provisioning.deployment_preview import DeploymentChange, preview
from remuda.provisioning.preview import EtcdMembers, Preview

Json = dict[str, Any]
MACHINES = 3


def machine(number: int, **metadata: Any) -> Machine:
    made = f"2026-01-0{number + 1}T00:00:00Z"
    raw = {"metadata": {"name": f"m-{number}", "namespace": "default", "creationTimestamp": made, **metadata}}
    return MACHINE.decode(msgspec.json.encode(raw))


def change(replicas: int | None = MACHINES, template: str = "a", labels: Json | None = None) -> Preview:
    def deployment(replicas: int | None, template: str) -> Any:
        reference = {"apiGroup": "infrastructure.example", "kind": "AnyMachineTemplate", "name": template}
        inner = {"metadata": {"labels": labels or {}}, "spec": {"infrastructureRef": reference}}
        spec = {"clusterName": "c", "replicas": replicas, "deletion": {"order": "Oldest"}, "template": inner}
        return MACHINE_DEPLOYMENT.decode(msgspec.json.encode({"metadata": {"name": "md"}, "spec": spec}))

    machines = [machine(number) for number in range(MACHINES)]
    return preview("default/c", [DeploymentChange(deployment(3, "a"), deployment(replicas, template), machines)])


def test_unchanged_and_growing_deployments_destroy_nothing() -> None:
    assert not change().destroys
    assert not change(replicas=5).destroys


def test_fewer_replicas_delete_the_oldest_machines() -> None:
    found = change(replicas=1)
    assert found.destroys
    assert [(step.machine, step.action) for step in found.steps] == [("m-0", "delete"), ("m-1", "delete")]


def test_unset_replicas_means_one() -> None:
    assert len(change(replicas=None).steps) == 2


def test_another_template_replaces_all_machines() -> None:
    found = change(template="b")
    assert [step.action for step in found.steps] == ["replace"] * 3


def test_etcd_members_are_counted_by_role() -> None:
    assert change(replicas=1, labels={"rke.cattle.io/etcd-role": "true"}).etcd == EtcdMembers(before=3, after=1)
    assert change(replicas=1).etcd == EtcdMembers()


@pytest.mark.parametrize(
    ("before", "after", "loses"),
    [(3, 2, True), (3, 1, True), (5, 4, True), (4, 3, False), (2, 1, False), (1, 3, False), (3, 3, False)],
)
def test_margin_is_lost_if_fewer_members_may_fail(before: int, after: int, loses: bool) -> None:
    assert EtcdMembers(before=before, after=after).loses_margin == loses
