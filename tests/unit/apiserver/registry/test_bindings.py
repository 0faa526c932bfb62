"""A binding puts a pod on a node, once, and says so in its status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.registry.calls import WriteOptions
from remuda.kube.errors import StatusError
from tests.unit.apiserver.engine import PODS, Engine, loads, refusal


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await engine.namespace("ns")
    yield engine
    await engine.close()


async def pod(engine: Engine, **more: Any) -> dict[str, Any]:
    metadata = {"name": "p", "labels": {"app": "web"}, **more.pop("metadata", {})}
    spec = {"containers": [{"name": "c", "image": "i"}], **more}
    await engine.create(PODS, "ns", {"metadata": metadata, "spec": spec})
    return engine.find(PODS, "ns", "p") or {}


async def bind(engine: Engine, node: str = "n", *, dry_run: bool = False, **metadata: Any) -> dict[str, Any]:
    body = {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}
    return loads(await engine.client.create(PODS, "ns", body, name="p", subresource="binding", dry_run=dry_run))


async def test_binding_sets_node_name_and_pod_scheduled_condition(engine: Engine) -> None:
    before = await pod(engine)
    answer = await bind(engine, annotations={"by": "me"}, labels={"zone": "z"})
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    after = engine.find(PODS, "ns", "p") or {}
    assert after["spec"] == {**before["spec"], "nodeName": "n"}
    assert after["metadata"]["annotations"] == {"by": "me"}
    assert after["metadata"]["labels"] == {"app": "web", "zone": "z"}
    (condition,) = after["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["lastProbeTime"]) == ("PodScheduled", "True", None)
    assert after["metadata"]["managedFields"] == before["metadata"]["managedFields"], "nobody owns it"
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


async def test_second_binding_of_pod_conflicts(engine: Engine) -> None:
    await pod(engine)
    results = await asyncio.gather(bind(engine, "a"), bind(engine, "b"), return_exceptions=True)
    (refused,) = [result for result in results if isinstance(result, StatusError)]
    node = (engine.find(PODS, "ns", "p") or {})["spec"]["nodeName"]
    assert refused.reason == "Conflict"
    assert refused.message == (
        f'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "{node}"'
    )


async def test_dry_run_binding_does_not_change_pod(engine: Engine) -> None:
    before = await pod(engine)
    await bind(engine, dry_run=True)
    assert engine.find(PODS, "ns", "p") == before


async def test_binding_of_gated_or_deleting_pod_conflicts(engine: Engine) -> None:
    await pod(engine, schedulingGates=[{"name": "wait"}], metadata={"finalizers": ["test.io/hold"]})
    error = await refusal(bind(engine))
    assert (error.code, error.message.partition(": ")[2]) == (409, "pod p has non-empty .spec.schedulingGates")
    await engine.delete(PODS, "ns", "p")
    error = await refusal(bind(engine))
    expected = "pod p is being deleted, cannot be assigned to a host"
    assert (error.code, error.message.partition(": ")[2]) == (409, expected)


async def test_binding_with_wrong_uid_or_resource_version_conflicts(engine: Engine) -> None:
    live = await pod(engine)
    for attempt in (bind(engine, uid="1"), bind(engine, resourceVersion="1")):
        error = await refusal(attempt)
        assert (error.code, error.reason) == (409, "Conflict")
    meta = live["metadata"]
    await bind(engine, uid=meta["uid"], resourceVersion=meta["resourceVersion"])
    assert (await refusal(bind(engine, name="other"))).message == "name in URL does not match name in Binding object"


async def test_binding_target_must_be_a_named_node(engine: Engine) -> None:
    await pod(engine)
    body: dict[str, Any] = {"metadata": {"name": "p"}, "target": {"kind": "Pod"}}
    error = await refusal(engine.client.create(PODS, "ns", body, name="p", subresource="binding"))
    kind = 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'
    assert (error.code, error.message) == (500, f"[{kind}, target.name: Required value]")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            {"target": "n"},
            "json: cannot unmarshal string into Go struct field Binding.target of type v1.ObjectReference",
        ),
        ({"target": {"name": "n"}, "more": 1}, 'strict decoding error: unknown field "more"'),
    ],
)
async def test_malformed_binding_returns_400_with_strict_validation(
    engine: Engine, body: dict[str, Any], problem: str
) -> None:
    await pod(engine)
    resource = engine.registry.resources.of_table("pods")
    assert resource is not None
    call = engine.registry.system_call("create", resource, "ns", "p", "binding")
    strictly = WriteOptions(field_validation="Strict")
    error = await refusal(engine.registry.create(call, {"metadata": {"name": "p"}, **body}, strictly))
    assert (error.code, error.message) == (400, f'Binding in version "v1" cannot be handled as a Binding: {problem}')


async def test_binding_of_missing_pod_returns_404(engine: Engine) -> None:
    error = await refusal(bind(engine))
    assert (error.code, error.message) == (404, 'pods "p" not found')
