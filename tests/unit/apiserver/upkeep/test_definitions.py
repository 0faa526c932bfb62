"""Definitions get their names one by one, serve what they say, and are emptied before they go."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.kube.client import Target
from tests.unit.apiserver.engine import CRDS, Engine, definition, held, loads, refusal, version

WIDGETS = Target("test.io/v1", "widgets")


def status(engine: Engine, name: str, kind: str) -> tuple[str, str]:
    return engine.condition(CRDS, name, kind), engine.condition(CRDS, name, kind, "reason")


def accepted(engine: Engine, name: str) -> dict[str, Any]:
    found = engine.find(CRDS, "", name)
    assert found is not None
    names: dict[str, Any] = found["status"]["acceptedNames"]
    return names


async def wait_for(engine: Engine, name: str, kind: str, value: str) -> None:
    await engine.eventually(lambda: engine.condition(CRDS, name, kind) == value)


# ---- names -------------------------------------------------------------------------------------------------------


async def test_crd_with_unused_names_is_established_and_served(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"], categories=["all"]))
    assert status(engine, "widgets.test.io", "NamesAccepted") == ("True", "NoConflicts")
    assert status(engine, "widgets.test.io", "Established") == ("True", "InitialNamesAccepted")
    assert accepted(engine, "widgets.test.io") == {
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["w"],
        "kind": "Widget",
        "listKind": "WidgetList",
        "categories": ["all"],
    }
    assert (await engine.create(WIDGETS, "ns", {"metadata": {"name": "w"}}))["kind"] == "Widget"


async def test_crd_with_conflicting_name_is_established_once_name_is_free(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.create(CRDS, "", definition("wires", shortNames=["w", "wi"]))
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    assert status(engine, "wires.test.io", "NamesAccepted") == ("False", "ShortNamesConflict")
    assert engine.condition(CRDS, "wires.test.io", "NamesAccepted", "message") == '"w" is already in use'
    assert status(engine, "wires.test.io", "Established") == ("False", "NotAccepted")
    assert "shortNames" not in accepted(engine, "wires.test.io")
    assert engine.registry.resources.find("test.io", "v1", "wires") is None
    await engine.delete(CRDS, "", "widgets.test.io")
    await wait_for(engine, "wires.test.io", "Established", "True")
    assert accepted(engine, "wires.test.io")["shortNames"] == ["w", "wi"]


async def test_released_crd_name_is_accepted_for_waiting_crd(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.create(CRDS, "", definition("wires", shortNames=["w"]))
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    await engine.patch(CRDS, "", "widgets.test.io", {"spec": {"names": {"shortNames": ["wdg"]}}})
    await wait_for(engine, "wires.test.io", "Established", "True")
    assert accepted(engine, "widgets.test.io")["shortNames"] == ["wdg"]


async def test_established_crd_keeps_names_when_new_names_conflict(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.define(definition("wires", shortNames=["wi"]))
    await engine.patch(CRDS, "", "wires.test.io", {"spec": {"names": {"shortNames": ["w"], "categories": ["all"]}}})
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    assert status(engine, "wires.test.io", "Established") == ("True", "InitialNamesAccepted")
    assert accepted(engine, "wires.test.io")["shortNames"] == ["wi"]
    assert accepted(engine, "wires.test.io")["categories"] == ["all"]
    served = engine.registry.resources.find("test.io", "v1", "wires")
    assert served is not None
    assert served.short_names == ("wi",)


async def test_crd_names_do_not_conflict_across_groups(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.define(definition(group="other.io", shortNames=["w"]))


async def test_conflicting_crd_short_name_is_granted_to_a_single_crd(engine: Engine) -> None:
    plurals = [f"kind{i}s" for i in range(12)]
    bodies = [definition(plural, shortNames=["same"]) for plural in plurals]
    await asyncio.gather(*(engine.create(CRDS, "", body) for body in bodies))
    names = [f"{plural}.test.io" for plural in plurals]
    await engine.eventually(lambda: all(engine.condition(CRDS, name, "NamesAccepted") for name in names))
    await engine.settled()
    assert len([name for name in names if engine.condition(CRDS, name, "Established") == "True"]) == 1


async def test_settled_crds_are_not_written_at_restart(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.create(CRDS, "", definition("wires", shortNames=["w"]))
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    await engine.settled()
    before = engine.store.revision
    await engine.restart()
    await engine.settled()
    assert engine.store.revision == before


async def test_crd_name_conflict_is_resolved_after_restart(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.create(CRDS, "", definition("wires", shortNames=["w"]))
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    await engine.restart()
    await engine.delete(CRDS, "", "widgets.test.io")
    await wait_for(engine, "wires.test.io", "Established", "True")


# ---- versions and schemas ----------------------------------------------------------------------------------------


async def test_custom_objects_are_readable_in_every_served_version(engine: Engine) -> None:
    body = definition()
    body["spec"]["versions"] = [version("v1beta1"), version("v1", storage=True), version("v0", served=False)]
    await engine.define(body)
    old = Target("test.io/v1beta1", "widgets")
    await engine.create(old, "ns", {"metadata": {"name": "w"}, "spec": {"size": 3}})
    assert loads(await engine.client.get(WIDGETS, "ns", "w"))["apiVersion"] == "test.io/v1"
    assert (engine.find(WIDGETS, "ns", "w") or {})["apiVersion"] == "test.io/v1"
    assert engine.registry.resources.find("test.io", "v0", "widgets") is None


async def test_crd_stored_versions_are_kept_until_removed_from_status(engine: Engine) -> None:
    body = definition()
    body["spec"]["versions"] = [version("v1", storage=True), version("v2")]
    await engine.define(body)

    def stored() -> list[str]:
        versions: list[str] = (engine.find(CRDS, "", "widgets.test.io") or {})["status"]["storedVersions"]
        return versions

    assert stored() == ["v1"]
    moved = {"spec": {"versions": [version("v1"), version("v2", storage=True)]}}
    await engine.patch(CRDS, "", "widgets.test.io", moved)
    assert stored() == ["v1", "v2"]
    only = {"spec": {"versions": [version("v2", storage=True)]}}
    error = await refusal(engine.patch(CRDS, "", "widgets.test.io", only))
    assert error.code == 422
    assert "status.storedVersions[0]" in error.message
    await engine.patch(CRDS, "", "widgets.test.io", {"status": {"storedVersions": ["v2"]}}, "status")
    await engine.patch(CRDS, "", "widgets.test.io", only)
    assert stored() == ["v2"]


async def test_new_schema_defaults_apply_to_existing_objects_on_read(engine: Engine) -> None:
    body = definition()
    body["spec"]["versions"] = [version("v1", storage=True, spec={"size": {"type": "integer"}})]
    await engine.define(body)
    await engine.create(WIDGETS, "ns", {"metadata": {"name": "old"}, "spec": {"size": 1}})
    colour = {"size": {"type": "integer"}, "colour": {"type": "string", "default": "red"}}
    await engine.patch(CRDS, "", "widgets.test.io", {"spec": {"versions": [version("v1", storage=True, spec=colour)]}})
    assert loads(await engine.client.get(WIDGETS, "ns", "old"))["spec"] == {"size": 1, "colour": "red"}
    listed = (await engine.client.list(WIDGETS, "ns")).items
    assert loads(listed[0])["spec"]["colour"] == "red"
    await engine.restart()
    assert loads(await engine.client.get(WIDGETS, "ns", "old"))["spec"]["colour"] == "red"


async def test_unserved_crd_version_is_removed_immediately(engine: Engine) -> None:
    body = definition()
    body["spec"]["versions"] = [version("v1", storage=True), version("v2")]
    await engine.define(body)
    fewer = {"spec": {"versions": [version("v1", storage=True), version("v2", served=False)]}}
    await engine.patch(CRDS, "", "widgets.test.io", fewer)
    assert engine.registry.resources.find("test.io", "v2", "widgets") is None
    assert engine.registry.resources.find("test.io", "v1", "widgets") is not None


# ---- the end -----------------------------------------------------------------------------------------------------


async def test_crd_deletion_removes_its_objects_first(engine: Engine) -> None:
    await engine.define(definition())
    await asyncio.gather(*(engine.create(WIDGETS, "ns", {"metadata": {"name": f"w{i}"}}) for i in range(200)))
    since = str(engine.store.revision)
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.gone(CRDS, "", "widgets.test.io")
    assert not engine.names(WIDGETS)
    assert engine.registry.resources.find("test.io", "v1", "widgets") is None
    async for change in engine.client.watch(CRDS, resource_version=since):
        if change.type == "DELETED":
            assert not [one for one in loads(change.value)["metadata"]["finalizers"] if "/" in one]
            break


async def test_crd_deletion_waits_for_finalizers_and_denies_creates(engine: Engine) -> None:
    await engine.define(definition())
    await engine.create(WIDGETS, "ns", held("w"))
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.eventually(lambda: "deletionTimestamp" in (engine.find(WIDGETS, "ns", "w") or {})["metadata"])
    assert status(engine, "widgets.test.io", "Terminating") == ("True", "InstanceDeletionInProgress")
    error = await refusal(engine.create(WIDGETS, "ns", {"metadata": {"name": "late"}}))
    why = "create not allowed while custom resource definition is terminating"
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message.endswith(why)
    late = {"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "late"}}
    assert (await refusal(engine.client.patch(WIDGETS, "ns", "late", late, kind="apply"))).code == 403
    await engine.patch(WIDGETS, "ns", "w", {"spec": {"touched": True}})
    await engine.release(WIDGETS, "ns", "w")
    await engine.gone(CRDS, "", "widgets.test.io")


async def test_crd_deletion_continues_after_restart(idle_engine: Engine) -> None:
    engine = idle_engine
    await engine.restart()
    await engine.define(definition())
    await engine.create(WIDGETS, "ns", held("w"))
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.restart()
    await engine.eventually(lambda: "deletionTimestamp" in (engine.find(WIDGETS, "ns", "w") or {})["metadata"])
    await engine.restart()
    await engine.release(WIDGETS, "ns", "w")
    await engine.gone(CRDS, "", "widgets.test.io")


async def test_crd_deletion_removes_objects_of_unserved_kind(engine: Engine) -> None:
    await engine.define(definition())
    await engine.create(WIDGETS, "ns", {"metadata": {"name": "w"}})
    await engine.patch(CRDS, "", "widgets.test.io", {"spec": {"versions": [version("v1", storage=True, served=False)]}})
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.gone(CRDS, "", "widgets.test.io")
    assert not engine.names(WIDGETS)


async def test_unestablished_crd_is_deleted_immediately(engine: Engine) -> None:
    await engine.define(definition(shortNames=["w"]))
    await engine.create(CRDS, "", definition("wires", shortNames=["w"]))
    await wait_for(engine, "wires.test.io", "NamesAccepted", "False")
    await engine.delete(CRDS, "", "wires.test.io")
    await engine.gone(CRDS, "", "wires.test.io")


async def test_recreated_crd_starts_without_objects(engine: Engine) -> None:
    for _ in range(2):
        await engine.define(definition())
        assert not engine.names(WIDGETS)
        await engine.create(WIDGETS, "ns", {"metadata": {"name": "w"}})
        await engine.delete(CRDS, "", "widgets.test.io")
        await engine.gone(CRDS, "", "widgets.test.io")


async def test_custom_finalizers_keep_the_emptied_crd(engine: Engine) -> None:
    body = definition()
    body["metadata"]["finalizers"] = ["test.io/hold"]
    await engine.define(body)
    await engine.create(WIDGETS, "ns", {"metadata": {"name": "w"}})
    await engine.delete(CRDS, "", "widgets.test.io")
    await engine.gone(WIDGETS, "ns", "w")
    await engine.eventually(
        lambda: (engine.find(CRDS, "", "widgets.test.io") or {})["metadata"]["finalizers"] == ["test.io/hold"]
    )
    await engine.release(CRDS, "", "widgets.test.io")
    await engine.gone(CRDS, "", "widgets.test.io")
