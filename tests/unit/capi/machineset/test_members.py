from __future__ import annotations

import pytest

from remuda.capi import names
from remuda.capi.machineset import members
from remuda.capi.machineset.scope import machine_labels
from remuda.capi.types import (
    MachineSet,
    MachineSetSpec,
    MachineTemplate,
    Selector,
    SelectorRequirement,
    TemplateMetadata,
)
from remuda.kube.objects import ObjectMeta


def machine_set(selector: Selector, labels: dict[str, str] | None = None, name: str = "ms") -> MachineSet:
    template = MachineTemplate(metadata=TemplateMetadata(labels={"pool": "a"}))
    return MachineSet(
        metadata=ObjectMeta(name=name, labels=labels or {}),
        spec=MachineSetSpec(cluster_name="c", selector=selector, template=template),
    )


@pytest.mark.parametrize(
    "selector",
    [
        Selector(match_labels={"pool": "a"}),
        Selector(match_labels={names.SET_NAME: "ms", names.CLUSTER_NAME: "c"}),
        Selector(match_expressions=[SelectorRequirement(key="pool", operator="Exists")]),
    ],
)
def test_selector_matching_template_has_no_mismatch(selector: Selector) -> None:
    assert members.mismatch(machine_set(selector)) == ""


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (Selector(), "selects all Machines or none"),
        (Selector(match_labels={"pool": "b"}), "(pool=b) does not match"),
        (Selector(match_expressions=[SelectorRequirement(key="pool", operator="Near")]), "is invalid"),
    ],
)
def test_selector_not_matching_template_is_reported(selector: Selector, why: str) -> None:
    """kubernetes-sigs/cluster-api#8112: a mistake in a spec made Machines without end."""
    assert why in members.mismatch(machine_set(selector))


def test_machine_labels_combine_template_set_and_deployment() -> None:
    found = machine_labels(machine_set(Selector(), {names.DEPLOYMENT_NAME: "md", "own": "x"}))
    assert found == {"pool": "a", names.CLUSTER_NAME: "c", names.SET_NAME: "ms", names.DEPLOYMENT_NAME: "md"}


def test_overlong_set_name_is_hashed_into_label() -> None:
    name = "x" * 70
    assert machine_labels(machine_set(Selector(), name=name))[names.SET_NAME] == names.label_value(name) != name
