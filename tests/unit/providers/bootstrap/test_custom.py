"""What hosts that somebody made may say of themselves."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from remuda.capi import names as capi_names
from remuda.capi.types import Cluster, Machine
from remuda.kube.objects import ObjectMeta
from remuda.providers.bootstrap import custom
from remuda.providers.bootstrap.custom import BadRequest
from remuda.providers.shared import names

CLUSTER = Cluster(metadata=ObjectMeta(name="c", namespace="ns", uid="1"))


def said(**headers: str) -> custom.HostDescription:
    values = {f"x-cattle-{name.replace('_', '-')}": value for name, value in ({"id": "h"} | headers).items()}
    return custom.decode(msgspec.json.encode(custom.collect(values)))


def machine(node: str, id: str, deleting: bool = False) -> Machine:
    labels = {names.NODE_NAME: node, names.MACHINE_ID: id}
    deleted = "2026-01-01T00:00:00Z" if deleting else None
    return Machine(metadata=ObjectMeta(name=f"m-{id}", namespace="ns", labels=labels, deletion_timestamp=deleted))


def test_machine_name_is_derived_from_host_id() -> None:
    assert said(id="abc").name == "custom-ba7816bf8f01"
    assert custom.provider_id("custom-ba7816bf8f01") == "custom://ba7816bf8f01"


def test_collect_keeps_known_headers_and_drops_token() -> None:
    found = custom.collect({"authorization": "Bearer x", "x-cattle-id": "h", "x-cattle-field": "f"})
    assert found == {"id": ["h"]}


def test_roles_labels_and_addresses_reach_the_objects() -> None:
    request = said(role_etcd="true", role_control_plane="TRUE", role_worker="false", labels="a=b", address="10.0.0.1")
    made = custom.machine(request, CLUSTER)
    labels = made["metadata"]["labels"]
    assert labels["a"] == "b"
    assert (labels[names.ETCD_ROLE], labels[names.CONTROL_PLANE_ROLE]) == ("true", "true")
    assert names.WORKER_ROLE not in labels
    assert capi_names.CONTROL_PLANE in labels
    bootstrap = custom.bootstrap(request, CLUSTER)["metadata"]
    assert "a" not in bootstrap["labels"]
    assert bootstrap["annotations"] == {names.ADDRESS: "10.0.0.1", names.NODE_LABELS: "a=b"}


@pytest.mark.parametrize(
    "label",
    [
        names.INIT_NODE,
        names.ETCD_ROLE,
        "cattle.io/else",
        "plan.cattle.io/machine-name",
        capi_names.CLUSTER_NAME,
        "node.cluster.x-k8s.io/x",
        "remuda.dev/retry",
    ],
)
def test_reserved_labels_are_rejected(label: str) -> None:
    with pytest.raises(BadRequest, match="a host cannot choose the label"):
        said(labels=f"{label}=true")


@pytest.mark.parametrize("label", ["zone=a", "topology.kubernetes.io/zone=a", "notcattle.io/x=y", "cattle.io/os=linux"])
def test_unreserved_labels_are_accepted(label: str) -> None:
    assert said(labels=label).labels


@pytest.mark.parametrize("data", [b"", b"[]", b'{"id":5}', b'{"id":["\xff"]}'])
def test_unreadable_request_is_rejected(data: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot read the request"):
        custom.decode(data)


@given(some.dictionaries(some.sampled_from(custom._HEADERS), some.text(max_size=80)))
def test_arbitrary_request_is_rejected_or_gets_only_requested_roles(
    values: dict[str, str],
) -> None:
    try:
        request = said(**{name.replace("-", "_"): value for name, value in values.items()})
    except BadRequest:
        return
    labels = custom.machine(request, CLUSTER)["metadata"]["labels"]
    reserved = {key for key in labels if custom.is_reserved(key)}
    assert reserved <= {
        names.CLUSTER_NAME,
        capi_names.CLUSTER_NAME,
        capi_names.CONTROL_PLANE,
        names.MACHINE_ID,
        names.NODE_NAME,
        names.ETCD_ROLE,
        names.CONTROL_PLANE_ROLE,
        names.WORKER_ROLE,
    }
    assert (names.ETCD_ROLE in labels) == (values.get("role-etcd", "").strip().lower() == "true")


def test_duplicate_node_name_is_refused() -> None:
    request = said(node_name="n", role_worker="true")
    assert custom.refusal(request, [machine("other", "x"), machine("n", "h")]) == ""
    assert "delete that Machine first" in custom.refusal(request, [machine("n", "x")])
    assert "still being deleted" in custom.refusal(request, [machine("n", "x", deleting=True)])
    assert "no role" in custom.refusal(said(node_name="n"), [])
