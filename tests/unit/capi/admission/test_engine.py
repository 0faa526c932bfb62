"""Admission as part of the engine: objects arrive through the API and are stored with their defaults, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio

from remuda.capi import admission, names
from remuda.capi.definitions import definitions
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.runtime.definitions import install
from tests.unit.apiserver.engine import Engine, refusal
from tests.unit.capi.admission.judging import Json, machine_spec, reference

pytestmark = pytest.mark.asyncio(loop_scope="module")

_COUNTER = count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path_factory.mktemp("engine") / "data")
    await install(engine.client, definitions())
    for registration in admission.FUNCTIONS:
        engine.registry.admission.register(*registration)
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def ns(engine: Engine) -> str:
    """A namespace of one's own."""
    return await engine.namespace(f"ns-{next(_COUNTER)}")


def deployment(**metadata: object) -> Json:
    return {"metadata": metadata, "spec": {"clusterName": "c1", "selector": {}, "template": {"spec": machine_spec()}}}


async def test_minimal_machine_deployment_is_stored_with_defaults(engine: Engine, ns: str) -> None:
    found = await engine.create(MACHINE_DEPLOYMENT.target, ns, deployment(name="md"))
    assert found["spec"]["selector"]["matchLabels"] == {names.DEPLOYMENT_NAME: "md", names.CLUSTER_NAME: "c1"}
    assert found["spec"]["replicas"] == 1
    assert found["metadata"]["labels"] == {names.CLUSTER_NAME: "c1"}


async def test_generated_name_is_available_to_defaulting(engine: Engine, ns: str) -> None:
    found = await engine.create(MACHINE_DEPLOYMENT.target, ns, deployment(generateName="md-"))
    assert found["spec"]["selector"]["matchLabels"][names.DEPLOYMENT_NAME] == found["metadata"]["name"]


async def test_cluster_with_topology_is_denied_and_not_stored(engine: Engine, ns: str) -> None:
    cluster = {"metadata": {"name": "c1"}, "spec": {"topology": {"classRef": {"name": "x"}}}}
    error = await refusal(engine.client.create(CLUSTER.target, ns, cluster))
    assert error.code == 422
    assert 'Cluster.cluster.x-k8s.io "c1" is invalid: spec.topology: Forbidden: ClusterClass' in str(error)
    assert engine.names(CLUSTER.target, ns) == []


async def test_scale_and_status_updates_bypass_defaulting(engine: Engine, ns: str) -> None:
    await engine.create(MACHINE_SET.target, ns, {**deployment(name="ms")})
    await engine.patch(MACHINE_SET.target, ns, "ms", {"spec": {"replicas": 0}}, subresource="scale")
    found = await engine.patch(MACHINE_SET.target, ns, "ms", {"status": {"replicas": 3}}, subresource="status")
    assert (found["spec"]["replicas"], found["status"]) == (0, {"replicas": 3})


async def test_null_labels_do_not_bypass_validation(engine: Engine, ns: str) -> None:
    machine = {"metadata": {"name": "m", "labels": None}, "spec": machine_spec(bootstrap={})}
    error = await refusal(engine.client.create(MACHINE.target, ns, machine))
    assert error.code == 422


async def test_unchanged_patch_keeps_resource_version(engine: Engine, ns: str) -> None:
    first = await engine.create(MACHINE_DEPLOYMENT.target, ns, deployment(name="md"))
    again = await engine.patch(MACHINE_DEPLOYMENT.target, ns, "md", {"spec": {"clusterName": "c1"}})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_server_side_apply_without_replicas_keeps_scaled_replicas(engine: Engine, ns: str) -> None:
    manifest = {"apiVersion": names.API_VERSION, "kind": "MachineDeployment", **deployment(name="md")}
    await engine.client.patch(MACHINE_DEPLOYMENT.target, ns, "md", manifest, kind="apply", field_manager="user")
    await engine.patch(MACHINE_DEPLOYMENT.target, ns, "md", {"spec": {"replicas": 5}}, subresource="scale")
    await engine.client.patch(MACHINE_DEPLOYMENT.target, ns, "md", manifest, kind="apply", field_manager="user")
    found = engine.find(MACHINE_DEPLOYMENT.target, ns, "md") or {}
    assert found["spec"]["replicas"] == 5


async def test_machine_cluster_name_is_immutable(engine: Engine, ns: str) -> None:
    await engine.create(MACHINE.target, ns, {"metadata": {"name": "m"}, "spec": machine_spec()})
    error = await refusal(engine.client.patch(MACHINE.target, ns, "m", {"spec": {"clusterName": "c2"}}))
    assert "spec.clusterName: Forbidden: field is immutable" in str(error)


async def test_cluster_control_plane_reference_cannot_be_removed(engine: Engine, ns: str) -> None:
    spec = {"infrastructureRef": reference("FooCluster"), "controlPlaneRef": reference("FooControlPlane")}
    await engine.create(CLUSTER.target, ns, {"metadata": {"name": "c1"}, "spec": spec})
    error = await refusal(engine.client.patch(CLUSTER.target, ns, "c1", {"spec": {"controlPlaneRef": None}}))
    assert "spec.controlPlaneRef: Forbidden: cannot be removed" in str(error)
