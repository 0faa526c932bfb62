"""A namespace being deleted takes everything in it along, says what it waits for, and survives restarts on the way."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.apiserver.kinds.core_namespaces import FINALIZER
from remuda.kube.admission import AdmissionResult, Review
from remuda.kube.client import Target
from tests.unit.apiserver.engine import CONFIGMAPS, NAMESPACES, PODS, SECRETS, Engine, definition, held, loads, refusal

REMAINING, FINALIZERS = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"


def conditions(engine: Engine, name: str = "ns") -> dict[str, tuple[str, str]]:
    found = engine.find(NAMESPACES, "", name)
    assert found is not None
    return {one["type"]: (one["status"], one["reason"]) for one in found["status"].get("conditions", ())}


async def test_namespace_deletion_removes_its_contents(engine: Engine) -> None:
    widgets = await engine.define(definition())
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.create(SECRETS, "ns", {"metadata": {"name": "s"}})
    await engine.create(widgets, "ns", {"metadata": {"name": "w"}})
    await engine.create(CONFIGMAPS, "default", {"metadata": {"name": "elsewhere"}})
    await engine.delete(NAMESPACES, "", "ns")
    await engine.gone(NAMESPACES, "", "ns")
    assert not engine.names(CONFIGMAPS, "ns")
    assert not engine.names(SECRETS, "ns")
    assert not engine.names(widgets, "ns")
    assert engine.find(CONFIGMAPS, "default", "elsewhere")


async def test_namespace_deleted_event_reports_content_removed(engine: Engine) -> None:
    await engine.eventually(lambda: engine.find(Target("v1", "serviceaccounts"), "ns", "default"))
    since = str(engine.store.revision)
    await engine.delete(NAMESPACES, "", "ns")
    seen = []
    async for change in engine.client.watch(NAMESPACES, resource_version=since):
        seen.append((change.type, loads(change.value)))
        if change.type == "DELETED":
            break
    phases = [(kind, obj["status"]["phase"]) for kind, obj in seen]
    assert phases[0] == ("MODIFIED", "Terminating")
    assert phases[-1] == ("DELETED", "Terminating")
    last = {one["type"]: (one["status"], one["reason"]) for one in seen[-1][1]["status"]["conditions"]}
    assert last == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        REMAINING: ("False", "ContentRemoved"),
        FINALIZERS: ("False", "ContentHasNoFinalizers"),
    }


async def test_namespace_deletion_removes_a_thousand_objects(engine: Engine) -> None:
    await asyncio.gather(*(engine.create(CONFIGMAPS, "ns", {"metadata": {"name": f"c{i}"}}) for i in range(1000)))
    await engine.delete(NAMESPACES, "", "ns")
    await engine.gone(NAMESPACES, "", "ns")
    assert not engine.names(CONFIGMAPS, "ns")


async def test_terminating_namespace_reports_remaining_content_and_finalizers(engine: Engine) -> None:
    widgets = await engine.define(definition())
    await engine.create(CONFIGMAPS, "ns", held("a"))
    await engine.create(CONFIGMAPS, "ns", held("b"))
    await engine.create(widgets, "ns", {"metadata": {"name": "w", "finalizers": ["another.io/hold"]}})
    await engine.delete(NAMESPACES, "", "ns")
    message = await engine.eventually(lambda: engine.condition(NAMESPACES, "ns", REMAINING, "message"))
    assert message == (
        "Some resources are remaining: configmaps. has 2 resource instances, widgets.test.io has 1 resource instances"
    )
    assert engine.condition(NAMESPACES, "ns", FINALIZERS, "message") == (
        "Some content in the namespace has finalizers remaining: another.io/hold in 1 resource instances, "
        "test.io/hold in 2 resource instances"
    )
    assert conditions(engine)[REMAINING] == ("True", "SomeResourcesRemain")
    assert conditions(engine)[FINALIZERS] == ("True", "SomeFinalizersRemain")


async def test_namespace_is_deleted_after_last_content_finalizer(engine: Engine) -> None:
    await engine.create(CONFIGMAPS, "ns", held("a"))
    await engine.create(SECRETS, "ns", held("b"))
    await engine.delete(NAMESPACES, "", "ns")
    await engine.eventually(lambda: conditions(engine).get(FINALIZERS, ("", ""))[0] == "True")
    await engine.release(CONFIGMAPS, "ns", "a")
    await engine.eventually(lambda: "configmaps" not in engine.condition(NAMESPACES, "ns", REMAINING, "message"))
    assert engine.find(NAMESPACES, "", "ns")
    await engine.release(SECRETS, "ns", "b")
    await engine.gone(NAMESPACES, "", "ns")


async def test_waiting_terminating_namespace_writes_nothing(engine: Engine) -> None:
    await engine.create(CONFIGMAPS, "ns", held("a"))
    await engine.delete(NAMESPACES, "", "ns")
    await engine.eventually(lambda: conditions(engine).get(FINALIZERS, ("", ""))[0] == "True")
    before = engine.store.revision
    await engine.delete(NAMESPACES, "", "ns")
    await engine.create(CONFIGMAPS, "default", {"metadata": {"name": "marker"}})
    assert engine.store.revision == before + 1


async def test_terminating_namespace_denies_creates_but_allows_updates(engine: Engine) -> None:
    await engine.create(CONFIGMAPS, "ns", held("a"))
    await engine.delete(NAMESPACES, "", "ns")
    error = await refusal(engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "late"}}))
    assert (error.code, error.details["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert (await engine.patch(CONFIGMAPS, "ns", "a", {"data": {"k": "v"}}))["data"] == {"k": "v"}


async def test_other_spec_finalizers_hold_the_namespace(engine: Engine) -> None:
    live = engine.find(NAMESPACES, "", "ns")
    assert live is not None
    live["spec"]["finalizers"] = [FINALIZER, "test.io/audit"]
    await engine.client.update(NAMESPACES, "", "ns", live, subresource="finalize")
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.delete(NAMESPACES, "", "ns")
    left = await engine.eventually(
        lambda: (
            (found := engine.find(NAMESPACES, "", "ns"))
            and found["spec"].get("finalizers") == ["test.io/audit"]
            and found
        )
    )
    assert not engine.names(CONFIGMAPS, "ns")
    left["spec"]["finalizers"] = []
    await engine.client.update(NAMESPACES, "", "ns", left, subresource="finalize")
    await engine.gone(NAMESPACES, "", "ns")


async def test_metadata_finalizers_hold_the_emptied_namespace(engine: Engine) -> None:
    await engine.patch(NAMESPACES, "", "ns", {"metadata": {"finalizers": ["test.io/hold"]}})
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.delete(NAMESPACES, "", "ns")
    await engine.eventually(lambda: "finalizers" not in (engine.find(NAMESPACES, "", "ns") or {})["spec"])
    assert not engine.names(CONFIGMAPS, "ns")
    await engine.release(NAMESPACES, "", "ns")
    await engine.gone(NAMESPACES, "", "ns")


async def test_namespace_deletion_removes_pods_before_other_content(engine: Engine) -> None:
    containers = [{"name": "c", "image": "i"}]
    await engine.create(PODS, "ns", held("p", spec={"containers": containers}))
    await engine.create(SECRETS, "ns", {"metadata": {"name": "needed"}})
    await engine.delete(NAMESPACES, "", "ns")
    await engine.eventually(lambda: engine.condition(NAMESPACES, "ns", REMAINING) == "True")
    assert engine.find(SECRETS, "ns", "needed")
    await engine.release(PODS, "ns", "p")
    await engine.gone(NAMESPACES, "", "ns")


async def test_namespace_deletion_reports_failures_and_retries(engine: Engine) -> None:
    allowed: list[bool] = []

    def keep(review: Review) -> AdmissionResult:
        return AdmissionResult() if allowed else AdmissionResult(denied="not today")

    engine.registry.admission.register("", "secrets", keep, ("DELETE",))
    await engine.create(SECRETS, "ns", {"metadata": {"name": "s"}})
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.delete(NAMESPACES, "", "ns")
    failure = "NamespaceDeletionContentFailure"
    await engine.eventually(lambda: conditions(engine).get(failure) == ("True", "ContentDeletionFailed"))
    assert "not today" in engine.condition(NAMESPACES, "ns", failure, "message")
    assert not engine.names(CONFIGMAPS, "ns")
    allowed.append(True)
    await engine.gone(NAMESPACES, "", "ns")


async def test_namespace_deletion_continues_after_restart(idle_engine: Engine) -> None:
    engine = idle_engine
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.create(CONFIGMAPS, "ns", held("h"))
    await engine.delete(NAMESPACES, "", "ns")
    await engine.restart()
    await engine.gone(CONFIGMAPS, "ns", "c")
    await engine.eventually(lambda: conditions(engine).get(FINALIZERS, ("", ""))[0] == "True")
    await engine.restart()
    await engine.release(CONFIGMAPS, "ns", "h")
    await engine.gone(NAMESPACES, "", "ns")


async def test_recreated_namespace_keeps_its_content(engine: Engine) -> None:
    await engine.delete(NAMESPACES, "", "ns")
    await engine.gone(NAMESPACES, "", "ns")
    await engine.namespace("ns")
    kept: Any = await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "c"}})
    await engine.create(CONFIGMAPS, "ns", {"metadata": {"name": "d"}})
    await engine.delete(CONFIGMAPS, "ns", "d")
    await engine.settled()
    assert (engine.find(CONFIGMAPS, "ns", "c") or {})["metadata"]["uid"] == kept["metadata"]["uid"]
