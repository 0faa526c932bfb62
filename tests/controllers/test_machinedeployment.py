"""The MachineDeployment controller over the MachineSet controller, on an engine; the test plays Machine controller and
providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from remuda.capi import names
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube import clock
from tests.controllers.engine import Engine, Json, condition, named
from tests.controllers.pools import Pool, counted, says
from tests.controllers.providers import NEW

DONE = counted(replicas=3, readyReplicas=3, availableReplicas=3, upToDateReplicas=3)
NEWER = {"template": {"spec": {"version": "v1.36.0"}}}


def rolling(surge: int | str, unavailable: int | str, **others: object) -> Json:
    update = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": update}, **others}


async def rolled(pool: Pool, version: str, count: int) -> None:
    """All Machines are of the version, and one set is left."""

    def done(machines: list[Json]) -> bool:
        return [machine["spec"]["version"] for machine in machines] == [version] * count

    await pool.engine.when(MACHINE.target, pool.namespace, done)
    await pool.engine.when(MACHINE_SET.target, pool.namespace, lambda sets: len(sets) == 1)


@pytest_asyncio.fixture(loop_scope="session")
async def pool(engine: Engine) -> AsyncIterator[Pool]:
    made = await Pool.create(engine, NEW)
    await made.cluster()
    await made.templates()
    yield made


async def test_deployment_creates_one_machine_set_with_its_settings(pool: Pool) -> None:
    await pool.deployment(
        3,
        {"annotations": {"team": "blue"}},
        machineNaming={"template": "{{ .machineSet.name }}-x{{ .random }}"},
        deletion={"order": "Oldest"},
        rollout=rolling(1, 0),
    )
    async with pool.running() as manager:
        found = await pool.deployment_with(DONE)
        await pool.settled(manager)
        assert manager.ledger.writes_by["machinedeployment", "create machinesets"] == 1
        assert manager.ledger.writes_by["machinedeployment", "patch machinesets"] == 0
    [one] = await pool.sets()
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
    for machine in await pool.machines():
        assert named(machine).startswith(f"{meta['name']}-x")
        assert machine["metadata"]["labels"][names.DEPLOYMENT_NAME] == "md"
        assert machine["metadata"]["labels"][names.SET_NAME] == meta["name"]


async def test_rolling_update_stays_within_surge_and_removes_old_set(pool: Pool) -> None:
    await pool.deployment(3, rollout=rolling(1, 0))
    async with pool.running() as manager:
        await pool.deployment_with(DONE)
        before = {named(machine) for machine in await pool.machines()}
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await rolled(pool, "v1.36.0", 3)
        await pool.deployment_with(DONE)
        await pool.settled(manager)
    machines = await pool.machines()
    assert {machine["spec"]["version"] for machine in machines} == {"v1.36.0"}
    assert not before & set(map(named, machines))
    assert pool.keeper.most == 4
    assert len(machines) == 3


async def test_stuck_rollout_stops_and_can_be_rolled_back(pool: Pool) -> None:
    await pool.deployment(3, rollout=rolling(1, 0))
    async with pool.running() as manager:
        await pool.deployment_with(DONE)
        before = {named(machine) for machine in await pool.machines()}
        pool.keeper.comes_up = lambda machine: machine["spec"]["version"] == "v1.35.0"
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        stuck = await pool.deployment_with(counted(replicas=4, availableReplicas=3, upToDateReplicas=1))
        await pool.settled(manager)
        old, new = await pool.sets()
        stuck = await pool.deployment_with(says("RollingOut", "False", text=f"MachineSet {named(new)}"))
        assert "waiting for 1 Machine" in condition(stuck, "RollingOut")["message"]
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (3, 1)
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"template": {"spec": {"version": "v1.35.0"}}})
        await rolled(pool, "v1.35.0", 3)
        await pool.deployment_with(DONE)
    assert {named(machine) for machine in await pool.machines()} == before
    [one] = await pool.sets()
    assert one["metadata"]["annotations"][names.REVISION_HISTORY] == "1"


async def test_changes_in_place_reach_machines_without_a_rollout(pool: Pool) -> None:
    await pool.deployment(2)
    async with pool.running() as manager:
        await pool.deployment_with(counted(availableReplicas=2))
        before = {machine["metadata"]["uid"] for machine in await pool.machines()}
        template = {
            "metadata": {"labels": {"tier": "gold"}},
            "spec": {"minReadySeconds": 7, "deletion": {"nodeDrainTimeoutSeconds": 5}},
        }
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"template": template, "deletion": {"order": "Newest"}})
        note = {"metadata": {"annotations": {"team": "red"}}}
        await pool.engine.patch(MACHINE_DEPLOYMENT.target, pool.namespace, "md", note)

        def handed_down(machines: list[Json]) -> bool:
            return all(
                machine["metadata"]["labels"].get("tier") == "gold" and machine["spec"].get("minReadySeconds") == 7
                for machine in machines
            )

        await pool.engine.when(MACHINE.target, pool.namespace, handed_down)
        await pool.engine.when(
            MACHINE_SET.target, pool.namespace, lambda sets: sets[0]["metadata"]["annotations"].get("team") == "red"
        )
        await pool.settled(manager)
    [one] = await pool.sets()
    assert one["spec"]["deletion"] == {"order": "Newest"}
    assert one["metadata"]["annotations"][names.REVISION] == "1"
    assert {machine["metadata"]["uid"] for machine in await pool.machines()} == before


async def test_on_delete_strategy_replaces_only_deleted_machines(pool: Pool) -> None:
    await pool.deployment(2, rollout={"strategy": {"type": "OnDelete"}})
    async with pool.running() as manager:
        await pool.deployment_with(counted(availableReplicas=2))
        first, second = await pool.machines()
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await pool.engine.when(MACHINE_SET.target, pool.namespace, lambda sets: len(sets) == 2)
        await pool.settled(manager)
        old, new = await pool.sets()
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (2, 0)
        assert old["metadata"]["annotations"][names.DISABLE_MACHINE_CREATE] == "true"
        for machine, left in ((first, 1), (second, 2)):
            await pool.engine.delete(MACHINE.target, pool.namespace, named(machine))
            await pool.deployment_with(counted(replicas=2, availableReplicas=2, upToDateReplicas=left))
        await rolled(pool, "v1.36.0", 2)
    assert pool.keeper.most == 2


async def test_paused_rollout_stops_but_still_scales(pool: Pool) -> None:
    await pool.deployment(4, rollout=rolling(2, 0))
    async with pool.running() as manager:
        await pool.deployment_with(counted(availableReplicas=4))
        pool.keeper.comes_up = lambda machine: machine["spec"]["version"] == "v1.35.0"
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", NEWER)
        await pool.deployment_with(counted(replicas=6))
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"paused": True, "replicas": 10})
        await pool.engine.when(
            MACHINE_SET.target, pool.namespace, lambda sets: sum(one["spec"]["replicas"] for one in sets) == 12
        )
        await pool.settled(manager)
        assert [one["spec"]["replicas"] for one in await pool.sets()] == [8, 4]
        async with pool.looking(manager):
            await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"template": {"spec": {"version": "v1.36.1"}}})
        assert len(await pool.sets()) == 2
        pool.keeper.comes_up = lambda machine: True
        await pool.keeper.again()
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"paused": None, "replicas": 3})
        await rolled(pool, "v1.36.1", 3)
        await pool.deployment_with(DONE)


async def test_rollout_after_replaces_machines_at_given_time(pool: Pool) -> None:
    await pool.deployment(1)
    async with pool.running():
        await pool.deployment_with(counted(availableReplicas=1))
        [before] = await pool.machines()
        soon = clock.rfc3339(clock.time() + 2)
        await pool.edit(MACHINE_DEPLOYMENT.target, "md", {"rollout": {"after": soon}})
        await pool.engine.when(MACHINE.target, pool.namespace, lambda all: list(map(named, all)) != [named(before)])
        assert clock.time() >= clock.parse(soon)
        await pool.engine.when(MACHINE_SET.target, pool.namespace, lambda sets: len(sets) == 1)
        found = await pool.deployment_with(counted(availableReplicas=1, upToDateReplicas=1))
        assert found["metadata"]["annotations"][names.REVISION] == "2"
    assert named(before) not in map(named, await pool.machines())


async def test_deployment_adopts_matching_machine_set(pool: Pool) -> None:
    await pool.machine_set(2)
    async with pool.running() as manager:
        await pool.set_with(counted(availableReplicas=2))
        before = {named(machine) for machine in await pool.machines()}
        labels = {"metadata": {"labels": {"pool": "a"}}}
        await pool.engine.patch(MACHINE_SET.target, pool.namespace, "ms", labels)
        await pool.deployment(2)
        await pool.deployment_with(counted(availableReplicas=2, upToDateReplicas=2))
        await pool.settled(manager)
    assert [named(one) for one in await pool.sets()] == ["ms"]
    assert {named(machine) for machine in await pool.machines()} == before


async def test_deployment_waits_for_templates_before_creating_set(pool: Pool) -> None:
    await pool.deployment(1, template=pool.template("later"))
    async with pool.running():
        found = await pool.deployment_with(says("ScalingUp", "True", text="does not exist"))
        assert condition(found, "Available")["status"] == "False"
        assert await pool.sets() == []
        await pool.templates("later")
        await pool.deployment_with(counted(availableReplicas=1))


async def test_scale_subresource_changes_deployment_replicas(pool: Pool) -> None:
    await pool.deployment(1)
    async with pool.running():
        await pool.deployment_with(counted(availableReplicas=1))
        for size in (3, 2):
            await pool.engine.client.patch(
                MACHINE_DEPLOYMENT.target, pool.namespace, "md", {"spec": {"replicas": size}}, subresource="scale"
            )
            await pool.deployment_with(counted(replicas=size, availableReplicas=size))


async def test_deployment_is_deleted_after_its_sets_and_machines(pool: Pool) -> None:
    pool.keeper.goes = lambda machine: False
    await pool.deployment(2)
    async with pool.running():
        await pool.deployment_with(counted(availableReplicas=2))
        await pool.engine.delete(MACHINE_DEPLOYMENT.target, pool.namespace, "md")
        await pool.deployment_with(says("Deleting", "True", text="Deleting 2 Machines"))
        pool.keeper.goes = lambda machine: True
        await pool.keeper.again()
        await pool.engine.gone(MACHINE_DEPLOYMENT.target, pool.namespace, "md")
    assert (await pool.machines(), await pool.sets()) == ([], [])


async def test_settled_deployment_writes_nothing(pool: Pool) -> None:
    await pool.deployment(2)
    async with pool.running() as manager:
        await pool.deployment_with(counted(availableReplicas=2))
        await pool.settled(manager)
        before = manager.ledger.writes
        for target, name in ((MACHINE_DEPLOYMENT.target, "md"), (MACHINE.target, named((await pool.machines())[0]))):
            note = {"metadata": {"annotations": {"cluster.x-k8s.io/conversion-data": "{}"}}}
            async with pool.looking(manager):
                await pool.engine.patch(target, pool.namespace, name, note)
        assert manager.ledger.writes == before
