from __future__ import annotations

from collections import Counter

import pytest

from remuda.apiserver.kinds import idl
from remuda.apiserver.kinds.idl import MessageType
from remuda.apiserver.schema.openapi_render import component_name
from remuda.kube.schema import OBJECT_META, UNSET, Schema

GROUPS = (
    "",
    "meta.k8s.io",
    "apps",
    "batch",
    "policy",
    "autoscaling",
    "coordination.k8s.io",
    "events.k8s.io",
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "networking.k8s.io",
    "discovery.k8s.io",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
)


def every_message() -> list[MessageType]:
    return [message for group in GROUPS for message in idl.load(group, "v1").values()]


def test_every_field_number_is_unique_in_its_message() -> None:
    for message in every_message():
        numbers = Counter(field.number for field in message.fields if field.number)
        assert not [n for n, times in numbers.items() if times > 1], message.name


def test_field_names_are_unique_including_inlined_messages() -> None:
    def flattened(message: MessageType) -> list[str]:
        found = []
        for field in message.fields:
            inner = idl.resolve(field.form.type) if field.form.inline else None
            found += flattened(inner) if isinstance(inner, MessageType) else [field.name]
        return found

    for message in every_message():
        names = flattened(message)
        assert len(names) == len(set(names)), message.name


def test_field_types_all_resolve() -> None:
    for message in every_message():
        for field in message.fields:
            assert idl.resolve(field.form.type) is not None or field.form.type in idl.SCALARS


def test_kinds_all_have_a_description() -> None:
    missing = [m.name for m in every_message() if m.is_kind and not m.description]
    assert missing == []


def test_merge_key_is_a_field_of_the_list_items() -> None:
    for message in every_message():
        for field in message.fields:
            item = idl.resolve(field.form.type)
            keys = {*field.form.keys, *filter(None, [field.form.merge_key])}
            if keys:
                assert isinstance(item, MessageType)
                assert keys <= idl.schema_of(item).properties.keys(), f"{message.name}.{field.name}"


def test_deployment_schema_has_expected_shape() -> None:
    schema = idl.schema_of(idl.message("apps", "v1", "Deployment"))
    assert schema.properties["metadata"] is OBJECT_META
    assert schema.description.startswith("Keeps a number of identical pods")
    spec = schema.properties["spec"]
    assert spec.default == {}
    assert spec.required == ("selector", "template")
    assert (spec.properties["replicas"].type, spec.properties["replicas"].default) == ("integer", 1)
    assert spec.properties["selector"].map_type == "atomic"
    assert spec.properties["strategy"].patch_strategy == ("retainKeys",)
    containers = spec.properties["template"].properties["spec"].properties["containers"]
    assert (containers.list_type, containers.list_map_keys) == ("map", ("name",))
    assert (containers.patch_strategy, containers.patch_merge_key) == (("merge",), "name")


def test_inlined_fields_appear_in_the_parent_schema() -> None:
    volume = idl.schema_of(idl.message("", "v1", "Volume"))
    assert {"name", "secret", "configMap", "emptyDir"} <= volume.properties.keys()
    assert "volumeSource" not in volume.properties


def test_json_schema_props_schema_is_recursive() -> None:
    props = idl.schema_of(idl.message("apiextensions.k8s.io", "v1", "JSONSchemaProps"))
    assert props.properties["not"].properties is props.properties
    assert props.properties["properties"].additional is props


def test_schema_nodes_are_shared_between_kinds() -> None:
    def pod_spec(group: str, kind: str) -> dict[str, Schema]:
        template = idl.schema_of(idl.message(group, "v1", kind)).properties["spec"].properties["template"]
        return template.properties["spec"].properties

    assert pod_spec("apps", "Deployment") is pod_spec("batch", "Job") is pod_spec("apps", "DaemonSet")


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        ("Quantity", "io.k8s.apimachinery.pkg.api.resource.Quantity"),
        ("io.k8s.api.core.v1.PodSpec", "io.k8s.api.core.v1.PodSpec"),
    ],
)
def test_openapi_component_name_is_fully_qualified(ref: str, name: str) -> None:
    assert component_name(ref) == name


def test_enum_and_wrapped_list_fields_have_expected_schema() -> None:
    port = idl.schema_of(idl.message("", "v1", "ContainerPort"))
    assert port.properties["protocol"].enum == ("TCP", "UDP", "SCTP")
    assert port.properties["protocol"].default == "TCP"
    extra = idl.schema_of(idl.message("authorization.k8s.io", "v1", "SubjectAccessReviewSpec")).properties["extra"]
    assert extra.additional is not None
    assert (extra.additional.type, extra.additional.items and extra.additional.items.type) == ("array", "string")


def test_pointer_field_has_no_default() -> None:
    status = idl.schema_of(idl.message("apps", "v1", "DeploymentStatus"))
    assert status.properties["collisionCount"].default is UNSET
    assert idl.schema_of(idl.message("", "v1", "PodCondition")).properties["status"].default == ""


def test_unknown_flag_or_message_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown flag"):
        idl._flag("sometimes", "string")
    with pytest.raises(KeyError):
        idl.message("apps", "v1", "Nothing")
