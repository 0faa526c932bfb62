"""The MachineHealthCheck controller on an engine; the test plays Machine controller, providers and workload cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from remuda.capi import names
from remuda.capi.machine.workload import NODE
from remuda.capi.machinehealthcheck.controller import MachineHealthCheckController
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_HEALTH_CHECK
from remuda.kube import clock
from remuda.kube.client import Client, Target
from remuda.kube.errors import Conflict
from remuda.kube.objects import Key
from remuda.lab.simulator.workload import ModelWorkload
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.remote import RemoteClusters, RemoteSettings
from tests.controllers.engine import PATIENCE_SECONDS, Engine, Json, condition, is_true
from tests.controllers.providers import INFRASTRUCTURE, ProviderKind

EVENTS = Target("v1", "events")
REBOOT = ProviderKind("remediation.example.com", "Reboot", "v1beta2")
LONG_AGO = "2020-01-01T00:00:00Z"
IMPATIENT = RemoteSettings(
    probe_seconds=0.05,
    answer_seconds=PATIENCE_SECONDS,
    connect_seconds=PATIENCE_SECONDS,
    probes=2,
    retry_seconds=0.1,
)
READY_CHECK = {"type": "Ready", "status": "False", "timeoutSeconds": 300}


class HealthCheckHarness:
    """One Cluster with Machines and their Nodes, which health checks watch."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace
        self.workload = ModelWorkload()
        self.remote = RemoteClusters(self._dial, nodes=NODE, settings=IMPATIENT)

    async def _dial(self, cluster: Key) -> Client:
        return self.workload

    def setup(self, manager: Manager) -> None:
        self.manager = manager
        self.controller = MachineHealthCheckController(manager, self.remote, interval=0.05)

    async def cluster(self, **spec: Any) -> Json:
        reference = {"apiGroup": INFRASTRUCTURE, "kind": "NewCluster", "name": "c"}
        obj = {"metadata": {"name": "c"}, "spec": {"infrastructureRef": reference, **spec}}
        made = await self.engine.create(CLUSTER.target, self.namespace, _typed(obj, "Cluster"))
        ready = [_condition("InfrastructureReady"), _condition("ControlPlaneInitialized")]
        await self.engine.status(CLUSTER.target, self.namespace, "c", {"conditions": ready})
        self.remote.want(Key(self.namespace, "c"))
        return made

    async def machine(self, name: str, *, node: bool = True, annotations: Json | None = None) -> Json:
        """Made, running, and with a Node that is ready."""
        reference = {"apiGroup": INFRASTRUCTURE, "kind": "NewMachine", "name": name}
        spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "data"}, "infrastructureRef": reference}
        labels = {names.CLUSTER_NAME: "c", "pool": "a"}
        metadata = {"name": name, "labels": labels, "annotations": annotations or {}}
        obj = _typed({"metadata": metadata, "spec": spec}, "Machine")
        made = await self.engine.create(MACHINE.target, self.namespace, obj)
        if node:
            await self.workload.create(NODE.target, "", {"metadata": {"name": name}, "status": _ready("True")})
            status = {"nodeRef": {"name": name}, "conditions": [_condition("Ready", "True", "Ready")]}
            made = await self.engine.status(MACHINE.target, self.namespace, name, status)
        return made

    async def node(self, name: str, ready: str, since: str = LONG_AGO) -> None:
        await self.workload.patch(NODE.target, "", name, {"status": _ready(ready, since)})

    async def check(self, **spec: Any) -> None:
        defaults = {
            "clusterName": "c",
            "selector": {"matchLabels": {"pool": "a"}},
            "checks": {"unhealthyNodeConditions": [READY_CHECK]},
        }
        obj = _typed({"metadata": {"name": "hc"}, "spec": defaults | spec}, "MachineHealthCheck")
        await self.engine.create(MACHINE_HEALTH_CHECK.target, self.namespace, obj)

    async def machine_with(self, name: str, type: str, status: str, reason: str) -> Json:
        def holds(obj: Json) -> bool:
            found = condition(obj, type)
            return (found.get("status"), found.get("reason")) == (status, reason)

        return await self.engine.until(MACHINE.target, self.namespace, name, holds)

    async def check_with(self, **status: Any) -> Json:
        def holds(obj: Json) -> bool:
            return {name: obj.get("status", {}).get(name) for name in status} == status

        return await self.engine.until(MACHINE_HEALTH_CHECK.target, self.namespace, "hc", holds)

    async def check_saying(self, type: str, status: str, text: str = "") -> Json:
        def holds(obj: Json) -> bool:
            found = condition(obj, type)
            return found.get("status") == status and text in found["message"]

        return await self.engine.until(MACHINE_HEALTH_CHECK.target, self.namespace, "hc", holds)

    async def get(self, name: str) -> Json:
        found = await self.engine.get(MACHINE.target, self.namespace, name)
        assert found is not None
        return found

    async def quiet(self) -> None:
        """Until nothing is left to do."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.manager.idle:
                await asyncio.sleep(0.01)

    async def event(self, reason: str, about: str) -> Json:
        def holds(events: list[Json]) -> Json | None:
            told = (one for one in events if (one["reason"], one["involvedObject"]["name"]) == (reason, about))
            return next(told, None)

        found: Json = await self.engine.when(EVENTS, self.namespace, holds)
        return found


@asynccontextmanager
async def running_harness(engine: Engine) -> AsyncIterator[HealthCheckHarness]:
    harness = HealthCheckHarness(engine, await engine.namespace())
    async with engine.running(harness.namespace, harness.setup):
        yield harness
        await harness.remote.close()


def _typed(obj: Json, kind: str) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, **obj}


def _condition(type: str, status: str = "True", reason: str = "Because", since: str = LONG_AGO) -> Json:
    return {"type": type, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}


def _ready(status: str, since: str = LONG_AGO) -> Json:
    return {"conditions": [{"type": "Ready", "status": status, "reason": "Kubelet", "lastTransitionTime": since}]}


async def test_healthy_machines_are_marked_and_counted(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        cluster = await harness.cluster()
        await harness.check()
        for name in ("m-1", "m-2"):
            await harness.machine(name)
        machine = await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        assert is_true(machine, "Ready")
        check = await harness.check_with(
            expectedMachines=2, currentHealthy=2, remediationsAllowed=2, targets=["m-1", "m-2"], observedGeneration=1
        )
        assert is_true(check, "RemediationAllowed")
        assert condition(check, "Paused")["status"] == "False"
        assert check["metadata"]["labels"][names.CLUSTER_NAME] == "c"
        (owner,) = check["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner.get("controller")) == ("Cluster", cluster["metadata"]["uid"], None)


async def test_unhealthy_machine_is_marked_for_remediation_until_recovered(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.check()
        await harness.machine("m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        await harness.node("m-1", "False")
        machine = await harness.machine_with("m-1", "OwnerRemediated", "False", "WaitingForRemediation")
        failed = condition(machine, "HealthCheckSucceeded")
        assert failed["reason"] == "UnhealthyNode"
        assert failed["message"] == "Node m-1: Ready has been False (Kubelet) for more than 5m"
        assert is_true(machine, "Ready")
        await harness.event("MachineMarkedUnhealthy", "m-1")
        await harness.check_with(expectedMachines=1, currentHealthy=0, remediationsAllowed=0)

        await harness.node("m-1", "True")
        machine = await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        assert not condition(machine, "OwnerRemediated")


async def test_fault_is_remediated_after_timeout_without_new_event(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.check(checks={"unhealthyNodeConditions": [{**READY_CHECK, "timeoutSeconds": 2}]})
        await harness.machine("m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        broken = clock.now()
        await harness.node("m-1", "False", since=broken)
        machine = await harness.machine_with("m-1", "OwnerRemediated", "False", "WaitingForRemediation")
        marked = clock.parse(condition(machine, "OwnerRemediated")["lastTransitionTime"])
        assert marked >= clock.parse(broken) + 2


async def test_deleted_node_fails_health_check(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.check()
        await harness.machine("m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        await harness.workload.delete(NODE.target, "", "m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "False", "NodeDeleted")


async def test_remediation_is_blocked_when_too_many_machines_are_unhealthy(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        for name in ("m-1", "m-2", "m-3"):
            await harness.machine(name)
        for name in ("m-1", "m-2"):
            await harness.node(name, "False")
        await harness.check(remediation={"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}})
        check = await harness.check_saying("RemediationAllowed", "False", "2 of 3 Machines are not healthy")
        assert check["status"]["remediationsAllowed"] == 0
        assert condition(check, "RemediationAllowed")["reason"] == "TooManyUnhealthy"
        machine = await harness.machine_with("m-1", "HealthCheckSucceeded", "False", "UnhealthyNode")
        assert not condition(machine, "OwnerRemediated")
        told = await harness.event("RemediationRestricted", "hc")
        assert "m-1, m-2" in told["message"]

        await harness.node("m-2", "True")
        await harness.machine_with("m-1", "OwnerRemediated", "False", "WaitingForRemediation")
        assert not condition(await harness.get("m-2"), "OwnerRemediated")
        await harness.check_saying("RemediationAllowed", "True")


async def _reconciled(harness: HealthCheckHarness) -> Outcome:
    """Beside the controller that runs already: either may be faster."""
    while True:
        with suppress(Conflict):
            return await harness.controller.reconcile(Key(harness.namespace, "hc"))


async def test_unreachable_cluster_is_reported_and_not_remediated(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.check()
        await harness.machine("m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        harness.workload.cut = True
        check = await harness.check_saying("RemediationAllowed", "True", "Cluster c has not been reachable since")
        assert check["status"]["currentHealthy"] == 1
        outcome = await _reconciled(harness)
        assert isinstance(outcome, Blocked)
        assert (outcome.reason, outcome.on) == ("ConnectionDown", f"Cluster {harness.namespace}/c")

        unreachable = _condition("NodeReady", "Unknown", "ConnectionDown")
        machine = await harness.get("m-1")
        kept = [one for one in machine["status"]["conditions"] if one["type"] != "NodeReady"]
        await engine.status(MACHINE.target, harness.namespace, "m-1", {"conditions": [*kept, unreachable]})
        await engine.patch(
            MACHINE_HEALTH_CHECK.target,
            harness.namespace,
            "hc",
            {
                "spec": {
                    "checks": {"unhealthyMachineConditions": [READY_CHECK | {"type": "NodeReady", "status": "Unknown"}]}
                }
            },
        )
        await harness.check_with(observedGeneration=2, currentHealthy=1)
        assert is_true(await harness.get("m-1"), "HealthCheckSucceeded")

        harness.workload.cut = False
        await engine.until(
            MACHINE_HEALTH_CHECK.target,
            harness.namespace,
            "hc",
            lambda obj: condition(obj, "RemediationAllowed").get("message") == "",
        )


async def test_skipped_and_paused_machines_are_no_targets(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.machine("m-1", annotations={names.SKIP_REMEDIATION: ""})
        await harness.machine("m-2", annotations={names.PAUSED: ""})
        await harness.machine("m-3", annotations={names.REMEDIATE_MACHINE: ""})
        await harness.check()
        await harness.machine_with("m-3", "HealthCheckSucceeded", "False", "HasRemediateAnnotation")
        await harness.check_with(expectedMachines=1, targets=["m-3"])
        for name in ("m-1", "m-2"):
            assert not condition(await harness.get(name), "HealthCheckSucceeded")


async def test_paused_cluster_is_skipped_and_resumed(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster(paused=True)
        await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        await harness.check()
        await harness.check_saying("Paused", "True")
        assert not condition(await harness.get("m-1"), "HealthCheckSucceeded")
        await engine.patch(CLUSTER.target, harness.namespace, "c", {"spec": {"paused": None}})
        await harness.machine_with("m-1", "OwnerRemediated", "False", "WaitingForRemediation")
        await harness.check_saying("Paused", "False")


async def test_missing_cluster_is_reported_until_created(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.check()
        check = await harness.check_saying("RemediationAllowed", "Unknown", "Cluster c does not exist")
        assert condition(check, "RemediationAllowed")["reason"] == "ObjectDoesNotExist"
        await harness.cluster()
        await harness.check_saying("RemediationAllowed", "True")


async def test_unchanged_health_writes_nothing(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await harness.cluster()
        await harness.check()
        await harness.machine("m-1")
        await harness.check_with(currentHealthy=1)
        await harness.quiet()
        written = dict(harness.manager.ledger.writes_by)
        assert written["machinehealthcheck", "patch machines/status"] == 1
        assert written["machinehealthcheck", "patch machinehealthchecks"] == 1

        await engine.patch(MACHINE.target, harness.namespace, "m-1", {"metadata": {"labels": {"touched": "1"}}})
        await engine.patch(MACHINE.target, harness.namespace, "m-1", {"spec": {"version": "v1.36.0"}})
        await engine.patch(CLUSTER.target, harness.namespace, "c", {"metadata": {"labels": {"touched": "1"}}})
        await harness.quiet()
        assert await _reconciled(harness) == DONE
        assert dict(harness.manager.ledger.writes_by) == written


# external remediation


async def reboots(harness: HealthCheckHarness) -> None:
    await harness.engine.install([REBOOT.definition(), REBOOT.template.definition()])
    await harness.cluster()
    template = REBOOT.template.object("t", {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hard": True}}})
    await harness.engine.create(REBOOT.template.target, harness.namespace, template)


def by_reboot(template: str = "t", kind: str = REBOOT.template.name) -> Json:
    reference = {"apiVersion": REBOOT.target.api_version, "kind": kind, "name": template}
    return {"templateRef": reference}


async def test_external_remediation_request_is_created_and_withdrawn(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        await harness.check(remediation=by_reboot())
        made = await harness.machine("m-1")
        await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        await harness.node("m-1", "False")
        machine = await harness.machine_with("m-1", "ExternallyRemediated", "False", "WaitingForRemediation")
        assert not condition(machine, "OwnerRemediated")
        request = await engine.get(REBOOT.target, harness.namespace, "m-1")
        assert request is not None
        assert request["spec"] == {"hard": True}
        assert request["metadata"]["labels"] == {"a": "b", names.CLUSTER_NAME: "c"}
        (owner,) = request["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": names.API_VERSION,
            "kind": "Machine",
            "name": "m-1",
            "uid": made["metadata"]["uid"],
        }

        await harness.node("m-1", "True")
        await engine.gone(REBOOT.target, harness.namespace, "m-1")
        machine = await harness.machine_with("m-1", "HealthCheckSucceeded", "True", "HealthCheckSucceeded")
        assert not condition(machine, "ExternallyRemediated")


async def test_deleted_remediation_request_is_recreated(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        await harness.check(remediation=by_reboot())
        first = await engine.until(REBOOT.target, harness.namespace, "m-1", lambda obj: True)
        await harness.machine_with("m-1", "ExternallyRemediated", "False", "WaitingForRemediation")
        await engine.delete(REBOOT.target, harness.namespace, "m-1")
        uid = first["metadata"]["uid"]
        await engine.until(REBOOT.target, harness.namespace, "m-1", lambda obj: obj["metadata"]["uid"] != uid)


async def test_existing_remediation_request_is_adopted_after_crash(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        made = await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": "Machine",
            "name": "m-1",
            "uid": made["metadata"]["uid"],
        }
        request = await engine.create(
            REBOOT.target, harness.namespace, REBOOT.object("m-1", {"earlier": True}, ownerReferences=[owner])
        )
        await harness.check(remediation=by_reboot())
        await harness.machine_with("m-1", "ExternallyRemediated", "False", "WaitingForRemediation")
        assert await engine.get(REBOOT.target, harness.namespace, "m-1") == request


async def test_foreign_remediation_request_is_not_adopted(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        await engine.create(REBOOT.target, harness.namespace, REBOOT.object("m-1"))
        await harness.check(remediation=by_reboot())
        machine = await harness.machine_with("m-1", "ExternallyRemediated", "False", "RemediationRequestCreationFailed")
        assert "does not belong to this Machine" in condition(machine, "ExternallyRemediated")["message"]
        await engine.delete(REBOOT.target, harness.namespace, "m-1")
        await harness.machine_with("m-1", "ExternallyRemediated", "False", "WaitingForRemediation")


async def test_missing_remediation_template_is_reported_until_created(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        await harness.check(remediation=by_reboot("later"))
        await harness.machine_with("m-1", "ExternallyRemediated", "False", "RemediationTemplateNotFound")
        await engine.create(REBOOT.template.target, harness.namespace, REBOOT.template.object("later"))
        await harness.machine_with("m-1", "ExternallyRemediated", "False", "WaitingForRemediation")


async def test_unknown_remediation_kind_is_reported(engine: Engine) -> None:
    async with running_harness(engine) as harness:
        await reboots(harness)
        await harness.machine("m-1", annotations={names.REMEDIATE_MACHINE: ""})
        await harness.check(remediation=by_reboot(kind="MagicTemplate"))
        machine = await harness.machine_with("m-1", "ExternallyRemediated", "False", "RemediationRequestCreationFailed")
        assert "magics" in condition(machine, "ExternallyRemediated")["message"]
        assert condition(machine, "HealthCheckSucceeded")["reason"] == "HasRemediateAnnotation"
