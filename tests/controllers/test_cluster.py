"""The Cluster controller on an engine, with the test as provider under either contract."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.capi import names
from remuda.capi.cluster.controller import ClusterController
from remuda.capi.external import DEFINITION, Externals
from remuda.capi.remote import SECRET, dialer
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT
from remuda.kube.client import Target
from remuda.kube.objects import Key
from remuda.runtime.manager import Manager
from remuda.runtime.remote import RemoteClusters, RemoteSettings
from tests.controllers.certificates import authority
from tests.controllers.engine import Engine, Json, condition, is_true
from tests.controllers.providers import INFRASTRUCTURE, NEW, OLD, PROVIDERS, Provider, ProviderKind

EVENTS = Target("v1", "events")
HOLD = "example.com/hold"
ENDPOINT = {"host": "10.1.2.3", "port": 6443}

both = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.contract)


@asynccontextmanager
async def controlling(engine: Engine, namespace: str) -> AsyncIterator[Manager]:
    """The Cluster controller at work in a namespace."""
    remote = RemoteClusters(dialer(engine.client), settings=RemoteSettings(probe_seconds=1.0, retry_seconds=1.0))

    def add(manager: Manager) -> None:
        ClusterController(manager, Externals(manager.caches, manager.client), remote)

    try:
        async with engine.running(namespace, add) as manager:
            yield manager
    finally:
        await remote.close()


def status(obj: Json) -> Json:
    return obj.get("status", {})  # type: ignore[no-any-return]


class World:
    """One Cluster `c` and the provider's objects of the same name, in a namespace of their own."""

    def __init__(self, engine: Engine, namespace: str, provider: Provider) -> None:
        self.engine = engine
        self.namespace = namespace
        self.provider = provider

    @classmethod
    async def new(cls, engine: Engine, provider: Provider) -> World:
        await engine.install(provider.definitions())
        return cls(engine, await engine.namespace(), provider)

    async def cluster(self, *, control_plane: bool = True, **spec: Any) -> Json:
        refs = {"infrastructureRef": self.provider.cluster.reference("c")}
        if control_plane:
            refs["controlPlaneRef"] = self.provider.control_plane.reference("c")
        obj = {"apiVersion": names.API_VERSION, "kind": "Cluster", "metadata": {"name": "c"}, "spec": refs | spec}
        return await self.engine.create(CLUSTER.target, self.namespace, obj)

    async def infrastructure(self, spec: Json | None = None, **metadata: Any) -> Json:
        kind = self.provider.cluster
        return await self.engine.create(kind.target, self.namespace, kind.object("c", spec, **metadata))

    async def control_plane(self, spec: Json | None = None, **metadata: Any) -> Json:
        kind = self.provider.control_plane
        return await self.engine.create(kind.target, self.namespace, kind.object("c", spec, **metadata))

    async def report_infrastructure(self, **status: Any) -> None:
        await self.engine.status(self.provider.cluster.target, self.namespace, "c", self.provider.provisioned | status)

    async def report_control_plane(self, **status: Any) -> None:
        status = self.provider.initialized | status
        await self.engine.status(self.provider.control_plane.target, self.namespace, "c", status)

    async def until(self, holds: Callable[[Json], object]) -> Json:
        return await self.engine.until(CLUSTER.target, self.namespace, "c", holds)

    async def until_phase(self, phase: str) -> Json:
        return await self.until(lambda obj: status(obj).get("phase") == phase)

    async def until_initialized(self) -> Json:
        return await self.until(lambda obj: status(obj).get("initialization", {}).get("controlPlaneInitialized"))

    async def until_condition(self, type: str, status: str, reason: str) -> Json:
        """The condition itself."""

        def holds(obj: Json) -> bool:
            found = condition(obj, type)
            return (found.get("status"), found.get("reason")) == (status, reason)

        return condition(await self.until(holds), type)

    async def until_adopted(self, kind: ProviderKind, cluster: Json) -> Json:
        uid = cluster["metadata"]["uid"]

        def owned(obj: Json) -> bool:
            return any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences", []))

        return await self.engine.until(kind.target, self.namespace, "c", owned)

    async def release(self, target: Target, name: str = "c") -> None:
        """Takes the last finalizer from an object."""
        await self.engine.patch(target, self.namespace, name, {"metadata": {"finalizers": None}})

    async def until_deleting(self, target: Target, name: str = "c") -> None:
        await self.engine.until(target, self.namespace, name, lambda obj: obj["metadata"].get("deletionTimestamp"))

    async def is_deleting(self, target: Target, name: str = "c") -> bool:
        found = await self.engine.get(target, self.namespace, name)
        return found is not None and "deletionTimestamp" in found["metadata"]

    async def secret(self, name: str, data: dict[str, bytes], **labels: str) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": encoded}
        await self.engine.create(SECRET.target, self.namespace, obj)

    async def machine(self, name: str, *, control_plane: bool = False, **metadata: Any) -> Json:
        labels = {names.CLUSTER_NAME: "c"} | ({names.CONTROL_PLANE: ""} if control_plane else {})
        obj = {
            "apiVersion": names.API_VERSION,
            "kind": "Machine",
            "metadata": {"name": name, "labels": labels, **metadata},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "s"},
                "infrastructureRef": self.provider.machine.reference(name),
            },
        }
        return await self.engine.create(MACHINE.target, self.namespace, obj)

    async def deployment(self, name: str, **metadata: Any) -> Json:
        labels = {"pool": name}
        obj = {
            "apiVersion": names.API_VERSION,
            "kind": "MachineDeployment",
            "metadata": {"name": name, **metadata},
            "spec": {
                "clusterName": "c",
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "clusterName": "c",
                        "bootstrap": {"dataSecretName": "s"},
                        "infrastructureRef": self.provider.machine.template.reference("t"),
                    },
                },
            },
        }
        return await self.engine.create(MACHINE_DEPLOYMENT.target, self.namespace, obj)


@both
async def test_cluster_becomes_available_from_provider_status(engine: Engine, provider: Provider) -> None:
    world = await World.new(engine, provider)
    cluster = await world.cluster()
    domains = [{"name": "east", "controlPlane": True}, {"name": "west", "controlPlane": False}]
    async with controlling(engine, world.namespace):
        await world.until_condition("InfrastructureReady", "False", "ObjectDoesNotExist")
        await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
        await world.control_plane({"replicas": 3})
        infrastructure = await world.until_adopted(provider.cluster, cluster)
        await world.until_adopted(provider.control_plane, cluster)
        assert infrastructure["metadata"]["labels"] == {names.CLUSTER_NAME: "c"}

        by_name = {one["name"]: {"controlPlane": one["controlPlane"]} for one in domains}
        await world.report_infrastructure(failureDomains=by_name if provider.old else domains)
        found = await world.until_phase("Provisioned")
        assert found["metadata"]["finalizers"] == [names.CLUSTER_FINALIZER]
        assert found["spec"]["controlPlaneEndpoint"] == ENDPOINT
        assert found["status"]["initialization"] == {"infrastructureProvisioned": True}
        assert found["status"]["failureDomains"] == domains
        assert is_true(found, "InfrastructureReady")

        replicas = {"unavailableReplicas": 1, "updatedReplicas": 3} if provider.old else {"availableReplicas": 2}
        await world.report_control_plane(replicas=3, readyReplicas=2, **replicas)
        await world.secret("c-kubeconfig", {"value": engine.kubeconfig.read_bytes()}, **{names.CLUSTER_NAME: "c"})
        found = await world.until(lambda obj: is_true(obj, "Available"))
        assert found["status"]["initialization"]["controlPlaneInitialized"] is True
        assert (
            found["status"]["controlPlane"].items()
            >= {
                "desiredReplicas": 3,
                "replicas": 3,
                "readyReplicas": 2,
                "availableReplicas": 2,
            }.items()
        )
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        assert {one["observedGeneration"] for one in found["status"]["conditions"]} == {found["metadata"]["generation"]}
        assert [one["type"] for one in found["status"]["conditions"]][:1] == ["Available"]
        assert [one["type"] for one in found["status"]["conditions"]][-2:] == ["Deleting", "Paused"]
        assert condition(found, "RemoteConnectionProbe")["reason"] == "ProbeSucceeded"
        assert condition(found, "WorkersAvailable")["reason"] == "NoWorkers"


@both
async def test_endpoint_is_copied_from_control_plane_when_infrastructure_has_none(
    engine: Engine, provider: Provider
) -> None:
    world = await World.new(engine, provider)
    await world.cluster()
    await world.infrastructure()
    await world.control_plane({"controlPlaneEndpoint": ENDPOINT})
    async with controlling(engine, world.namespace):
        await world.report_infrastructure()
        found = await world.until(lambda obj: is_true(obj, "InfrastructureReady"))
        assert "controlPlaneEndpoint" not in found["spec"]
        await world.report_control_plane()
        found = await world.until_phase("Provisioned")
        assert found["spec"]["controlPlaneEndpoint"] == ENDPOINT


@both
async def test_initialization_flags_and_endpoint_are_never_reset(engine: Engine, provider: Provider) -> None:
    world = await World.new(engine, provider)
    await world.cluster()
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
    await world.control_plane()
    async with controlling(engine, world.namespace):
        await world.report_infrastructure(failureDomains={"a": {}} if provider.old else [{"name": "a"}])
        await world.until(lambda obj: status(obj).get("failureDomains"))
        await world.report_control_plane()
        await world.until_initialized()
        moved = {"spec": {"controlPlaneEndpoint": {"host": "elsewhere", "port": 1}}}
        await engine.patch(provider.cluster.target, world.namespace, "c", moved)
        gone: Json = {"ready": False, "initialization": {"provisioned": False}, "failureDomains": None}
        await engine.status(provider.cluster.target, world.namespace, "c", gone)
        found = await world.until(lambda obj: "failureDomains" not in status(obj))
        assert found["spec"]["controlPlaneEndpoint"] == ENDPOINT
        assert found["status"]["initialization"] == {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
        assert is_true(found, "InfrastructureReady")


async def test_provider_ready_condition_is_copied_to_cluster(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    await world.cluster()
    await world.infrastructure()
    await world.control_plane()
    since = "2026-01-01T00:00:00Z"
    async with controlling(engine, world.namespace):
        told = {
            "type": "Ready",
            "status": "False",
            "reason": "NoQuota",
            "message": "buy more",
            "lastTransitionTime": since,
        }
        await engine.status(NEW.cluster.target, world.namespace, "c", {"conditions": [told]})
        found = await world.until_condition("InfrastructureReady", "False", "NoQuota")
        assert found["message"] == "buy more"
        await engine.status(NEW.cluster.target, world.namespace, "c", {"conditions": [told | {"status": "True"}]})
        found = await world.until_condition("InfrastructureReady", "True", "NoQuota")
        assert found["lastTransitionTime"] == since
        await engine.status(NEW.cluster.target, world.namespace, "c", {"conditions": [told | {"status": "Perhaps"}]})
        found = await world.until_condition("InfrastructureReady", "Unknown", "InvalidConditionReported")
        assert "Perhaps" in found["message"]


async def test_contract_violation_is_reported_as_internal_error(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    await world.cluster()
    await world.infrastructure()
    await world.control_plane()
    async with controlling(engine, world.namespace):
        await engine.status(NEW.cluster.target, world.namespace, "c", {"initialization": {"provisioned": "yes"}})
        await world.report_control_plane()
        told = await world.until_condition("InfrastructureReady", "Unknown", "InternalError")
        assert "NewCluster" in told["message"]
        assert "status.initialization.provisioned" in told["message"]
        found = await world.until(lambda obj: is_true(obj, "ControlPlaneInitialized"))
        assert "infrastructureProvisioned" not in found["status"]["initialization"]
        assert found["status"]["phase"] == "Provisioning"


async def test_missing_provider_kind_is_reported_until_installed(engine: Engine) -> None:
    kind = ProviderKind(INFRASTRUCTURE, "TardyCluster", "v1beta2")
    world = World(engine, await engine.namespace(), NEW._replace(cluster=kind))
    await world.cluster(control_plane=False)
    async with controlling(engine, world.namespace):
        told = await world.until_condition("InfrastructureReady", "Unknown", "InternalError")
        assert "tardyclusters.infrastructure.cluster.x-k8s.io" in told["message"]
        await engine.install([kind.definition()])
        await world.infrastructure()
        await world.report_infrastructure()
        await world.until_condition("InfrastructureReady", "True", "Ready")
        await engine.delete(DEFINITION.target, "", f"{kind.plural}.{kind.group}")
        await engine.delete(CLUSTER.target, world.namespace, "c")
        await engine.gone(CLUSTER.target, world.namespace, "c")


async def test_kubeconfig_is_generated_from_ca_without_control_plane_provider(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    cluster = await world.cluster(control_plane=False)
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
    async with controlling(engine, world.namespace) as manager:
        await world.report_infrastructure()
        await world.until_phase("Provisioned")
        waits = manager.controllers["cluster"].waits
        await world.secret("c-ca", authority(), **{names.CLUSTER_NAME: "c"})
        secret = await engine.until(SECRET.target, world.namespace, "c-kubeconfig", lambda obj: True)
        assert secret["type"] == names.SECRET_TYPE
        assert secret["metadata"]["labels"] == {names.CLUSTER_NAME: "c"}
        assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [cluster["metadata"]["uid"]]

        await world.machine("m", control_plane=True)
        await world.until_condition("ControlPlaneInitialized", "False", "NotInitialized")
        assert waits[Key(world.namespace, "c")].blocked.reason == "WaitingForControlPlane"
        await engine.status(MACHINE.target, world.namespace, "m", {"nodeRef": {"name": "n"}})
        found = await world.until(lambda obj: is_true(obj, "ControlPlaneAvailable"))
        assert is_true(found, "ControlPlaneInitialized")
        assert found["status"]["controlPlane"]["replicas"] == 1


async def test_paused_cluster_is_not_reconciled(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    cluster = await world.cluster(paused=True)
    await world.infrastructure()
    await world.control_plane()
    await world.report_infrastructure()
    async with controlling(engine, world.namespace):
        found = await world.until(lambda obj: is_true(obj, "Paused"))
        assert list(found["status"]) == ["conditions"]
        assert "finalizers" not in found["metadata"]
        infrastructure = await engine.get(NEW.cluster.target, world.namespace, "c")
        assert infrastructure is not None
        assert "ownerReferences" not in infrastructure["metadata"]
        await engine.patch(CLUSTER.target, world.namespace, "c", {"spec": {"paused": False}})
        await world.until_adopted(NEW.cluster, cluster)
        found = await world.until(lambda obj: is_true(obj, "InfrastructureReady"))
        assert condition(found, "Paused")["reason"] == "NotPaused"


async def test_irrelevant_changes_keep_conditions_and_bound_writes(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    await world.cluster()
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
    await world.control_plane()
    await world.report_infrastructure()
    await world.report_control_plane()
    async with controlling(engine, world.namespace) as manager:
        await world.until_initialized()
        settled = await world.until_phase("Provisioned")
        touch = {"metadata": {"annotations": {"touched": "1"}}}
        await engine.patch(NEW.cluster.target, world.namespace, "c", touch)
        await engine.patch(NEW.control_plane.target, world.namespace, "c", touch)
        await world.machine("first-news")
        found = await world.until(lambda obj: "workers" in status(obj))
        assert manager.ledger.writes_by["cluster", "patch clusters/status"] <= 2
        assert sum(n for (by, _), n in manager.ledger.writes_by.items() if by == "cluster") <= 5
        kept = [one for one in settled["status"]["conditions"] if one in found["status"]["conditions"]]
        changed = {one["type"] for one in settled["status"]["conditions"]} - {one["type"] for one in kept}
        assert changed <= {"WorkerMachinesReady"}


@both
async def test_deletion_removes_workers_control_plane_and_infrastructure_in_order(
    engine: Engine, provider: Provider
) -> None:
    world = await World.new(engine, provider)
    await world.cluster()
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT}, finalizers=[HOLD])
    await world.control_plane(finalizers=[HOLD])
    await world.deployment("d", finalizers=[HOLD])
    await world.machine("lone", finalizers=[HOLD])
    await world.machine("controlled", control_plane=True, finalizers=[HOLD])
    async with controlling(engine, world.namespace):
        await world.report_infrastructure()
        await world.until_phase("Provisioned")
        await engine.delete(CLUSTER.target, world.namespace, "c")
        told = await world.until_condition("Deleting", "True", "WaitingForWorkersDeletion")
        assert told["message"].split("\n") == ["* MachineDeployment: d", "* Machine: lone"]
        await world.until_deleting(MACHINE_DEPLOYMENT.target, "d")
        await world.until_deleting(MACHINE.target, "lone")
        assert not await world.is_deleting(MACHINE.target, "controlled"), "its control plane deletes it"
        assert not await world.is_deleting(provider.control_plane.target)

        await world.release(MACHINE_DEPLOYMENT.target, "d")
        await world.release(MACHINE.target, "lone")
        await world.until_condition("Deleting", "True", "WaitingForControlPlaneDeletion")
        await world.until_deleting(provider.control_plane.target)
        assert not await world.is_deleting(provider.cluster.target)

        await world.release(provider.control_plane.target)
        await world.until_condition("Deleting", "True", "WaitingForInfrastructureDeletion")
        await world.until_deleting(provider.cluster.target)
        found = await world.until_phase("Deleting")
        assert condition(found, "ControlPlaneAvailable")["reason"] in ("ObjectDeleted", "ObjectDoesNotExist")

        await world.release(provider.cluster.target)
        await engine.gone(CLUSTER.target, world.namespace, "c")
    await world.release(MACHINE.target, "controlled")


async def test_control_plane_machines_are_deleted_after_workers_without_provider(engine: Engine) -> None:
    world = await World.new(engine, OLD)
    await world.cluster(control_plane=False)
    await world.infrastructure()
    await world.machine("worker", finalizers=[HOLD])
    await world.machine("leader", control_plane=True, finalizers=[HOLD])
    async with controlling(engine, world.namespace):
        await world.until(lambda obj: obj["metadata"].get("finalizers"))
        await engine.delete(CLUSTER.target, world.namespace, "c")
        await world.until_deleting(MACHINE.target, "worker")
        assert not await world.is_deleting(MACHINE.target, "leader")
        await world.release(MACHINE.target, "worker")
        await world.until_deleting(MACHINE.target, "leader")
        await world.release(MACHINE.target, "leader")
        await engine.gone(CLUSTER.target, world.namespace, "c")
    assert await engine.get(OLD.cluster.target, world.namespace, "c") is None


async def test_deletion_completes_when_provider_objects_are_deleted_concurrently(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    await world.cluster()
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
    await world.control_plane(finalizers=[HOLD])
    async with controlling(engine, world.namespace):
        await world.report_infrastructure()
        await world.until_phase("Provisioned")
        for target in (NEW.cluster.target, NEW.control_plane.target, CLUSTER.target):
            await engine.delete(target, world.namespace, "c")
        found = await world.until(
            lambda obj: condition(obj, "Deleting").get("reason") == "WaitingForControlPlaneDeletion"
        )
        assert condition(found, "InfrastructureReady")["reason"] == "ObjectDeleted"
        await world.release(NEW.control_plane.target)
        await engine.gone(CLUSTER.target, world.namespace, "c")


async def test_infrastructure_lost_while_the_cluster_lives_is_reported_not_replaced(engine: Engine) -> None:
    world = await World.new(engine, NEW)
    await world.cluster(control_plane=False)
    await world.infrastructure({"controlPlaneEndpoint": ENDPOINT})
    async with controlling(engine, world.namespace):
        await world.report_infrastructure()
        await world.until_phase("Provisioned")
        await engine.delete(NEW.cluster.target, world.namespace, "c")
        told = await world.until_condition("InfrastructureReady", "False", "ObjectDeleted")
        assert told["message"] == "NewCluster has been deleted while the Cluster still exists"
