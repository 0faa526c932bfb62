"""An eviction takes what a budget allows, never more, and says why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.errors import StatusError
from tests.unit.apiserver.engine import BUDGETS, PODS, Engine, loads, refusal


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await engine.namespace("ns")
    yield engine
    await engine.close()


async def pod(engine: Engine, name: str, *, ready: bool = True, phase: str = "Running", held: bool = False) -> None:
    metadata: dict[str, Any] = {"name": name, "labels": {"app": "web"}}
    if held:
        metadata["finalizers"] = ["test.io/hold"]
    await engine.create(PODS, "ns", {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    await engine.patch(PODS, "ns", name, {"status": {"phase": phase, "conditions": conditions}}, "status")


async def budget(engine: Engine, allowed: int, name: str = "b", spec: Any = None, **status: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector, **(spec or {})}}
    await engine.create(BUDGETS, "ns", body)
    counted = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await engine.patch(BUDGETS, "ns", name, {"status": {**counted, "observedGeneration": 1, **status}}, "status")


async def evict(engine: Engine, name: str, *, dry_run: bool = False, **more: Any) -> dict[str, Any]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}
    answer = await engine.client.create(PODS, "ns", body, name=name, subresource="eviction", dry_run=dry_run)
    return loads(answer)


def cause(error: StatusError) -> str:
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (only,) = error.details["causes"]
    assert only["reason"] == "DisruptionBudget"
    message: str = only["message"]
    return message


def status_of(engine: Engine, name: str = "b") -> dict[str, Any]:
    status: dict[str, Any] = (engine.find(BUDGETS, "ns", name) or {})["status"]
    return status


async def test_eviction_without_budget_deletes_pod(engine: Engine) -> None:
    await pod(engine, "p")
    answer = await evict(engine, "p")
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    assert engine.find(PODS, "ns", "p") is None


async def test_evicted_pod_with_finalizer_gets_disruption_target_condition(engine: Engine) -> None:
    await pod(engine, "p", held=True)
    before = (engine.find(PODS, "ns", "p") or {})["metadata"]["managedFields"]
    await evict(engine, "p")
    left = engine.find(PODS, "ns", "p")
    assert left is not None
    assert "deletionTimestamp" in left["metadata"]
    assert left["metadata"]["managedFields"] == before
    told = {one["type"]: one for one in left["status"]["conditions"]}["DisruptionTarget"]
    assert (told["status"], told["reason"]) == ("True", "EvictionByEvictionAPI")
    assert told["message"] == "Eviction API: evicting"


async def test_eviction_decrements_disruptions_allowed_and_records_pod(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 2)
    await evict(engine, "p")
    assert engine.find(PODS, "ns", "p") is None
    status = status_of(engine)
    assert status["disruptionsAllowed"] == 1
    assert list(status["disruptedPods"]) == ["p"]
    assert not status.get("conditions")


async def test_eviction_using_last_disruption_sets_condition_false(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 1)
    await evict(engine, "p")
    (told,) = status_of(engine)["conditions"]
    assert (told["type"], told["status"], told["reason"]) == ("DisruptionAllowed", "False", "InsufficientPods")
    assert told["observedGeneration"] == 1


async def test_eviction_without_allowed_disruptions_is_rejected(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 0, desiredHealthy=3, currentHealthy=2)
    error = await refusal(evict(engine, "p"))
    assert cause(error) == "The disruption budget b needs 3 healthy pods and has 2 currently"
    assert "Retry-After" not in error.headers
    assert engine.find(PODS, "ns", "p")


@pytest.mark.parametrize(
    ("reason", "healthy", "message"),
    [
        ("SyncFailed", 1, "does not allow evicting pods currently because it failed sync: told so"),
        ("Other", 9, "does not allow evicting pods currently (Other): told so"),
        ("", 9, "does not allow evicting pods currently"),
    ],
)
async def test_eviction_error_includes_budget_condition(
    engine: Engine, reason: str, healthy: int, message: str
) -> None:
    told = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "told so"}
    conditions = [{**told, "lastTransitionTime": "2026-01-01T00:00:00Z"}] if reason else []
    await pod(engine, "p")
    await budget(engine, 0, conditions=conditions, currentHealthy=healthy)
    assert cause(await refusal(evict(engine, "p"))) == f"The disruption budget b {message}"


async def test_eviction_with_unobserved_budget_returns_retry_after(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 5, observedGeneration=0)
    error = await refusal(evict(engine, "p"))
    assert cause(error) == "The disruption budget b is still being processed by the server."
    assert error.headers["Retry-After"] == "10"
    assert error.details["retryAfterSeconds"] == 10


async def test_eviction_with_two_matching_budgets_returns_500(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 5, "a")
    await budget(engine, 5, "b")
    error = await refusal(evict(engine, "p"))
    assert (error.code, error.reason) == (500, "")
    assert "more than one PodDisruptionBudget" in error.message


async def test_eviction_with_too_many_disrupted_pods_is_forbidden(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 5, disruptedPods={f"p{i}": "2026-01-01T00:00:00Z" for i in range(2001)})
    error = await refusal(evict(engine, "p"))
    assert error.code == 403
    assert "DisruptedPods map too big" in error.message


async def test_concurrent_evictions_never_exceed_the_budget(engine: Engine) -> None:
    for i in range(10):
        await pod(engine, f"p{i}")
    await budget(engine, 3)
    results = await asyncio.gather(*(evict(engine, f"p{i}") for i in range(10)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, StatusError)]
    assert len(refused) == 7
    assert {error.code for error in refused} == {429}
    assert len(engine.names(PODS, "ns")) == 7
    assert status_of(engine)["disruptionsAllowed"] == 0


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_eviction_of_pod_not_running_ignores_budget(engine: Engine, phase: str) -> None:
    await pod(engine, "p", phase=phase)
    await budget(engine, 0)
    await evict(engine, "p")
    assert engine.find(PODS, "ns", "p") is None
    assert "disruptedPods" not in status_of(engine)


async def test_eviction_of_deleting_pod_ignores_budget(engine: Engine) -> None:
    await pod(engine, "p", held=True)
    await engine.delete(PODS, "ns", "p")
    await budget(engine, 0)
    assert (await evict(engine, "p"))["status"] == "Success"


async def test_unready_pod_is_evicted_while_budget_is_healthy(engine: Engine) -> None:
    await pod(engine, "p", ready=False)
    await budget(engine, 0, currentHealthy=2, desiredHealthy=2)
    await evict(engine, "p")
    assert engine.find(PODS, "ns", "p") is None
    assert status_of(engine)["disruptionsAllowed"] == 0


async def test_unready_pod_is_not_evicted_while_budget_is_unhealthy(engine: Engine) -> None:
    await pod(engine, "p", ready=False)
    await budget(engine, 0, currentHealthy=0, desiredHealthy=1)
    assert "needs 1 healthy pods and has 0" in cause(await refusal(evict(engine, "p")))


async def test_unready_pod_is_evicted_with_always_allow_policy(engine: Engine) -> None:
    await pod(engine, "p", ready=False)
    spec = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
    await budget(engine, 0, spec=spec, currentHealthy=0, desiredHealthy=1)
    await evict(engine, "p")
    assert engine.find(PODS, "ns", "p") is None


async def test_dry_run_eviction_changes_nothing_but_enforces_budget(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 1)
    before = engine.store.revision
    assert (await evict(engine, "p", dry_run=True))["status"] == "Success"
    assert (await evict(engine, "p", deleteOptions={"dryRun": ["All"]}))["status"] == "Success"
    assert engine.store.revision == before
    await evict(engine, "p")
    await pod(engine, "q")
    assert cause(await refusal(evict(engine, "q", dry_run=True)))


async def test_eviction_preconditions_must_match(engine: Engine) -> None:
    await pod(engine, "p")
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        error = await refusal(evict(engine, "p", deleteOptions={"preconditions": wrong}))
        assert (error.code, error.details["kind"]) == (409, "Pod")
    assert engine.find(PODS, "ns", "p")
    version = (engine.find(PODS, "ns", "p") or {})["metadata"]["resourceVersion"]
    await evict(engine, "p", deleteOptions={"preconditions": {"resourceVersion": version}})
    assert engine.find(PODS, "ns", "p") is None


async def test_eviction_with_wrong_precondition_uses_a_single_disruption(engine: Engine) -> None:
    await pod(engine, "p")
    await budget(engine, 5)
    error = await refusal(evict(engine, "p", deleteOptions={"preconditions": {"uid": "another"}}))
    assert error.code == 409
    assert status_of(engine)["disruptionsAllowed"] == 4


@pytest.mark.parametrize("name", ["", "other"])
async def test_eviction_name_must_match_the_pod(engine: Engine, name: str) -> None:
    await pod(engine, "p")
    error = await refusal(evict(engine, "p", metadata={"name": name}))
    assert (error.code, error.message) == (400, "name in URL does not match name in Eviction object")


async def test_eviction_of_missing_pod_returns_404(engine: Engine) -> None:
    error = await refusal(evict(engine, "nobody"))
    assert (error.code, error.details) == (404, {"name": "nobody", "kind": "pods"})
