"""The MachineDeployment controller over the MachineSet controller, on an engine; the test plays Machine controller and
providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from remuda.capi import names
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube import clock
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.providers import NEW
from tests.controllers.rollout_harness import RolloutHarness, counted, says

DONE = counted(replicas=3, readyReplicas=3, availableReplicas=3, upToDateReplicas=3)
NEWER = {"template": {"spec": {"version": "v1.36.0"}}}


def rolling(surge: int | str, unavailable: int | str, **others: object) -> Json:
    update = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": update}, **others}


async def rolled(harness: RolloutHarness, version: str, count: int) -> None:
    """All Machines are of the version, and one set is left."""

    def done(machines: list[Json]) -> bool:
        return [machine["spec"]["version"] for machine in machines] == [version] * count

    await harness.engine.when(MACHINE.target, harness.namespace, done)
    await harness.engine.when(MACHINE_SET.target, harness.namespace, lambda sets: len(sets) == 1)


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> AsyncIterator[RolloutHarness]:
    made = await RolloutHarness.create(engine, NEW)
    await made.cluster()
    await made.templates()
    yield made


async def test_deployment_creates_one_machine_set_with_its_settings(harness: RolloutHarness) -> None:
    await harness.deployment(
        3,
        {"annotations": {"team": "blue"}},
        machineNaming={"template": "{{ .machineSet.name }}-x{{ .random }}"},
        deletion={"order": "Oldest"},
        rollout=rolling(1, 0),
    )
    async with harness.running() as manager:
        found = await harness.deployment_with(DONE)
        await harness.settled(manager)
        assert manager.ledger.writes_by["machinedeployment", "create machinesets"] == 1
        assert manager.ledger.writes_by["machinedeployment", "patch machinesets"] == 0
    [one] = await harness.sets()
    meta, spec = one["metadata"], one["spec"]
    hash = meta["labels"][names.TEMPLATE_HASH]
    assert meta["name"].startswith("md-")
    assert hash.endswith(meta["name"].removeprefix("md"))
    own = {"pool": "a", names.CLUSTER_NAME: "c", names.DEPLOYMENT_NAME: "md", names.TEMPLATE_HASH: hash}
    assert meta["labels"] == spec["template"]["metadata"]["labels"] == own
    assert spec["selector"]["matchLabels"].items() >= {"pool": "a", names.TEMPLATE_HASH: hash}.items()
    assert (spec["replicas"], spec["deletion"]) == (3, {"order": "Oldest"})
    notes = meta["annotations"]
    assert (notes["team"], notes[names.REVISION]) == ("blue", "1")
    assert (notes[names.DESIRED_REPLICAS], notes[names.MAX_REPLICAS]) == ("3", "4")
    assert found["metadata"]["annotations"][names.REVISION] == "1"
    assert found["metadata"]["finalizers"] == [names.MACHINE_DEPLOYMENT_FINALIZER]
    assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Cluster"]
    assert found["status"]["phase"] == "Running"
    assert found["status"]["versions"] == [{"version": "v1.35.0", "replicas": 3}]
    for machine in await harness.machines():
        assert named(machine).startswith(f"{meta['name']}-x")
        assert machine["metadata"]["labels"][names.DEPLOYMENT_NAME] == "md"
        assert machine["metadata"]["labels"][names.SET_NAME] == meta["name"]


async def test_rolling_update_stays_within_surge_and_removes_old_set(harness: RolloutHarness) -> None:
    await harness.deployment(3, rollout=rolling(1, 0))
    async with harness.running() as manager:
        await harness.deployment_with(DONE)
        before = {named(machine) for machine in await harness.machines()}
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await rolled(harness, "v1.36.0", 3)
        await harness.deployment_with(DONE)
        await harness.settled(manager)
    machines = await harness.machines()
    assert {machine["spec"]["version"] for machine in machines} == {"v1.36.0"}
    assert not before & set(map(named, machines))
    assert harness.machine_controller.most == 4
    assert len(machines) == 3


async def test_stuck_rollout_stops_and_can_be_rolled_back(harness: RolloutHarness) -> None:
    await harness.deployment(3, rollout=rolling(1, 0))
    async with harness.running() as manager:
        await harness.deployment_with(DONE)
        before = {named(machine) for machine in await harness.machines()}
        harness.machine_controller.comes_up = lambda machine: machine["spec"]["version"] == "v1.35.0"
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        stuck = await harness.deployment_with(counted(replicas=4, availableReplicas=3, upToDateReplicas=1))
        await harness.settled(manager)
        old, new = await harness.sets()
        stuck = await harness.deployment_with(says("RollingOut", "False", text=f"MachineSet {named(new)}"))
        assert "waiting for 1 Machine" in condition(stuck, "RollingOut")["message"]
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (3, 1)
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"template": {"spec": {"version": "v1.35.0"}}})
        await rolled(harness, "v1.35.0", 3)
        await harness.deployment_with(DONE)
    assert {named(machine) for machine in await harness.machines()} == before
    [one] = await harness.sets()
    assert one["metadata"]["annotations"][names.REVISION_HISTORY] == "1"


async def test_changes_in_place_reach_machines_without_a_rollout(harness: RolloutHarness) -> None:
    await harness.deployment(2)
    async with harness.running() as manager:
        await harness.deployment_with(counted(availableReplicas=2))
        before = {machine["metadata"]["uid"] for machine in await harness.machines()}
        template = {
            "metadata": {"labels": {"tier": "gold"}},
            "spec": {"minReadySeconds": 7, "deletion": {"nodeDrainTimeoutSeconds": 5}},
        }
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"template": template, "deletion": {"order": "Newest"}})
        note = {"metadata": {"annotations": {"team": "red"}}}
        await harness.engine.patch(MACHINE_DEPLOYMENT.target, harness.namespace, "md", note)

        def propagated(machines: list[Json]) -> bool:
            return all(
                machine["metadata"]["labels"].get("tier") == "gold" and machine["spec"].get("minReadySeconds") == 7
                for machine in machines
            )

        await harness.engine.when(MACHINE.target, harness.namespace, propagated)
        await harness.engine.when(
            MACHINE_SET.target, harness.namespace, lambda sets: sets[0]["metadata"]["annotations"].get("team") == "red"
        )
        await harness.settled(manager)
    [one] = await harness.sets()
    assert one["spec"]["deletion"] == {"order": "Newest"}
    assert one["metadata"]["annotations"][names.REVISION] == "1"
    assert {machine["metadata"]["uid"] for machine in await harness.machines()} == before


async def test_on_delete_strategy_replaces_only_deleted_machines(harness: RolloutHarness) -> None:
    await harness.deployment(2, rollout={"strategy": {"type": "OnDelete"}})
    async with harness.running() as manager:
        await harness.deployment_with(counted(availableReplicas=2))
        first, second = await harness.machines()
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await harness.engine.when(MACHINE_SET.target, harness.namespace, lambda sets: len(sets) == 2)
        await harness.settled(manager)
        old, new = await harness.sets()
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (2, 0)
        assert old["metadata"]["annotations"][names.DISABLE_MACHINE_CREATE] == "true"
        for machine, left in ((first, 1), (second, 2)):
            await harness.engine.delete(MACHINE.target, harness.namespace, named(machine))
            await harness.deployment_with(counted(replicas=2, availableReplicas=2, upToDateReplicas=left))
        await rolled(harness, "v1.36.0", 2)
    assert harness.machine_controller.most == 2


async def test_paused_rollout_stops_but_still_scales(harness: RolloutHarness) -> None:
    await harness.deployment(4, rollout=rolling(2, 0))
    async with harness.running() as manager:
        await harness.deployment_with(counted(availableReplicas=4))
        harness.machine_controller.comes_up = lambda machine: machine["spec"]["version"] == "v1.35.0"
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await harness.deployment_with(counted(replicas=6))
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"paused": True, "replicas": 10})
        await harness.engine.when(
            MACHINE_SET.target, harness.namespace, lambda sets: sum(one["spec"]["replicas"] for one in sets) == 12
        )
        await harness.settled(manager)
        assert [one["spec"]["replicas"] for one in await harness.sets()] == [8, 4]
        async with harness.until_reconciled(manager):
            await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"template": {"spec": {"version": "v1.36.1"}}})
        assert len(await harness.sets()) == 2
        harness.machine_controller.comes_up = lambda machine: True
        await harness.machine_controller.reconcile_all()
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"paused": None, "replicas": 3})
        await rolled(harness, "v1.36.1", 3)
        await harness.deployment_with(DONE)


async def test_rollout_after_replaces_machines_at_given_time(harness: RolloutHarness) -> None:
    await harness.deployment(1)
    async with harness.running():
        await harness.deployment_with(counted(availableReplicas=1))
        [before] = await harness.machines()
        soon = clock.rfc3339(clock.time() + 2)
        await harness.edit(MACHINE_DEPLOYMENT.target, "md", {"rollout": {"after": soon}})
        await harness.engine.when(
            MACHINE.target, harness.namespace, lambda all: list(map(named, all)) != [named(before)]
        )
        assert clock.time() >= clock.parse(soon)
        await harness.engine.when(MACHINE_SET.target, harness.namespace, lambda sets: len(sets) == 1)
        found = await harness.deployment_with(counted(availableReplicas=1, upToDateReplicas=1))
        assert found["metadata"]["annotations"][names.REVISION] == "2"
    assert named(before) not in map(named, await harness.machines())


async def test_deployment_adopts_matching_machine_set(harness: RolloutHarness) -> None:
    await harness.machine_set(2)
    async with harness.running() as manager:
        await harness.set_with(counted(availableReplicas=2))
        before = {named(machine) for machine in await harness.machines()}
        labels = {"metadata": {"labels": {"pool": "a"}}}
        await harness.engine.patch(MACHINE_SET.target, harness.namespace, "ms", labels)
        await harness.deployment(2)
        await harness.deployment_with(counted(availableReplicas=2, upToDateReplicas=2))
        await harness.settled(manager)
    assert [named(one) for one in await harness.sets()] == ["ms"]
    assert {named(machine) for machine in await harness.machines()} == before


async def test_deployment_waits_for_templates_before_creating_set(harness: RolloutHarness) -> None:
    await harness.deployment(1, template=harness.template("later"))
    async with harness.running():
        found = await harness.deployment_with(says("ScalingUp", "True", text="does not exist"))
        assert condition(found, "Available")["status"] == "False"
        assert await harness.sets() == []
        await harness.templates("later")
        await harness.deployment_with(counted(availableReplicas=1))


async def test_scale_subresource_changes_deployment_replicas(harness: RolloutHarness) -> None:
    await harness.deployment(1)
    async with harness.running():
        await harness.deployment_with(counted(availableReplicas=1))
        for size in (3, 2):
            await harness.engine.client.patch(
                MACHINE_DEPLOYMENT.target, harness.namespace, "md", {"spec": {"replicas": size}}, subresource="scale"
            )
            await harness.deployment_with(counted(replicas=size, availableReplicas=size))


async def test_deployment_is_deleted_after_its_sets_and_machines(harness: RolloutHarness) -> None:
    harness.machine_controller.goes = lambda machine: False
    await harness.deployment(2)
    async with harness.running():
        await harness.deployment_with(counted(availableReplicas=2))
        await harness.engine.delete(MACHINE_DEPLOYMENT.target, harness.namespace, "md")
        await harness.deployment_with(says("Deleting", "True", text="Deleting 2 Machines"))
        harness.machine_controller.goes = lambda machine: True
        await harness.machine_controller.reconcile_all()
        await harness.engine.gone(MACHINE_DEPLOYMENT.target, harness.namespace, "md")
    assert (await harness.machines(), await harness.sets()) == ([], [])


async def test_settled_deployment_writes_nothing(harness: RolloutHarness) -> None:
    await harness.deployment(2)
    async with harness.running() as manager:
        await harness.deployment_with(counted(availableReplicas=2))
        await harness.settled(manager)
        before = manager.ledger.writes
        for target, name in ((MACHINE_DEPLOYMENT.target, "md"), (MACHINE.target, named((await harness.machines())[0]))):
            note = {"metadata": {"annotations": {"cluster.x-k8s.io/conversion-data": "{}"}}}
            async with harness.until_reconciled(manager):
                await harness.engine.patch(target, harness.namespace, name, note)
        assert manager.ledger.writes == before
