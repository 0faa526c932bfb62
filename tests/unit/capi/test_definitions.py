"""Our definitions on the engine: what they accept, what they refuse, and how they are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

from remuda.capi.definitions import definitions
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    MACHINE_HEALTH_CHECK,
    MACHINE_SET,
)
from remuda.kube.objects import Kind
from remuda.runtime.definitions import install, revised
from tests.unit.apiserver.engine import CRDS, Engine, loads, refusal

Json = dict[str, Any]

_COUNTER = count()


def reference(kind: str, group: str = "infrastructure.cluster.x-k8s.io") -> Json:
    return {"apiGroup": group, "kind": kind, "name": "c1"}


MACHINE_SPEC = {
    "clusterName": "c1",
    "version": "v1.36.0",
    "bootstrap": {"configRef": reference("FooConfigTemplate", "bootstrap.cluster.x-k8s.io")},
    "infrastructureRef": reference("FooMachineTemplate"),
}
MINIMAL: dict[str, tuple[Kind[Any], Json]] = {
    "Cluster": (
        CLUSTER,
        {
            "clusterNetwork": {"pods": {"cidrBlocks": ["10.1.0.0/16"]}},
            "infrastructureRef": reference("FooCluster"),
            "controlPlaneRef": reference("FooControlPlane", "controlplane.cluster.x-k8s.io"),
        },
    ),
    "Machine": (MACHINE, MACHINE_SPEC),
    "MachineSet": (MACHINE_SET, {"clusterName": "c1", "selector": {}, "template": {"spec": MACHINE_SPEC}}),
    "MachineDeployment": (
        MACHINE_DEPLOYMENT,
        {"clusterName": "c1", "replicas": 3, "selector": {}, "template": {"spec": MACHINE_SPEC}},
    ),
    "MachineHealthCheck": (MACHINE_HEALTH_CHECK, {"clusterName": "c1", "selector": {"matchLabels": {"a": "b"}}}),
    "MachineDrainRule": (MACHINE_DRAIN_RULE, {"drain": {"behavior": "Skip"}}),
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path_factory.mktemp("engine") / "data")
    await install(engine.client, definitions())
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def ns(engine: Engine) -> str:
    """A namespace of one's own."""
    return await engine.namespace(f"ns-{next(_COUNTER)}")


def minimal(kind: str, name: str = "c1") -> Json:
    return {"metadata": {"name": name}, "spec": deepcopy(MINIMAL[kind][1])}


def changed(value: Json, path: str, to: Any) -> Json:
    *parents, last = path.split(".")
    inner = value
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = to
    return value


@pytest.mark.parametrize("kind", MINIMAL)
async def test_minimal_object_is_accepted_and_decoded(engine: Engine, ns: str, kind: str) -> None:
    typed, spec = MINIMAL[kind]
    value = await engine.client.create(typed.target, ns, minimal(kind))
    assert loads(value)["spec"] == spec
    assert typed.decode(value).spec != type(typed.decode(value).spec)()


async def test_api_server_returns_every_definition_unchanged(engine: Engine) -> None:
    for wanted in definitions():
        present = engine.find(CRDS, "", wanted["metadata"]["name"])
        assert present is not None
        assert revised(present, wanted) is None


@pytest.mark.parametrize(
    ("kind", "path", "value", "complaint"),
    [
        ("Cluster", "spec", {}, "should have at least 1 properties"),
        ("Cluster", "spec.controlPlaneEndpoint", {"host": "a", "port": 70000}, "65535"),
        ("Cluster", "spec.clusterNetwork", {}, "should have at least 1 properties"),
        ("Machine", "spec.clusterName", "", "spec.clusterName"),
        ("Machine", "spec.clusterName", "a" * 64, "spec.clusterName"),
        ("Machine", "spec.infrastructureRef.apiGroup", "", "apiGroup"),
        ("Machine", "spec.deletion", {}, "should have at least 1 properties"),
        ("Machine", "spec.deletion.nodeDrainTimeoutSeconds", -1, "greater than or equal to 0"),
        ("Machine", "spec.taints", [{"key": "a", "effect": "NoSchedule"}], "propagation: Required value"),
        ("MachineSet", "spec.deletion.order", "Eldest", 'supported values: "Random", "Newest", "Oldest"'),
        ("MachineDeployment", "spec.rollout.strategy", {"rollingUpdate": {"maxSurge": 1}}, "type: Required value"),
        ("MachineHealthCheck", "spec.remediation.triggerIf.unhealthyInRange", "3-5", "unhealthyInRange"),
        (
            "MachineHealthCheck",
            "spec.checks.unhealthyMachineConditions",
            [{"type": "Ready", "status": "False", "timeoutSeconds": 1}],
            "type must not be one of: Ready,",
        ),
        ("MachineDrainRule", "spec.drain.behavior", "Wait", 'supported values: "Drain", "Skip", "WaitCompleted"'),
        (
            "MachineDrainRule",
            "spec.pods",
            [{"selector": {"matchLabels": {"a": "b"}}}] * 2,
            "entries in pods must be unique",
        ),
    ],
)
async def test_invalid_field_value_is_rejected_by_schema(
    engine: Engine, ns: str, kind: str, path: str, value: Any, complaint: str
) -> None:
    error = await refusal(engine.client.create(MINIMAL[kind][0].target, ns, changed(minimal(kind), path, value)))
    assert error.code == 422
    assert complaint in str(error)


async def test_cluster_topology_is_rejected_instead_of_pruned(engine: Engine, ns: str) -> None:
    topology = {"classRef": {"name": "x"}, "workers": {"machineDeployments": [{"name": "a"}]}}
    cluster = {"metadata": {"name": "c1"}, "spec": {"topology": topology}}
    error = await refusal(engine.client.create(CLUSTER.target, ns, cluster))
    assert str(error).count("Forbidden") == 1
    assert "spec.topology: Forbidden: ClusterClass is not supported" in str(error)


@pytest.mark.parametrize(
    ("kind", "patch", "complaint"),
    [
        ("Machine", {"clusterName": "c2"}, "spec.clusterName: Forbidden: field is immutable"),
        ("MachineHealthCheck", {"clusterName": "c2"}, "spec.clusterName: Forbidden: field is immutable"),
        ("MachineSet", {"clusterName": "c2"}, "must be the same as spec.template.spec.clusterName"),
        (
            "MachineDeployment",
            {"clusterName": "c2", "template": {"spec": {"clusterName": "c2"}}},
            "spec.clusterName: Forbidden: field is immutable",
        ),
        ("Cluster", {"infrastructureRef": None}, "spec: Forbidden: spec.infrastructureRef cannot be removed"),
        ("Cluster", {"controlPlaneRef": None}, "spec: Forbidden: spec.controlPlaneRef cannot be removed"),
        ("MachineDrainRule", {"drain": {"order": 3}}, "can only be set where behavior is Drain"),
    ],
)
async def test_crd_validation_rejects_forbidden_updates_without_admission(
    engine: Engine, ns: str, kind: str, patch: Json, complaint: str
) -> None:
    target = MINIMAL[kind][0].target
    await engine.create(target, ns, minimal(kind))
    error = await refusal(engine.client.patch(target, ns, "c1", {"spec": patch}))
    assert complaint in str(error)


async def test_cluster_without_references_is_rejected(engine: Engine, ns: str) -> None:
    error = await refusal(
        engine.client.create(CLUSTER.target, ns, {"metadata": {"name": "c"}, "spec": {"paused": True}})
    )
    assert "one of spec.controlPlaneRef and spec.infrastructureRef must be set" in str(error)


async def test_condition_requires_reason_and_message(engine: Engine, ns: str) -> None:
    await engine.create(MACHINE.target, ns, minimal("Machine"))
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    error = await refusal(
        engine.client.patch(MACHINE.target, ns, "c1", {"status": {"conditions": [condition]}}, subresource="status")
    )
    assert "reason: Required value" in str(error)
    assert "message: Required value" in str(error)


@pytest.mark.parametrize("kind", ["MachineSet", "MachineDeployment"])
async def test_machine_sets_and_deployments_support_scale_subresource(engine: Engine, ns: str, kind: str) -> None:
    target = MINIMAL[kind][0].target
    await engine.create(target, ns, minimal(kind))
    await engine.patch(target, ns, "c1", {"spec": {"replicas": 7}}, subresource="scale")
    found = engine.find(target, ns, "c1") or {}
    assert found["spec"]["replicas"] == 7
