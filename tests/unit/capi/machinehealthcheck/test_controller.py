"""What the controller does with objects admission would have refused, or that are on their way out.

The ordinary life is in tests/controllers, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.capi import names
from remuda.capi.definitions import definitions
from remuda.capi.machinehealthcheck.controller import MachineHealthCheckController, Scope, _outcome
from remuda.capi.machinehealthcheck.health import Healthy, Pending, Unhealthy
from remuda.capi.machinehealthcheck.status import Judged, Survey, remediation_allowed
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_HEALTH_CHECK, MachineHealthCheck
from remuda.capi.types.machinehealthcheck import RemediationTrigger
from remuda.kube.client import Client
from remuda.kube.objects import Key, Kind, ObjectMeta
from remuda.runtime.definitions import install
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue
from remuda.runtime.remote import Connection, RemoteClusters
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.apiserver.engine import Engine, loads
from tests.unit.capi.machinehealthcheck.objects import T0, cluster, machine

Json = dict[str, Any]
KEY = Key("default", "hc")
REFERENCE = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FooCluster", "name": "c"}


class HealthCheckControllerHarness:
    """The controller on caches of a real engine, run by hand."""

    def __init__(self, engine: Engine) -> None:
        self.client = engine.client
        self.manager = Manager(engine.client)
        self.remote = RemoteClusters(_unreachable)
        self.controller = MachineHealthCheckController(self.manager, self.remote)

    async def create(self, kind: Kind[Any], name: str, spec: Json, **metadata: Any) -> None:
        obj = {"metadata": {"name": name, **metadata}, "spec": spec}
        await self.manager.client.create(kind.target, "default", obj)

    async def check(self, **spec: Any) -> None:
        defaults = {"clusterName": "c", "selector": {"matchLabels": {"pool": "a"}}}
        await self.create(MACHINE_HEALTH_CHECK, "hc", defaults | spec)

    async def allowed(self) -> Json:
        found = loads(await self.client.get(MACHINE_HEALTH_CHECK.target, *KEY))
        conditions: list[Json] = found.get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == "RemediationAllowed"), {})


async def _unreachable(cluster: Key) -> Client:
    raise OSError("nobody is there")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[HealthCheckControllerHarness]:
    engine = await Engine.open(tmp_path / "data")
    await install(engine.client, definitions())
    found = HealthCheckControllerHarness(engine)
    await found.manager.start()
    yield found
    await found.remote.close()
    await found.manager.stop()
    await engine.close()


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ({}, "it is empty and selects every Machine"),
        ({"matchExpressions": [{"key": "pool", "operator": "Sometimes"}]}, "Sometimes"),
    ],
)
async def test_invalid_selector_selects_no_machine_and_is_reported(
    harness: HealthCheckControllerHarness, selector: Json, why: str
) -> None:
    await harness.create(CLUSTER, "c", {"infrastructureRef": REFERENCE})
    await harness.create(MACHINE, "m", _machine_spec(), labels={"pool": "a"}, annotations={names.REMEDIATE_MACHINE: ""})
    await harness.check(selector=selector)
    outcome = await harness.controller.reconcile(KEY)
    assert isinstance(outcome, Blocked)
    allowed = await harness.allowed()
    assert (allowed["status"], allowed["reason"]) == ("Unknown", "InvalidSelector")
    assert why in allowed["message"] == outcome.message
    assert "status" not in loads(await harness.client.get(MACHINE.target, "default", "m"))


async def test_deleting_cluster_is_not_health_checked(harness: HealthCheckControllerHarness) -> None:
    await harness.create(CLUSTER, "c", {"infrastructureRef": REFERENCE}, finalizers=["example.com/wait"])
    await harness.create(MACHINE, "m", _machine_spec(), labels={"pool": "a"}, annotations={names.REMEDIATE_MACHINE: ""})
    await harness.manager.client.delete(CLUSTER.target, "default", "c")
    await harness.check()
    await _until(harness, CLUSTER, "c", lambda found: found.metadata.deleting)
    assert await harness.controller.reconcile(KEY) == DONE
    assert await harness.allowed() == {}


async def test_missing_or_deleting_health_check_is_ignored(harness: HealthCheckControllerHarness) -> None:
    assert await harness.controller.reconcile(KEY) == DONE
    spec = {"clusterName": "c", "selector": {"matchLabels": {"pool": "a"}}}
    await harness.create(MACHINE_HEALTH_CHECK, "hc", spec, finalizers=["example.com/wait"])
    await harness.manager.client.delete(MACHINE_HEALTH_CHECK.target, *KEY)
    await _until(harness, MACHINE_HEALTH_CHECK, "hc", lambda found: found.metadata.deleting)
    assert await harness.controller.reconcile(KEY) == DONE
    assert await harness.allowed() == {}


def _machine_spec() -> Json:
    reference = {**REFERENCE, "kind": "FooMachine", "name": "m"}
    return {"clusterName": "c", "bootstrap": {"dataSecretName": "d"}, "infrastructureRef": reference}


async def _until(harness: HealthCheckControllerHarness, kind: Kind[Any], name: str, holds: Any) -> None:
    """Until the cache has caught up with somebody else's write."""
    seen = asyncio.Event()
    informer = harness.manager.caches.of(kind)
    informer.listen(lambda before, after, initial: seen.set() if after and holds(after) else None)
    async with asyncio.timeout(LIMIT_SECONDS):
        await seen.wait()


# when it looks again

NOW = T0 + 100
CONNECTED = Connection(connected=True, error="")
DOUBTFUL = Connection(connected=True, failures=1, error="no answer in time")
LOST = Connection(connected=False, since=T0, failures=5, error="no answer in time")
ONE = RemediationTrigger(unhealthy_less_than_or_equal_to=1)
SICK = Unhealthy("NodeDeleted", "gone")


def outcome(connection: Connection, *verdicts: Healthy | Unhealthy | Pending, initialized: bool = True) -> Outcome:
    check = MachineHealthCheck(metadata=ObjectMeta(namespace="ns", name="hc"))
    of = cluster(control_plane=0 if initialized else None)
    scope = Scope(check, of, [machine()] * len(verdicts), connection)
    survey = Survey([Judged(machine(), verdict) for verdict in verdicts])
    return _outcome(scope, survey, remediation_allowed(survey, survey.limit(ONE), scope.unreadable), NOW)


def test_decided_machines_need_no_requeue() -> None:
    assert outcome(CONNECTED, Healthy(), SICK) == DONE


def test_reconcile_requeues_at_next_expiry() -> None:
    assert outcome(CONNECTED, Healthy(), Pending("?", NOW + 30)) == Requeue(
        30, "a Machine becomes unhealthy if its failure lasts"
    )
    assert outcome(CONNECTED, Pending("?", NOW - 5)) == Requeue(0, "a Machine becomes unhealthy if its failure lasts")


def test_doubtful_connection_is_requeued_soon() -> None:
    assert outcome(DOUBTFUL, Healthy()) == Requeue(10, "the last probe of the workload cluster failed")
    assert outcome(DOUBTFUL, Pending("?", NOW + 3)) == Requeue(3, "the last probe of the workload cluster failed")


def test_lost_connection_blocks_with_connection_down() -> None:
    found = outcome(LOST, Pending("hidden"), Pending("?", NOW + 3))
    assert found == Blocked(
        "ConnectionDown", "Cluster ns/c", "Cluster c has not been reachable since 2027-01-15T08:00:00Z", 3
    )
    assert outcome(LOST) == DONE
    assert outcome(LOST, Pending("?"), initialized=False) == DONE


def test_too_many_unhealthy_machines_block_remediation() -> None:
    found = outcome(CONNECTED, SICK, SICK, Pending("?", NOW + 3))
    assert isinstance(found, Blocked)
    assert (found.reason, found.on, found.check_after) == ("TooManyUnhealthy", "MachineHealthCheck ns/hc", 3)
