from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.types import (
    CLUSTER,
    MACHINE,
    MACHINE_DEPLOYMENT,
    MACHINE_DRAIN_RULE,
    MACHINE_HEALTH_CHECK,
    MACHINE_SET,
    Cluster,
    Endpoint,
    Machine,
    MachineDeployment,
    Reference,
    Selector,
    SelectorRequirement,
)
from remuda.kube.objects import Kind
from remuda.kube.requirements import SelectorError

KINDS: list[Kind[Any]] = [
    CLUSTER,
    MACHINE,
    MACHINE_SET,
    MACHINE_DEPLOYMENT,
    MACHINE_HEALTH_CHECK,
    MACHINE_DRAIN_RULE,
]


def read(kind: Kind[Any], value: dict[str, Any]) -> Any:
    return kind.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_object_without_spec_is_decoded(kind: Kind[Any]) -> None:
    found = read(kind, {"metadata": {"name": "bare", "namespace": "ns"}})
    assert (found.key, found.spec) == (("ns", "bare"), type(found.spec)())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_unknown_spec_fields_are_ignored(kind: Kind[Any]) -> None:
    assert read(kind, {"spec": {"fieldOfTheFuture": {"a": 1}}}) == kind.type()


def test_machine_is_decoded_with_api_field_names() -> None:
    machine: Machine = read(
        MACHINE,
        {
            "metadata": {"name": "m", "labels": {names.CONTROL_PLANE: ""}},
            "spec": {
                "clusterName": "c",
                "providerID": "foo://1",
                "bootstrap": {
                    "configRef": {"apiGroup": "b.io", "kind": "FooConfig", "name": "m"},
                    "dataSecretName": "",
                },
                "deletion": {"nodeVolumeDetachTimeoutSeconds": 0},
                "taints": [{"key": "a", "effect": "NoSchedule", "propagation": "Always"}],
            },
            "status": {
                "nodeInfo": {"systemUUID": "u", "bootID": "b", "machineID": "m", "osImage": "Debian"},
                "initialization": {"infrastructureProvisioned": True},
                "nodeRef": {"name": "node"},
            },
        },
    )
    assert machine.is_control_plane
    assert machine.spec.provider_id == "foo://1"
    assert machine.spec.bootstrap.config_ref == Reference(api_group="b.io", kind="FooConfig", name="m")
    assert machine.spec.bootstrap.data_secret_name == ""
    assert machine.spec.deletion.node_volume_detach_timeout_seconds == 0
    assert machine.spec.deletion.node_drain_timeout_seconds is None
    assert machine.status.node_info is not None
    assert (machine.status.node_info.system_uuid, machine.status.node_info.boot_id) == ("u", "b")
    assert machine.status.initialization.infrastructure_provisioned
    assert not machine.status.initialization.bootstrap_data_secret_created


def test_undefaulted_deployment_decodes_with_strategy_defaults() -> None:
    deployment: MachineDeployment = read(MACHINE_DEPLOYMENT, {"spec": {"rollout": {"after": "2030-01-01T00:00:00Z"}}})
    strategy = deployment.spec.rollout.strategy
    assert (strategy.type, strategy.rolling_update.max_surge, strategy.rolling_update.max_unavailable) == (
        "RollingUpdate",
        1,
        0,
    )


def test_cluster_topology_is_kept_verbatim() -> None:
    topology = {"classRef": {"name": "x"}, "variables": [{"name": "v", "value": {"deep": [1, None]}}]}
    cluster: Cluster = read(CLUSTER, {"spec": {"topology": topology}})
    assert cluster.spec.topology == topology


@pytest.mark.parametrize(
    ("endpoint", "valid", "text"),
    [
        (Endpoint(), False, ":0"),
        (Endpoint(host="a"), False, "a:0"),
        (Endpoint(port=6443), False, ":6443"),
        (Endpoint(host="api.example", port=6443), True, "api.example:6443"),
        (Endpoint(host="fd00::1", port=6443), True, "[fd00::1]:6443"),
    ],
)
def test_endpoint_is_valid_only_with_host_and_port(endpoint: Endpoint, valid: bool, text: str) -> None:
    assert (endpoint.valid, str(endpoint)) == (valid, text)


@pytest.mark.parametrize("missing", ["api_group", "kind", "name"])
def test_reference_is_defined_only_when_complete(missing: str) -> None:
    whole = {"api_group": "g.io", "kind": "K", "name": "n"}
    assert Reference(**whole).defined
    assert not Reference(**{**whole, missing: ""}).defined


def test_selector_compiles_to_a_matching_selector() -> None:
    selector = Selector(
        match_labels={"a": "1"},
        match_expressions=[SelectorRequirement(key="b", operator="NotIn", values=["2"])],
    ).compile()
    assert selector.matches({"a": "1", "b": "3"})
    assert not selector.matches({"a": "1", "b": "2"})
    assert Selector().compile().matches({"any": "thing"})


def test_selector_with_unknown_operator_is_rejected() -> None:
    with pytest.raises(SelectorError, match="Near"):
        Selector(match_expressions=[SelectorRequirement(key="b", operator="Near")]).compile()
