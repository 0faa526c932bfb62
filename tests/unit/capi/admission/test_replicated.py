"""MachineSets and MachineDeployments: what both have in common, then what only the latter has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names
from remuda.capi.admission import machinedeployment, machineset
from remuda.kube.admission import AdmissionFunction
from tests.unit.capi.admission.judging import Json, admitted, an_object, complaints, machine_spec

BOTH = pytest.mark.parametrize(
    "admit", [machineset.admit, machinedeployment.admit], ids=["MachineSet", "MachineDeployment"]
)


def replicated(
    template: Json | None = None, *, annotations: Json | None = None, name: str = "one", **spec: Any
) -> Json:
    whole = {"clusterName": "c1", "selector": {}, "template": template or {"spec": machine_spec()}, **spec}
    return an_object(whole, name=name, annotations=annotations or {})


def bounds(least: object, most: object) -> Json:
    return {names.AUTOSCALER_MIN_SIZE: str(least), names.AUTOSCALER_MAX_SIZE: str(most)}


def test_machine_set_defaults_are_filled_in() -> None:
    stored = admitted(machineset.admit, replicated({"spec": machine_spec(version="1.35.2")}))
    assert stored["metadata"]["labels"] == {names.CLUSTER_NAME: "c1"}
    assert stored["spec"] == {
        "clusterName": "c1",
        "replicas": 1,
        "selector": {"matchLabels": {names.SET_NAME: "one"}},
        "template": {
            "metadata": {"labels": {names.SET_NAME: "one", names.CLUSTER_NAME: "c1"}},
            "spec": machine_spec(version="v1.35.2"),
        },
    }


def test_machine_deployment_defaults_are_filled_in() -> None:
    stored = admitted(machinedeployment.admit, replicated({"spec": machine_spec(version="1.35.2")}))
    labels = {names.DEPLOYMENT_NAME: "one", names.CLUSTER_NAME: "c1"}
    assert stored["metadata"]["labels"] == {names.CLUSTER_NAME: "c1"}
    assert stored["spec"] == {
        "clusterName": "c1",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        "template": {"metadata": {"labels": labels}, "spec": machine_spec(version="v1.35.2")},
    }


@BOTH
def test_explicit_selector_is_kept(admit: AdmissionFunction) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": machine_spec()}
    stored = admitted(admit, replicated(template, selector={"matchLabels": {"a": "b"}}))
    assert stored["spec"]["selector"]["matchLabels"]["a"] == "b"
    assert names.SET_NAME not in stored["spec"]["selector"]["matchLabels"]
    assert names.DEPLOYMENT_NAME not in stored["spec"]["selector"]["matchLabels"]


def test_machine_set_name_may_exceed_label_length() -> None:
    stored = admitted(machineset.admit, replicated(name="a" * 64))
    assert stored["spec"]["selector"] == {"matchLabels": {names.SET_NAME: names.label_value("a" * 64)}}


def test_machine_deployment_name_must_fit_a_label() -> None:
    (said,) = complaints(machinedeployment.admit, replicated(name="a" * 64))
    assert "metadata.name" in said


@BOTH
def test_selector_is_required_without_a_name(admit: AdmissionFunction) -> None:
    (said,) = complaints(admit, replicated(name=""))
    assert said.startswith("spec.selector: Required value: its default is derived from metadata.name")


@BOTH
@pytest.mark.parametrize(
    ("written", "before", "annotations", "expected"),
    [
        (4, 2, bounds(5, 9), 4),
        (0, None, {}, 0),
        (None, None, {}, 1),
        (None, 7, {}, 7),
        (None, None, bounds(3, 9), 3),
        (None, 2, bounds(3, 9), 3),
        (None, 5, bounds(3, 9), 5),
        (None, 12, bounds(3, 9), 9),
        (None, 12, {names.AUTOSCALER_MIN_SIZE: "3"}, 12),
    ],
)
def test_replicas_default_from_old_object_and_autoscaler_bounds(
    admit: AdmissionFunction, written: int | None, before: int | None, annotations: Json, expected: int
) -> None:
    new = replicated(annotations=annotations, **({} if written is None else {"replicas": written}))
    old = None if before is None else replicated(replicas=before)
    assert admitted(admit, new, old)["spec"]["replicas"] == expected


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_defaulted_replicas_stay_within_autoscaler_bounds(least: int, more: int, before: int) -> None:
    new = replicated(annotations=bounds(least, least + more))
    found = admitted(machineset.admit, new, replicated(replicas=before))["spec"]["replicas"]
    assert least <= found <= least + more
    assert found == before or not least <= before <= least + more


@BOTH
def test_autoscaler_bounds_must_be_numbers(admit: AdmissionFunction) -> None:
    (said,) = complaints(admit, replicated(annotations=bounds("few", 9)))
    assert said == f'metadata.annotations[{names.AUTOSCALER_MIN_SIZE}]: Invalid value: "few": must be a whole number'


CHECKS = names.SKIP_PREFLIGHT_CHECKS


@BOTH
@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (replicated(replicas=-1), "spec.replicas: Invalid value: -1: must not be negative"),
        (
            replicated(clusterName="c2"),
            'spec.clusterName: Invalid value: "c2": must be the same as spec.template.spec.clusterName, which is',
        ),
        (
            replicated({"spec": machine_spec(bootstrap={})}),
            "spec.template.spec.bootstrap: Required value: either configRef or dataSecretName must be set",
        ),
        (
            replicated({"spec": machine_spec(version="v1")}),
            'spec.template.spec.version: Invalid value: "v1": must be a semantic version, as in v1.35.2',
        ),
        (
            replicated({"spec": machine_spec(), "metadata": {"labels": {"a": "-"}}}),
            'spec.template.metadata.labels: Invalid value: "-": a valid label must be',
        ),
        (
            replicated({"spec": machine_spec(), "metadata": {"annotations": {"a b": ""}}}),
            "spec.template.metadata.annotations: Invalid value",
        ),
        (replicated(machineNaming={"template": "{{ .machineSet.name }}"}), "{{ .random }} must be part of it"),
        (
            replicated(machineNaming={"template": "A-{{ .random }}"}),
            "renders names like 'A-x4d2f', which are invalid",
        ),
        (replicated(machineNaming={"template": "{{ .other }}-{{ .random }}"}), "{{ .other }} is not supported"),
        (
            replicated(selector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            '"Near" is not a valid label selector operator',
        ),
        (
            replicated(annotations={CHECKS: "All,Everything"}),
            "has unknown checks: Everything; supported checks: All,",
        ),
    ],
)
def test_invalid_replicated_spec_is_denied(admit: AdmissionFunction, new: Json, complaint: str) -> None:
    found = complaints(admit, new)
    assert len(found) == 1
    assert complaint in found[0]


@BOTH
def test_template_labels_must_match_the_selector(admit: AdmissionFunction) -> None:
    (said,) = complaints(admit, replicated(selector={"matchLabels": {"a": "b"}}))
    assert said.startswith("spec.template.metadata.labels: Invalid value:")
    assert "must match spec.selector 'a=b" in said


@BOTH
@pytest.mark.parametrize("value", ["All", "ControlPlaneIsStable, KubernetesVersionSkew"])
def test_preflight_checks_may_be_skipped_by_name(admit: AdmissionFunction, value: str) -> None:
    assert complaints(admit, replicated(annotations={CHECKS: value})) == []


@BOTH
def test_replicated_cluster_name_is_immutable(admit: AdmissionFunction) -> None:
    moved = replicated({"spec": machine_spec(clusterName="c2")}, clusterName="c2")
    assert complaints(admit, moved, replicated()) == ["spec.clusterName: Forbidden: field is immutable"]


def strategy(kind: str = "RollingUpdate", **update: Any) -> Json:
    return {"strategy": {"type": kind, **({"rollingUpdate": update} if update else {})}}


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        (strategy(maxSurge="25%"), strategy(maxSurge="25%", maxUnavailable=0)),
        (strategy(maxUnavailable=2), strategy(maxSurge=1, maxUnavailable=2)),
        (strategy("OnDelete"), strategy("OnDelete")),
        (
            {"after": "2030-01-01T00:00:00Z"},
            {"after": "2030-01-01T00:00:00Z", **strategy(maxSurge=1, maxUnavailable=0)},
        ),
    ],
)
def test_rollout_strategy_defaults_are_filled_in(rollout: Json, expected: Json) -> None:
    assert admitted(machinedeployment.admit, replicated(rollout=rollout))["spec"]["rollout"] == expected


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"rollout": strategy(maxSurge=0, maxUnavailable=0)}, "cannot both be 0: no Machine could be replaced"),
        ({"rollout": strategy(maxSurge="0%", maxUnavailable=0)}, "cannot both be 0: no Machine could be replaced"),
        ({"rollout": strategy(maxSurge=0)}, "cannot both be 0: no Machine could be replaced"),
        ({"rollout": strategy(maxSurge="many")}, 'maxSurge: Invalid value: "many": must be a number or a percentage'),
        ({"rollout": strategy(maxUnavailable=-1)}, "maxUnavailable: Invalid value: -1: must not be negative"),
        ({"remediation": {"maxInFlight": "5"}}, 'spec.remediation.maxInFlight: Invalid value: "5": must be a number'),
    ],
)
def test_invalid_rollout_or_remediation_settings_are_denied(spec: Json, complaint: str) -> None:
    (said,) = complaints(machinedeployment.admit, replicated(**spec))
    assert complaint in said
