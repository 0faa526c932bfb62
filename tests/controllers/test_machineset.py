"""The MachineSet controller on an engine; the test plays the Machine controller and the providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from remuda.capi import names
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_SET
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.pools import Pool, counted, is_available, says
from tests.controllers.providers import PROVIDERS, Provider


@pytest_asyncio.fixture(params=PROVIDERS, ids=lambda provider: provider.contract, loop_scope="session")
async def pool(engine: Engine, request: pytest.FixtureRequest) -> AsyncIterator[Pool]:
    provider: Provider = request.param
    made = await Pool.create(engine, provider)
    await made.cluster()
    await made.templates()
    yield made


async def test_machine_set_creates_machines_with_owned_provider_objects(pool: Pool) -> None:
    await pool.machine_set(3, template=pool.template(metadata={"annotations": {"note": "x"}}))
    async with pool.running():
        await pool.set_with(counted(replicas=3, readyReplicas=3, availableReplicas=3))
    made = await pool.machines()
    for machine in made:
        meta = machine["metadata"]
        assert meta["finalizers"] == [names.MACHINE_FINALIZER]
        assert meta["annotations"]["note"] == "x"
        assert meta["labels"] == {"pool": "a", names.CLUSTER_NAME: "c", names.SET_NAME: "ms"}
        assert [owner["kind"] for owner in meta["ownerReferences"] if owner["controller"]] == ["MachineSet"]
        for kind, ref in (
            (pool.provider.machine, machine["spec"]["infrastructureRef"]),
            (pool.provider.config, machine["spec"]["bootstrap"]["configRef"]),
        ):
            assert ref == kind.reference(named(machine))
            obj = await pool.engine.get(kind.target, pool.namespace, named(machine))
            assert obj is not None
            assert obj["spec"] == {"size": "t"}
            assert obj["metadata"]["labels"] == meta["labels"]
            assert obj["metadata"]["annotations"]["note"] == "x"
            assert obj["metadata"]["annotations"][names.CLONED_FROM_NAME] == "t"
            [owner] = obj["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (meta["uid"], True)


async def test_unowned_machine_set_and_templates_become_owned_by_cluster(pool: Pool) -> None:
    await pool.machine_set(1)
    async with pool.running():
        found = await pool.set_with(counted(replicas=1))
    assert found["metadata"]["finalizers"] == [names.MACHINE_SET_FINALIZER]
    assert found["metadata"]["labels"][names.CLUSTER_NAME] == "c"
    for kind in (pool.provider.machine.template, pool.provider.config.template):
        template = await pool.engine.get(kind.target, pool.namespace, "t")
        assert template is not None
        assert [owner["kind"] for owner in template["metadata"]["ownerReferences"]] == ["Cluster"]
        assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Cluster"]


async def test_settled_machine_set_writes_nothing(pool: Pool) -> None:
    await pool.machine_set(2)
    async with pool.running() as manager:
        await pool.set_with(counted(availableReplicas=2))
        await pool.settled(manager)
        before = manager.ledger.writes
        note = {"metadata": {"annotations": {"somebody": "else"}}}
        async with pool.looking(manager):
            await pool.engine.patch(MACHINE_SET.target, pool.namespace, "ms", note)
        assert manager.ledger.writes == before


async def test_missing_provider_objects_are_recreated_after_crash(pool: Pool) -> None:
    await pool.machine_set(2)
    async with pool.running():
        await pool.set_with(counted(replicas=2))
    first, second = sorted(map(named, await pool.machines()))
    await pool.engine.delete(pool.provider.config.target, pool.namespace, first)
    await pool.engine.delete(pool.provider.machine.target, pool.namespace, first)
    await pool.engine.delete(pool.provider.machine.target, pool.namespace, second)
    async with pool.running():
        for kind, name in (
            (pool.provider.config, first),
            (pool.provider.machine, first),
            (pool.provider.machine, second),
        ):
            await pool.engine.until(kind.target, pool.namespace, name, lambda obj: True)
    assert sorted(map(named, await pool.machines())) == [first, second]


async def test_provisioned_infrastructure_is_never_recreated(pool: Pool) -> None:
    await pool.machine_set(1)
    async with pool.running() as manager:
        await pool.set_with(counted(availableReplicas=1))
        [machine] = await pool.machines()
        await pool.engine.patch(MACHINE.target, pool.namespace, named(machine), {"spec": {"providerID": "x://1"}})
        await pool.engine.delete(pool.provider.machine.target, pool.namespace, named(machine))
        await pool.edit(MACHINE_SET.target, "ms", {"template": {"spec": {"minReadySeconds": 5}}})
        await pool.engine.until(
            MACHINE.target, pool.namespace, named(machine), lambda one: one["spec"].get("minReadySeconds") == 5
        )
        await pool.settled(manager)
    assert await pool.engine.get(pool.provider.machine.target, pool.namespace, named(machine)) is None


async def test_scale_down_deletes_unhealthy_and_marked_machines_first(pool: Pool) -> None:
    pool.keeper.comes_up = lambda machine: named(machine) != "sick"
    await pool.machine_set(3, deletion={"order": "Oldest"})
    async with pool.running():
        await pool.set_with(counted(availableReplicas=3))
        sick = sorted(map(named, await pool.machines()))[-1]
        pool.keeper.comes_up = lambda machine: named(machine) != sick
        await pool.mark(sick, False)
        await pool.set_with(counted(availableReplicas=2))
        await pool.edit(MACHINE_SET.target, "ms", {"replicas": 2})
        await pool.set_with(counted(replicas=2, availableReplicas=2))
        assert sick not in map(named, await pool.machines())
        await pool.engine.patch(
            MACHINE.target,
            pool.namespace,
            (marked := named((await pool.machines())[1])),
            {"metadata": {"annotations": {names.DELETE_MACHINE: ""}}},
        )
        await pool.edit(MACHINE_SET.target, "ms", {"replicas": 1})
        await pool.set_with(counted(replicas=1))
        assert marked not in map(named, await pool.machines())
        assert len(await pool.machines()) == 1


async def test_slow_deletion_deletes_no_other_machine(pool: Pool) -> None:
    """rancher/rancher#43173: removing one node removed two."""
    pool.keeper.goes = lambda machine: False
    await pool.machine_set(3)
    async with pool.running() as manager:
        await pool.set_with(counted(availableReplicas=3))
        await pool.edit(MACHINE_SET.target, "ms", {"replicas": 2})
        found = await pool.set_with(counted(replicas=3, availableReplicas=2))
        assert condition(found, "ScalingDown")["message"] == "Scaling down from 3 to 2 replicas"
        for machine in await pool.machines():
            note = {"metadata": {"annotations": {"touched": "yes"}}}
            await pool.engine.patch(MACHINE.target, pool.namespace, named(machine), note)
        await pool.settled(manager)
        leaving = [one for one in await pool.machines() if "deletionTimestamp" in one["metadata"]]
        assert len(leaving) == 1


async def test_missing_template_blocks_scale_up_until_created(pool: Pool) -> None:
    await pool.machine_set(1, template=pool.template("later"))
    async with pool.running():
        found = await pool.set_with(says("ScalingUp", "True", text="is blocked because"))
        kind = pool.provider.config.template.name
        assert f"* {kind} {pool.namespace}/later does not exist" in condition(found, "ScalingUp")["message"]
        assert condition(found, "ScalingUp")["reason"] == "ScalingUpBlocked"
        assert await pool.machines() == []
        await pool.templates("later")
        await pool.set_with(counted(availableReplicas=1))
    [machine] = await pool.machines()
    server = await pool.engine.get(pool.provider.machine.target, pool.namespace, named(machine))
    assert server is not None
    assert server["spec"] == {"size": "later"}


async def test_scale_up_waits_for_provisioning_control_plane(pool: Pool) -> None:
    control_plane = pool.provider.control_plane
    await pool.engine.patch(
        CLUSTER.target, pool.namespace, "c", {"spec": {"controlPlaneRef": control_plane.reference("cp")}}
    )
    await pool.engine.create(control_plane.target, pool.namespace, control_plane.object("cp", {"version": "v1.35.0"}))
    await pool.machine_set(1)
    async with pool.running():
        found = await pool.set_with(says("ScalingUp", "True", text="is provisioning"))
        assert condition(found, "ScalingUp")["reason"] == "ScalingUp"  # it passes by itself
        assert await pool.machines() == []
        await pool.engine.status(control_plane.target, pool.namespace, "cp", {"version": "v1.35.0"})
        await pool.engine.status(CLUSTER.target, pool.namespace, "c", {"controlPlane": {"replicas": 1}})
        await pool.set_with(counted(availableReplicas=1))


async def test_machine_set_adopts_matching_orphan_machine(pool: Pool) -> None:
    orphan = {
        "apiVersion": MACHINE.api_version,
        "kind": "Machine",
        "metadata": {"name": "orphan", "labels": {"pool": "a"}},
        "spec": {
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "given"},
            "infrastructureRef": pool.provider.machine.reference("own"),
        },
    }
    await pool.engine.create(MACHINE.target, pool.namespace, orphan)
    stranger = orphan | {"metadata": {"name": "stranger", "labels": {"pool": "b"}}}
    await pool.engine.create(MACHINE.target, pool.namespace, stranger)
    await pool.machine_set(2)
    async with pool.running():
        await pool.set_with(counted(replicas=2))
        adopted = await pool.engine.get(MACHINE.target, pool.namespace, "orphan")
        assert adopted is not None
        assert adopted["metadata"]["ownerReferences"][0]["name"] == "ms"
        assert len(await pool.machines()) == 3
    assert await pool.engine.get(pool.provider.machine.target, pool.namespace, "own") is None


async def test_template_changes_are_propagated_in_place(pool: Pool) -> None:
    await pool.machine_set(1, template=pool.template(labels={"going": "yes"}, metadata={"annotations": {"old": "1"}}))
    async with pool.running() as manager:
        await pool.set_with(counted(availableReplicas=1))
        [machine] = await pool.machines()
        await pool.engine.patch(
            MACHINE.target, pool.namespace, named(machine), {"metadata": {"labels": {"by": "somebody"}}}
        )
        template = {
            "metadata": {"labels": {"going": None, "coming": "yes"}, "annotations": {"old": None, "new": "2"}},
            "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}, "readinessGates": [{"conditionType": "Mine"}]},
        }
        await pool.edit(MACHINE_SET.target, "ms", {"template": template})
        changed = await pool.engine.until(
            MACHINE.target, pool.namespace, named(machine), lambda one: "coming" in one["metadata"]["labels"]
        )
        await pool.settled(manager)
        assert changed["metadata"]["uid"] == machine["metadata"]["uid"]
        labels = changed["metadata"]["labels"]
        assert (labels["coming"], labels["by"]) == ("yes", "somebody")
        assert "going" not in labels
        assert changed["metadata"]["annotations"] == {"new": "2"}
        assert changed["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 60
        assert changed["spec"]["readinessGates"][0]["conditionType"] == "Mine"
        for kind in (pool.provider.machine, pool.provider.config):
            obj = await pool.engine.get(kind.target, pool.namespace, named(machine))
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


async def test_machine_that_failed_health_check_is_replaced(pool: Pool) -> None:
    pool.keeper.goes = lambda machine: False
    await pool.machine_set(2)
    async with pool.running():
        await pool.set_with(counted(availableReplicas=2))
        sick = named((await pool.machines())[0])
        pool.keeper.comes_up = lambda machine: named(machine) != sick
        await pool.mark(sick, False, *unhealthy())
        leaving = await pool.engine.until(
            MACHINE.target, pool.namespace, sick, lambda one: "deletionTimestamp" in one["metadata"]
        )
        assert condition(leaving, "OwnerRemediated")["reason"] == "MachineDeleting"
        await pool.set_with(says("Remediating", "True"))
        assert len(await pool.machines()) == 2
        pool.keeper.goes = lambda machine: True
        await pool.keeper.again()
        await pool.set_with(counted(replicas=2, availableReplicas=2))
        assert sick not in map(named, await pool.machines())
    [told] = await pool.events("MachineRemediated")
    assert told == f"Deleted Machine {sick}: HealthCheckSucceeded: Node is not ready"


async def test_disable_machine_create_annotation_prevents_creation(pool: Pool) -> None:
    await pool.machine_set(1, metadata={"annotations": {names.DISABLE_MACHINE_CREATE: "true"}})
    async with pool.running():
        await pool.set_with(says("ScalingUp", "True", text=names.DISABLE_MACHINE_CREATE))
        assert await pool.machines() == []


async def test_paused_machine_set_is_not_reconciled(pool: Pool) -> None:
    await pool.machine_set(1, metadata={"annotations": {names.PAUSED: ""}})
    async with pool.running():
        await pool.set_with(says("Paused", "True"))
        assert await pool.machines() == []
        await pool.engine.patch(
            MACHINE_SET.target, pool.namespace, "ms", {"metadata": {"annotations": {names.PAUSED: None}}}
        )
        found = await pool.set_with(counted(availableReplicas=1))
        assert condition(found, "Paused")["status"] == "False"


async def test_machine_set_is_deleted_after_its_machines(pool: Pool) -> None:
    pool.keeper.goes = lambda machine: False
    await pool.machine_set(2)
    async with pool.running():
        await pool.set_with(counted(availableReplicas=2))
        await pool.engine.delete(MACHINE_SET.target, pool.namespace, "ms")
        await pool.set_with(says("Deleting", "True", text="Deleting 2 Machines"))
        await pool.engine.when(MACHINE.target, pool.namespace, lambda all: all_deleting(all))
        pool.keeper.goes = lambda machine: True
        await pool.keeper.again()
        await pool.engine.gone(MACHINE_SET.target, pool.namespace, "ms")
    assert await pool.machines() == []


async def test_machine_set_creates_thirty_machines(pool: Pool) -> None:
    await pool.machine_set(30)
    async with pool.running():
        await pool.set_with(counted(availableReplicas=30))
    assert len(await pool.machines()) == 30
    assert pool.keeper.most == 30


async def test_scale_subresource_changes_machine_set_replicas(pool: Pool) -> None:
    await pool.machine_set(1)
    async with pool.running():
        await pool.set_with(counted(availableReplicas=1))
        await pool.engine.client.patch(
            MACHINE_SET.target, pool.namespace, "ms", {"spec": {"replicas": 3}}, subresource="scale"
        )
        await pool.set_with(counted(availableReplicas=3))
        scale = await pool.engine.client.get(MACHINE_SET.target, pool.namespace, "ms", subresource="scale")
        assert b'"replicas":3' in scale.replace(b" ", b"")
        assert all(map(is_available, await pool.machines()))


def all_deleting(machines: list[Json]) -> bool:
    return bool(machines) and all("deletionTimestamp" in one["metadata"] for one in machines)


def pool_cluster(pool: Pool):  # type: ignore[no-untyped-def]
    from remuda.capi.types import CLUSTER

    return CLUSTER.target
