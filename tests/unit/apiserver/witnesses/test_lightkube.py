"""`lightkube`: typed models, apply, and generic custom resources."""

from __future__ import annotations

import httpx2
import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import CascadeType, PatchType

from tests.lab import Ours
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.apiserver.witnesses.conftest import GROUP


@pytest.fixture(scope="module")
def light(server: Ours) -> lightkube.Client:
    config = lightkube.KubeConfig.from_file(str(server.kubeconfig))
    return lightkube.Client(
        config=config, field_manager="witness", timeout=httpx2.Timeout(LIMIT_SECONDS), trust_env=False
    )


def test_lightkube_writes_reads_and_watches(light: lightkube.Client, space: str) -> None:
    made = light.create(ConfigMap(metadata=ObjectMeta(name="one", namespace=space), data={"a": "1"}))
    assert made.metadata is not None
    assert light.get(ConfigMap, "one", namespace=space).data == {"a": "1"}
    patched = light.patch(ConfigMap, "one", {"data": {"b": "2"}}, namespace=space)
    assert patched.data == {"a": "1", "b": "2"}
    replaced = light.patch(
        ConfigMap, "one", [{"op": "remove", "path": "/data/a"}], namespace=space, patch_type=PatchType.JSON
    )
    assert replaced.data == {"b": "2"}
    seen = []
    for type_, obj in light.watch(ConfigMap, namespace=space, resource_version=made.metadata.resourceVersion):
        seen.append((type_, obj.data))
        if len(seen) == 2:
            break
    assert seen == [("MODIFIED", {"a": "1", "b": "2"}), ("MODIFIED", {"b": "2"})]
    assert [c.metadata.name for c in light.list(ConfigMap, namespace=space, chunk_size=1) if c.metadata] == ["one"]
    light.delete(ConfigMap, "one", namespace=space)
    with pytest.raises(ApiError) as gone:
        light.get(ConfigMap, "one", namespace=space)
    assert (gone.value.status.code, gone.value.status.reason) == (404, "NotFound")
    assert gone.value.status.message == 'configmaps "one" not found'


def test_lightkube_applies_with_conflicts_and_force(light: lightkube.Client, space: str) -> None:
    labels = {"app": "web"}
    container = Container(name="web", image="web:1")
    wanted = Deployment(
        metadata=ObjectMeta(name="web", namespace=space),
        spec=DeploymentSpec(
            replicas=2,
            selector=LabelSelector(matchLabels=labels),
            template=PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container])),
        ),
    )
    applied = light.apply(wanted)
    assert applied.metadata is not None
    assert applied.metadata.managedFields is not None
    assert [(m.manager, m.operation) for m in applied.metadata.managedFields] == [("witness", "Apply")]
    container.image = "web:2"
    with pytest.raises(ApiError) as conflict:
        light.apply(wanted, field_manager="other")
    assert (conflict.value.status.code, conflict.value.status.reason) == (409, "Conflict")
    causes = conflict.value.status.details.causes
    assert [cause.field for cause in causes] == ['.spec.template.spec.containers[name="web"].image']
    forced = light.apply(wanted, field_manager="other", force=True)
    assert forced.spec is not None
    assert forced.spec.template.spec is not None
    assert forced.spec.template.spec.containers[0].image == "web:2"


def test_lightkube_handles_generic_custom_resources(light: lightkube.Client, horses: str, space: str) -> None:
    horse = create_namespaced_resource(GROUP, "v1", "Horse", horses)
    light.create(horse(metadata=ObjectMeta(name="bess"), spec={"tags": ["b", "a"]}), namespace=space)
    assert light.get(horse, "bess", namespace=space).spec == {"tags": ["b", "a"], "legs": 4}
    bad = horse(metadata=ObjectMeta(name="bad"), spec={"tags": ["a", "a"]})
    with pytest.raises(ApiError) as invalid:
        light.create(bad, namespace=space)
    assert (invalid.value.status.code, invalid.value.status.reason) == (422, "Invalid")
    assert invalid.value.status.details.causes[0].field == "spec.tags[1]"
    status = light.patch(
        horse.Status, "bess", {"status": {"phase": "Grazing"}}, namespace=space, patch_type=PatchType.MERGE
    )
    assert status.status == {"phase": "Grazing"}
    assert [h.metadata.name for h in light.list(horse, namespace="*") if h.metadata.namespace == space] == ["bess"]


def test_lightkube_watches_namespace_deletion(light: lightkube.Client, space: str) -> None:
    light.create(ConfigMap(metadata=ObjectMeta(name="inside", namespace=space)))
    found = light.get(Namespace, space)
    assert found.metadata is not None
    revision = found.metadata.resourceVersion
    light.delete(Namespace, space, cascade=CascadeType.FOREGROUND)
    watching = light.watch(Namespace, fields={"metadata.name": space}, resource_version=revision)
    types = []
    for type_, _ in watching:
        types.append(type_)
        if type_ == "DELETED":
            break
    assert types[-1] == "DELETED"
    assert list(light.list(ConfigMap, namespace=space)) == []
