"""Built-in kinds: Go's decoder decides what is malformed, null is absent, values are left to the kind."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema.depth import MAX_DEPTH
from remuda.apiserver.schema.walk import Structural
from remuda.kube.schema import OBJECT_META, Schema

TEXT = Schema(type="string")
CONTAINER = Schema(
    type="object",
    ref="io.k8s.api.core.v1.Container",
    required=("name",),
    properties={
        "name": TEXT,
        "image": TEXT,
        "tty": Schema(type="boolean"),
        "imagePullPolicy": Schema(type="string", default="IfNotPresent", enum=("Always", "IfNotPresent")),
        "port": Schema(int_or_string=True, ref="IntOrString"),
        "args": Schema(type="array", items=TEXT),
    },
)
POD = Schema(
    type="object",
    ref="io.k8s.api.core.v1.Pod",
    properties={
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": OBJECT_META,
        "spec": Schema(
            type="object",
            ref="io.k8s.api.core.v1.PodSpec",
            properties={
                "containers": Schema(type="array", items=CONTAINER),
                "priority": Schema(type="integer", format="int32"),
                "nodeSelector": Schema(type="object", additional=TEXT),
                "data": Schema(type="string", format="byte"),
                "start": Schema(type="string", format="date-time", ref="Time"),
                "renewed": Schema(type="string", format="date-time", ref="MicroTime"),
                "raw": Schema(type="object", preserve_unknown=True, ref="RawExtension"),
            },
        ),
    },
)
PODS = Structural(POD, native=True, kind="Pod")


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"containers": "x"}, "string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ({"containers": [1]}, "number into Go struct field PodSpec.spec.containers of type v1.Container"),
        ({"containers": [{"name": 5}]}, "number into Go struct field Container.spec.containers.name of type string"),
        ({"containers": [{"tty": "x"}]}, "string into Go struct field Container.spec.containers.tty of type bool"),
        ({"priority": "x"}, "string into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": 2**31}, "number 2147483648 into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": 1.5}, "number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        ({"nodeSelector": {"a": True}}, "bool into Go struct field PodSpec.spec.nodeSelector of type string"),
        ({"nodeSelector": []}, "array into Go struct field PodSpec.spec.nodeSelector of type map[string]string"),
        ({"data": 5}, "number into Go struct field PodSpec.spec.data of type []uint8"),
        ({"start": 5}, "number into Go value of type string"),
        ({"containers": [{"port": True}]}, "bool into Go value of type int32"),
    ],
)
def test_wrong_types_are_reported_like_go_json(spec: dict[str, Any], said: str) -> None:
    assert PODS.admit(pod(**spec)).malformed == f"json: cannot unmarshal {said}"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"data": "a"}, "illegal base64 data at input byte 0"),
        ({"data": "ab%d"}, "illegal base64 data at input byte 2"),
        (
            {"start": "noon"},
            'parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"',
        ),
        (
            {"start": "2025-01-02 03:04:05Z"},
            'parsing time "2025-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T"',
        ),
        (
            {"renewed": "2025-01-02T03:04:05Z"},
            'parsing time "2025-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"',
        ),
        ({"renewed": "2025-01-02T03:04:05.678901+02:00"}, ""),
        ({"start": "2025-13-02T03:04:05Z"}, 'parsing time "2025-13-02T03:04:05Z": month out of range'),
        ({"start": "2025-02-30T03:04:05Z"}, 'parsing time "2025-02-30T03:04:05Z": day out of range'),
    ],
)
def test_base64_and_time_errors_match_go(spec: dict[str, Any], said: str) -> None:
    assert PODS.admit(pod(**spec)).malformed == said


@pytest.mark.parametrize("start", ["2024-02-29T00:00:00Z", "2025-01-31T23:59:59.123456+05:30", "0000-01-01T00:00:00Z"])
def test_valid_times_are_accepted(start: str) -> None:
    assert PODS.is_fine(pod(start=start))


def test_null_fields_are_dropped_and_null_list_items_become_zero() -> None:
    obj = pod(containers=[{"name": "a", "image": None, "args": ["x", None]}], priority=None, nodeSelector={"a": None})
    outcome = PODS.admit(obj)
    assert (outcome.malformed, outcome.unknown, outcome.errors) == ("", [], [])
    container = {"name": "a", "args": ["x", ""], "imagePullPolicy": "IfNotPresent"}
    assert obj["spec"] == {"containers": [container], "nodeSelector": {"a": ""}}


def test_empty_string_is_replaced_by_the_default() -> None:
    obj = pod(containers=[{"name": "a", "imagePullPolicy": ""}])
    assert PODS.is_fine(obj)
    assert obj["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_unknown_fields_are_reported_and_raw_extension_is_kept() -> None:
    obj = pod(zeta=1, containers=[{"name": "a", "other": 1}], raw={"any": {"thing": None}})
    assert PODS.admit(obj).unknown == ["spec.containers[0].other", "spec.zeta"]
    assert obj["spec"]["raw"] == {"any": {"thing": None}}


def test_native_schema_does_not_enforce_enums() -> None:
    assert PODS.admit(pod(containers=[{"imagePullPolicy": "Sometimes"}])).errors == []


def test_line_breaks_are_removed_from_base64() -> None:
    obj = pod(data="YW\nJj\n")
    assert PODS.admit(obj).malformed == ""
    assert obj["spec"]["data"] == "YWJj"


def cyclic() -> Structural:
    node = Schema(type="object", ref="Node", properties={"name": Schema(type="string", default="x")})
    node.properties["child"] = node
    node.properties["children"] = Schema(type="array", items=node)
    return Structural(node, native=True)


def test_cyclic_types_are_defaulted_and_checked() -> None:
    nodes = cyclic()
    obj: dict[str, Any] = {"children": [{"child": {}}], "name": "root"}
    assert nodes.is_fine(obj)
    assert obj == {"children": [{"child": {"name": "x"}, "name": "x"}], "name": "root"}
    assert nodes.admit({"child": {"children": [{"name": 1}]}}).malformed.endswith(
        "Node.child.children.name of type string"
    )


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_cyclic_types_have_bounded_nesting(depth: int) -> None:
    obj: dict[str, Any] = {"unknown": 1}
    for _ in range(depth):
        obj = {"child": obj}
    assert cyclic().admit(obj).malformed == "exceeded max depth"
