"""The MachineSet controller on an engine; the test plays the Machine controller and the providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_SET
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.providers import PROVIDERS, Provider
from tests.controllers.rollout_harness import RolloutHarness, counted, is_available, says


@pytest_asyncio.fixture(params=PROVIDERS, ids=lambda provider: provider.contract, loop_scope="session")
async def harness(engine: Engine, request: pytest.FixtureRequest) -> AsyncIterator[RolloutHarness]:
    provider: Provider = request.param
    made = await RolloutHarness.create(engine, provider)
    await made.cluster()
    await made.templates()
    yield made


async def test_machine_set_creates_machines_with_owned_provider_objects(harness: RolloutHarness) -> None:
    await harness.machine_set(3, template=harness.template(metadata={"annotations": {"note": "x"}}))
    async with harness.running():
        await harness.set_with(counted(replicas=3, readyReplicas=3, availableReplicas=3))
    made = await harness.machines()
    for machine in made:
        meta = machine["metadata"]
        assert meta["finalizers"] == [names.MACHINE_FINALIZER]
        assert meta["annotations"]["note"] == "x"
        assert meta["labels"] == {"pool": "a", names.CLUSTER_NAME: "c", names.SET_NAME: "ms"}
        assert [owner["kind"] for owner in meta["ownerReferences"] if owner["controller"]] == ["MachineSet"]
        for kind, ref in (
            (harness.provider.machine, machine["spec"]["infrastructureRef"]),
            (harness.provider.config, machine["spec"]["bootstrap"]["configRef"]),
        ):
            assert ref == kind.reference(named(machine))
            obj = await harness.engine.get(kind.target, harness.namespace, named(machine))
            assert obj is not None
            assert obj["spec"] == {"size": "t"}
            assert obj["metadata"]["labels"] == meta["labels"]
            assert obj["metadata"]["annotations"]["note"] == "x"
            assert obj["metadata"]["annotations"][names.CLONED_FROM_NAME] == "t"
            [owner] = obj["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (meta["uid"], True)


async def test_unowned_machine_set_and_templates_become_owned_by_cluster(harness: RolloutHarness) -> None:
    await harness.machine_set(1)
    async with harness.running():
        found = await harness.set_with(counted(replicas=1))
    assert found["metadata"]["finalizers"] == [names.MACHINE_SET_FINALIZER]
    assert found["metadata"]["labels"][names.CLUSTER_NAME] == "c"
    for kind in (harness.provider.machine.template, harness.provider.config.template):
        template = await harness.engine.get(kind.target, harness.namespace, "t")
        assert template is not None
        assert [owner["kind"] for owner in template["metadata"]["ownerReferences"]] == ["Cluster"]
        assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Cluster"]


async def test_settled_machine_set_writes_nothing(harness: RolloutHarness) -> None:
    await harness.machine_set(2)
    async with harness.running() as manager:
        await harness.set_with(counted(availableReplicas=2))
        await harness.settled(manager)
        before = manager.ledger.writes
        note = {"metadata": {"annotations": {"somebody": "else"}}}
        async with harness.until_reconciled(manager):
            await harness.engine.patch(MACHINE_SET.target, harness.namespace, "ms", note)
        assert manager.ledger.writes == before


async def test_missing_provider_objects_are_recreated_after_crash(harness: RolloutHarness) -> None:
    await harness.machine_set(2)
    async with harness.running():
        await harness.set_with(counted(replicas=2))
    first, second = sorted(map(named, await harness.machines()))
    await harness.engine.delete(harness.provider.config.target, harness.namespace, first)
    await harness.engine.delete(harness.provider.machine.target, harness.namespace, first)
    await harness.engine.delete(harness.provider.machine.target, harness.namespace, second)
    async with harness.running():
        for kind, name in (
            (harness.provider.config, first),
            (harness.provider.machine, first),
            (harness.provider.machine, second),
        ):
            await harness.engine.until(kind.target, harness.namespace, name, lambda obj: True)
    assert sorted(map(named, await harness.machines())) == [first, second]


async def test_provisioned_infrastructure_is_never_recreated(harness: RolloutHarness) -> None:
    await harness.machine_set(1)
    async with harness.running() as manager:
        await harness.set_with(counted(availableReplicas=1))
        [machine] = await harness.machines()
        await harness.engine.patch(MACHINE.target, harness.namespace, named(machine), {"spec": {"providerID": "x://1"}})
        await harness.engine.delete(harness.provider.machine.target, harness.namespace, named(machine))
        await harness.edit(MACHINE_SET.target, "ms", {"template": {"spec": {"minReadySeconds": 5}}})
        await harness.engine.until(
            MACHINE.target, harness.namespace, named(machine), lambda one: one["spec"].get("minReadySeconds") == 5
        )
        await harness.settled(manager)
    assert await harness.engine.get(harness.provider.machine.target, harness.namespace, named(machine)) is None


async def test_scale_down_deletes_unhealthy_and_marked_machines_first(harness: RolloutHarness) -> None:
    harness.machine_controller.comes_up = lambda machine: named(machine) != "sick"
    await harness.machine_set(3, deletion={"order": "Oldest"})
    async with harness.running():
        await harness.set_with(counted(availableReplicas=3))
        sick = sorted(map(named, await harness.machines()))[-1]
        harness.machine_controller.comes_up = lambda machine: named(machine) != sick
        await harness.mark(sick, False)
        await harness.set_with(counted(availableReplicas=2))
        await harness.edit(MACHINE_SET.target, "ms", {"replicas": 2})
        await harness.set_with(counted(replicas=2, availableReplicas=2))
        assert sick not in map(named, await harness.machines())
        await harness.engine.patch(
            MACHINE.target,
            harness.namespace,
            (marked := named((await harness.machines())[1])),
            {"metadata": {"annotations": {names.DELETE_MACHINE: ""}}},
        )
        await harness.edit(MACHINE_SET.target, "ms", {"replicas": 1})
        await harness.set_with(counted(replicas=1))
        assert marked not in map(named, await harness.machines())
        assert len(await harness.machines()) == 1


async def test_slow_deletion_deletes_no_other_machine(harness: RolloutHarness) -> None:
    """rancher/rancher#43173: removing one node removed two."""
    harness.machine_controller.goes = lambda machine: False
    await harness.machine_set(3)
    async with harness.running() as manager:
        await harness.set_with(counted(availableReplicas=3))
        await harness.edit(MACHINE_SET.target, "ms", {"replicas": 2})
        found = await harness.set_with(counted(replicas=3, availableReplicas=2))
        assert condition(found, "ScalingDown")["message"] == "Scaling down from 3 to 2 replicas"
        for machine in await harness.machines():
            note = {"metadata": {"annotations": {"touched": "yes"}}}
            await harness.engine.patch(MACHINE.target, harness.namespace, named(machine), note)
        await harness.settled(manager)
        leaving = [one for one in await harness.machines() if "deletionTimestamp" in one["metadata"]]
        assert len(leaving) == 1


async def test_missing_template_blocks_scale_up_until_created(harness: RolloutHarness) -> None:
    await harness.machine_set(1, template=harness.template("later"))
    async with harness.running():
        found = await harness.set_with(says("ScalingUp", "True", text="is blocked because"))
        kind = harness.provider.config.template.name
        assert f"* {kind} {harness.namespace}/later does not exist" in condition(found, "ScalingUp")["message"]
        assert condition(found, "ScalingUp")["reason"] == "ScalingUpBlocked"
        assert await harness.machines() == []
        await harness.templates("later")
        await harness.set_with(counted(availableReplicas=1))
    [machine] = await harness.machines()
    server = await harness.engine.get(harness.provider.machine.target, harness.namespace, named(machine))
    assert server is not None
    assert server["spec"] == {"size": "later"}


async def test_scale_up_waits_for_provisioning_control_plane(harness: RolloutHarness) -> None:
    control_plane = harness.provider.control_plane
    await harness.engine.patch(
        CLUSTER.target, harness.namespace, "c", {"spec": {"controlPlaneRef": control_plane.reference("cp")}}
    )
    await harness.engine.create(
        control_plane.target, harness.namespace, control_plane.object("cp", {"version": "v1.35.0"})
    )
    await harness.machine_set(1)
    async with harness.running():
        found = await harness.set_with(says("ScalingUp", "True", text="is provisioning"))
        assert condition(found, "ScalingUp")["reason"] == "ScalingUp"  # it passes by itself
        assert await harness.machines() == []
        await harness.engine.status(control_plane.target, harness.namespace, "cp", {"version": "v1.35.0"})
        await harness.engine.status(CLUSTER.target, harness.namespace, "c", {"controlPlane": {"replicas": 1}})
        await harness.set_with(counted(availableReplicas=1))


async def test_machine_set_adopts_matching_orphan_machine(harness: RolloutHarness) -> None:
    orphan = {
        "apiVersion": MACHINE.api_version,
        "kind": "Machine",
        "metadata": {"name": "orphan", "labels": {"pool": "a"}},
        "spec": {
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "given"},
            "infrastructureRef": harness.provider.machine.reference("own"),
        },
    }
    await harness.engine.create(MACHINE.target, harness.namespace, orphan)
    stranger = orphan | {"metadata": {"name": "stranger", "labels": {"pool": "b"}}}
    await harness.engine.create(MACHINE.target, harness.namespace, stranger)
    await harness.machine_set(2)
    async with harness.running():
        await harness.set_with(counted(replicas=2))
        adopted = await harness.engine.get(MACHINE.target, harness.namespace, "orphan")
        assert adopted is not None
        assert adopted["metadata"]["ownerReferences"][0]["name"] == "ms"
        assert len(await harness.machines()) == 3
    assert await harness.engine.get(harness.provider.machine.target, harness.namespace, "own") is None


async def test_template_changes_are_propagated_in_place(harness: RolloutHarness) -> None:
    await harness.machine_set(
        1, template=harness.template(labels={"going": "yes"}, metadata={"annotations": {"old": "1"}})
    )
    async with harness.running() as manager:
        await harness.set_with(counted(availableReplicas=1))
        [machine] = await harness.machines()
        await harness.engine.patch(
            MACHINE.target, harness.namespace, named(machine), {"metadata": {"labels": {"by": "somebody"}}}
        )
        template = {
            "metadata": {"labels": {"going": None, "coming": "yes"}, "annotations": {"old": None, "new": "2"}},
            "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}, "readinessGates": [{"conditionType": "Mine"}]},
        }
        await harness.edit(MACHINE_SET.target, "ms", {"template": template})
        changed = await harness.engine.until(
            MACHINE.target, harness.namespace, named(machine), lambda one: "coming" in one["metadata"]["labels"]
        )
        await harness.settled(manager)
        assert changed["metadata"]["uid"] == machine["metadata"]["uid"]
        labels = changed["metadata"]["labels"]
        assert (labels["coming"], labels["by"]) == ("yes", "somebody")
        assert "going" not in labels
        assert changed["metadata"]["annotations"] == {"new": "2"}
        assert changed["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 60
        assert changed["spec"]["readinessGates"][0]["conditionType"] == "Mine"
        for kind in (harness.provider.machine, harness.provider.config):
            obj = await harness.engine.get(kind.target, harness.namespace, named(machine))
            assert obj is not None
            assert "going" not in obj["metadata"]["labels"]
            assert obj["metadata"]["labels"]["coming"] == "yes"
            assert obj["metadata"]["annotations"][names.CLONED_FROM_NAME] == "t"
            assert "old" not in obj["metadata"]["annotations"]


def unhealthy() -> list[Json]:
    shared = {"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return [
        {"type": "HealthCheckSucceeded", "reason": "UnhealthyNode", "message": "Node is not ready", **shared},
        {"type": "OwnerRemediated", "reason": "WaitingForRemediation", "message": "", **shared},
    ]


async def test_machine_that_failed_health_check_is_replaced(harness: RolloutHarness) -> None:
    harness.machine_controller.goes = lambda machine: False
    await harness.machine_set(2)
    async with harness.running():
        await harness.set_with(counted(availableReplicas=2))
        sick = named((await harness.machines())[0])
        harness.machine_controller.comes_up = lambda machine: named(machine) != sick
        await harness.mark(sick, False, *unhealthy())
        leaving = await harness.engine.until(
            MACHINE.target, harness.namespace, sick, lambda one: "deletionTimestamp" in one["metadata"]
        )
        assert condition(leaving, "OwnerRemediated")["reason"] == "MachineDeleting"
        await harness.set_with(says("Remediating", "True"))
        assert len(await harness.machines()) == 2
        harness.machine_controller.goes = lambda machine: True
        await harness.machine_controller.reconcile_all()
        await harness.set_with(counted(replicas=2, availableReplicas=2))
        assert sick not in map(named, await harness.machines())
    [told] = await harness.events("MachineRemediated")
    assert told == f"Deleted Machine {sick}: HealthCheckSucceeded: Node is not ready"


async def test_disable_machine_create_annotation_prevents_creation(harness: RolloutHarness) -> None:
    await harness.machine_set(1, metadata={"annotations": {names.DISABLE_MACHINE_CREATE: "true"}})
    async with harness.running():
        await harness.set_with(says("ScalingUp", "True", text=names.DISABLE_MACHINE_CREATE))
        assert await harness.machines() == []


async def test_paused_machine_set_is_not_reconciled(harness: RolloutHarness) -> None:
    await harness.machine_set(1, metadata={"annotations": {names.PAUSED: ""}})
    async with harness.running():
        await harness.set_with(says("Paused", "True"))
        assert await harness.machines() == []
        await harness.engine.patch(
            MACHINE_SET.target, harness.namespace, "ms", {"metadata": {"annotations": {names.PAUSED: None}}}
        )
        found = await harness.set_with(counted(availableReplicas=1))
        assert condition(found, "Paused")["status"] == "False"


async def test_machine_set_is_deleted_after_its_machines(harness: RolloutHarness) -> None:
    harness.machine_controller.goes = lambda machine: False
    await harness.machine_set(2)
    async with harness.running():
        await harness.set_with(counted(availableReplicas=2))
        await harness.engine.delete(MACHINE_SET.target, harness.namespace, "ms")
        await harness.set_with(says("Deleting", "True", text="Deleting 2 Machines"))
        await harness.engine.when(MACHINE.target, harness.namespace, lambda all: all_deleting(all))
        harness.machine_controller.goes = lambda machine: True
        await harness.machine_controller.reconcile_all()
        await harness.engine.gone(MACHINE_SET.target, harness.namespace, "ms")
    assert await harness.machines() == []


async def test_machine_set_creates_thirty_machines(harness: RolloutHarness) -> None:
    await harness.machine_set(30)
    async with harness.running():
        await harness.set_with(counted(availableReplicas=30))
    assert len(await harness.machines()) == 30
    assert harness.machine_controller.most == 30


async def test_scale_subresource_changes_machine_set_replicas(harness: RolloutHarness) -> None:
    await harness.machine_set(1)
    async with harness.running():
        await harness.set_with(counted(availableReplicas=1))
        await harness.engine.client.patch(
            MACHINE_SET.target, harness.namespace, "ms", {"spec": {"replicas": 3}}, subresource="scale"
        )
        await harness.set_with(counted(availableReplicas=3))
        scale = await harness.engine.client.get(MACHINE_SET.target, harness.namespace, "ms", subresource="scale")
        assert b'"replicas":3' in scale.replace(b" ", b"")
        assert all(map(is_available, await harness.machines()))


def all_deleting(machines: list[Json]) -> bool:
    return bool(machines) and all("deletionTimestamp" in one["metadata"] for one in machines)


def pool_cluster(harness: RolloutHarness):  # type: ignore[no-untyped-def]
    from remuda.capi.types import CLUSTER

    return CLUSTER.target
