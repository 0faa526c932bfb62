"""The pure parts of the control plane: what it asks for, what it makes, how it judges and what it reports."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
import yaml

from remuda.capi import contract, names
from remuda.capi.contract import ProviderObject
from remuda.capi.types import MACHINE, Cluster, Machine
from remuda.kube import clock, random_source
from remuda.kube.objects import ObjectMeta
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import FAMILIES, NEW, OLD, Family
from remuda.lab.simulator.providers import controlplane_machines as made
from remuda.lab.simulator.providers import controlplane_status
from remuda.lab.simulator.providers.controlplane_machines import HOOK, DesiredControlPlane
from remuda.lab.simulator.providers.rollout import (
    ControlPlaneMachine,
    CreateMachine,
    Decision,
    DeleteMachine,
    NoAction,
    WaitForMachine,
)
from remuda.lab.simulator.types import Script

EITHER = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)
CLUSTER = Cluster(metadata=ObjectMeta(name="c", namespace="ns", uid="u-c"))


def control_plane(family: Family, name: str = "c", **spec: Any) -> ProviderObject:
    target, obj = Blueprint(name="c", namespace="ns", family=family, bootstrap=Script(seconds=2)).objects()[2]
    obj["metadata"] |= {"name": name, "uid": "u-cp", "generation": 1, "resourceVersion": "1"}
    obj["spec"] |= spec
    return ProviderObject(msgspec.json.encode(obj), target, family.contract)


def wanted(family: Family, **spec: Any) -> DesiredControlPlane:
    obj = control_plane(family, **spec)
    return DesiredControlPlane.of(family.control_plane.decode(obj.value))


def machine(**more: Any) -> Machine:
    base: dict[str, Any] = {"metadata": {"name": "m", "namespace": "ns"}, "spec": {"version": "v1.36.0"}}
    for part, value in more.items():
        base.setdefault(part, {}).update(value)
    return MACHINE.decode(msgspec.json.encode(base))


def with_condition(type: str, status: str, reason: str = "Said") -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, "reason": reason}]}


@EITHER
def test_control_plane_spec_is_read_equally_from_both_contracts(family: Family) -> None:
    asked = wanted(family)
    assert (asked.replicas, asked.version, asked.bootstrap) == (1, "v1.36.0", Script(seconds=2))
    template = asked.template
    assert (template.api_group, template.kind) == (family.group, "SimulatedMachineTemplate")
    assert template.name == "c-control-plane"


def test_missing_replicas_default_to_one_and_zero_is_kept() -> None:
    assert wanted(NEW, replicas=None).replicas == 1
    assert wanted(NEW, replicas=0).replicas == 0


def test_template_deletion_and_rollout_settings_are_read() -> None:
    inner = {
        "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "n"},
        "deletion": {"nodeDrainTimeoutSeconds": 9},
    }
    asked = wanted(NEW, machineTemplate={"spec": inner}, rollout={"after": "2026-01-01T00:00:00Z"})
    assert asked.deletion.node_drain_timeout_seconds == 9
    assert asked.rollout_after == "2026-01-01T00:00:00Z"
    assert wanted(OLD, rolloutAfter="2026-01-02T00:00:00Z").rollout_after == "2026-01-02T00:00:00Z"


@EITHER
def test_created_machine_has_all_required_fields(family: Family) -> None:
    obj = made.machine(control_plane(family), family, CLUSTER, wanted(family), "zone-a")
    metadata, spec = obj["metadata"], obj["spec"]
    assert metadata["finalizers"] == [names.MACHINE_FINALIZER]
    assert metadata["labels"] == {names.CLUSTER_NAME: "c", names.CONTROL_PLANE: "", names.CONTROL_PLANE_NAME: "c"}
    assert HOOK in metadata["annotations"]
    [owner] = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["kind"]) == ("u-cp", True, "SimulatedControlPlane")
    assert spec["bootstrap"]["configRef"]["name"] == spec["infrastructureRef"]["name"] == metadata["name"]
    assert spec["infrastructureRef"]["kind"] == "SimulatedMachine"
    assert (spec["failureDomain"], spec["version"], spec["clusterName"]) == ("zone-a", "v1.36.0", "c")
    msgspec.convert(obj, Machine)


def test_overlong_control_plane_name_is_hashed_into_label() -> None:
    name = "x" * 100
    obj = made.machine(control_plane(NEW, name), NEW, CLUSTER, wanted(NEW), "")
    assert obj["metadata"]["labels"][names.CONTROL_PLANE_NAME] == names.label_value(name)
    assert len(obj["metadata"]["name"]) <= 63
    assert "failureDomain" not in obj["spec"]


def test_created_machine_names_are_unique() -> None:
    import random

    random_source.use(random.Random(3))
    try:
        found = {made.machine(control_plane(NEW), NEW, CLUSTER, wanted(NEW), "")["metadata"]["name"] for _ in range(50)}
    finally:
        random_source.use(None)
    assert len(found) == 50


@EITHER
def test_bootstrap_object_is_owned_by_its_machine(family: Family) -> None:
    one = machine(metadata={"uid": "u-m", "labels": {names.CLUSTER_NAME: "c"}})
    obj = made.bootstrap(family, CLUSTER, wanted(family), one)
    [owner] = obj["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Machine", "u-m", True)
    assert obj["metadata"]["labels"] == {names.CLUSTER_NAME: "c"}
    assert family.bootstrap.decode(msgspec.json.encode(obj)).spec.script == Script(seconds=2)


def test_kubeconfig_secret_has_standard_name_type_and_key() -> None:
    secret = made.kubeconfig_secret(control_plane(NEW), CLUSTER, {"kind": "Config", "clusters": []})
    assert secret["metadata"]["name"] == "c-kubeconfig"
    assert secret["type"] == names.SECRET_TYPE
    assert yaml.safe_load(base64.b64decode(secret["data"]["value"])) == {"kind": "Config", "clusters": []}


def server(template: str) -> ProviderObject:
    metadata = {"name": "m", "annotations": {names.CLONED_FROM_NAME: template}}
    return ProviderObject(msgspec.json.encode({"metadata": metadata}), NEW.machine.target, NEW.contract)


@pytest.mark.parametrize(
    ("spec", "template", "expected"),
    [
        ({}, "c-control-plane", True),
        ({"version": "v1.36.1"}, "c-control-plane", False),
        ({}, "another", False),
        ({"rollout": {"after": "2020-01-01T00:00:00Z"}}, "c-control-plane", True),
        ({"rollout": {"after": "2026-01-01T00:00:00Z"}}, "c-control-plane", False),
        ({"rollout": {"after": "2999-01-01T00:00:00Z"}}, "c-control-plane", True),
    ],
    ids=["as wanted", "version", "template", "rolled since", "to be rolled", "to be rolled later"],
)
def test_machine_up_to_date_depends_on_version_template_and_rollout_time(
    spec: dict[str, Any], template: str, expected: bool
) -> None:
    one = machine(metadata={"creationTimestamp": "2025-06-01T00:00:00Z"})
    clock.use(lambda: clock.parse("2026-06-01T00:00:00Z"))
    try:
        assert made.member(one, server(template), wanted(NEW, **spec), settled=True).up_to_date is expected
    finally:
        clock.use(None)


def test_machine_without_infrastructure_object_can_be_up_to_date() -> None:
    assert made.member(machine(), None, wanted(NEW), settled=False).up_to_date


def test_machine_is_unhealthy_only_if_check_failed_and_owner_must_remediate() -> None:
    failed = {"type": "HealthCheckSucceeded", "status": "False"}
    handed = {"type": "OwnerRemediated", "status": "False"}
    for given, expected in (([], False), ([failed], False), ([handed], False), ([failed, handed], True)):
        one = machine(status={"conditions": given})
        assert made.member(one, None, wanted(NEW), settled=True).unhealthy is expected


# The report


def reported(
    family: Family,
    machines: list[Machine],
    members: list[ControlPlaneMachine],
    *,
    initialized: bool = True,
    decision: Decision | None = None,
    **spec: Any,
) -> ProviderObject:
    obj = control_plane(family, **spec)
    draft = obj.draft()
    asked = DesiredControlPlane.of(family.control_plane.decode(obj.value))
    controlplane_status.put(draft, obj, asked, machines, members, initialized, decision or NoAction())
    return ProviderObject(msgspec.json.encode(draft.obj), obj.target, obj.contract)


def said(obj: ProviderObject, type: str) -> tuple[str, str]:
    found = contract.condition(obj, type)
    assert found is not None
    return found.status, found.message


READY = machine(
    status={"conditions": [{"type": type, "status": "True"} for type in ("Ready", "Available", "UpToDate")]}
)
MEMBER = ControlPlaneMachine(name="m", created="")


@EITHER
def test_reported_counts_and_versions_are_read_equally_from_both_contracts(family: Family) -> None:
    obj = reported(family, [READY, machine(metadata={"name": "n"})], [MEMBER], replicas=3)
    assert contract.counts(obj) == (3, 2, 1, 1, 1)
    assert [running.version for running in contract.running_versions(obj)] == ["v1.36.0"]
    assert contract.initialized(obj)


@EITHER
def test_control_plane_without_nodes_is_not_initialized(family: Family) -> None:
    obj = reported(family, [machine()], [MEMBER._replace(settled=False)], initialized=False)
    assert not contract.initialized(obj)
    assert contract.running_versions(obj) == []
    assert said(obj, "Available")[0] == "False"


def test_running_versions_are_sorted_oldest_first() -> None:
    machines = [machine(metadata={"name": n}, spec={"version": v}) for n, v in (("a", "v1.9.1"), ("b", "v1.10.0"))]
    members = [MEMBER._replace(name=name) for name in "ab"]
    assert controlplane_status.running_versions(machines[::-1], members) == [("v1.9.1", 1), ("v1.10.0", 1)]


@pytest.mark.parametrize(
    ("count", "members", "decision", "on"),
    [
        (1, [MEMBER], NoAction(), set()),
        (0, [], CreateMachine("", "more"), {"ScalingUp"}),
        (3, [MEMBER], DeleteMachine("m", "fewer"), {"ScalingDown"}),
        (2, [MEMBER._replace(up_to_date=False)], WaitForMachine("a rollout"), {"RollingOut"}),
    ],
    ids=["at rest", "up", "down", "rolling"],
)
def test_scaling_and_rollout_conditions_report_the_decision_reason(
    count: int, members: list[ControlPlaneMachine], decision: Decision, on: set[str]
) -> None:
    machines = [machine(metadata={"name": f"m{number}"}) for number in range(count)]
    obj = reported(NEW, machines, members, decision=decision)
    kinds = ("ScalingUp", "ScalingDown", "RollingOut")
    assert {kind for kind in kinds if said(obj, kind)[0] == "True"} == on
    for kind in on:
        assert said(obj, kind)[1] == decision.why  # type: ignore[union-attr]


def test_repeated_status_report_makes_no_patch() -> None:
    first = reported(NEW, [READY], [MEMBER])
    draft = first.draft()
    asked = DesiredControlPlane.of(NEW.control_plane.decode(first.value))
    controlplane_status.put(draft, first, asked, [READY], [MEMBER], True, NoAction())
    assert draft.patches() == ({}, {})
