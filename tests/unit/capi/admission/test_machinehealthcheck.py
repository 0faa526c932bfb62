from __future__ import annotations

from typing import Any

import pytest

from remuda.capi import names
from remuda.capi.admission.machinehealthcheck import admit
from tests.unit.capi.admission.judging import Json, admitted, an_object, complaints


def check(**spec: Any) -> Json:
    return an_object({"clusterName": "c1", "selector": {"matchLabels": {"a": "b"}}, **spec})


def trigger(**fields: Any) -> Json:
    return check(remediation={"triggerIf": fields})


def test_machine_health_check_defaults_are_filled_in() -> None:
    stored = admitted(admit, check())
    assert stored["metadata"]["labels"] == {names.CLUSTER_NAME: "c1"}
    assert stored["spec"]["checks"] == {"nodeStartupTimeoutSeconds": 600}


@pytest.mark.parametrize("seconds", [0, 30, 600])
def test_explicit_node_startup_timeout_is_kept(seconds: int) -> None:
    stored = admitted(admit, check(checks={"nodeStartupTimeoutSeconds": seconds}))
    assert stored["spec"]["checks"]["nodeStartupTimeoutSeconds"] == seconds


@pytest.mark.parametrize("fields", [{"unhealthyLessThanOrEqualTo": "40%"}, {"unhealthyInRange": "[3-5]"}])
def test_valid_remediation_triggers_are_admitted(fields: Json) -> None:
    assert complaints(admit, trigger(**fields)) == []


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (check(selector={}), "spec.selector: Required value: must not be empty"),
        (check(selector={"matchExpressions": [{"key": "a", "operator": "?"}]}), "spec.selector: Invalid value"),
        (
            check(selector={"matchLabels": {names.CLUSTER_NAME: "c2"}}),
            "selects Machines of a cluster other than spec.clusterName, which is 'c1'",
        ),
        (check(checks={"nodeStartupTimeoutSeconds": 29}), "must be 0 (no limit) or at least 30"),
        (trigger(unhealthyLessThanOrEqualTo="most"), "unhealthyLessThanOrEqualTo: Invalid value"),
        (trigger(unhealthyInRange="[5-3]"), "its start is greater than its end"),
    ],
)
def test_invalid_machine_health_check_is_denied(new: Json, complaint: str) -> None:
    (said,) = complaints(admit, new)
    assert complaint in said


def test_machine_health_check_cluster_name_is_immutable() -> None:
    assert complaints(admit, check(clusterName="c2"), check()) == ["spec.clusterName: Forbidden: field is immutable"]


def test_selector_may_name_the_cluster() -> None:
    assert complaints(admit, check(selector={"matchLabels": {names.CLUSTER_NAME: "c1"}})) == []
