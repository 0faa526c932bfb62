from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.admission.machinedrainrule import admit
from tests.unit.capi.admission.judging import Json, admitted, an_object, complaints

WRONG = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}


def rule(behavior: str = "Drain", order: int | None = None, **spec: Any) -> Json:
    drain = {"behavior": behavior, **({} if order is None else {"order": order})}
    return an_object({"drain": drain, **spec})


@pytest.mark.parametrize("new", [rule(order=0), rule(order=-5), rule("Skip"), rule("WaitCompleted")])
def test_valid_drain_rule_is_stored_unchanged(new: Json) -> None:
    assert admitted(admit, new) == new


@pytest.mark.parametrize("behavior", ["Skip", "WaitCompleted"])
def test_drain_order_requires_drain_behavior(behavior: str) -> None:
    assert complaints(admit, rule(behavior, 0)) == [
        "spec.drain.order: Invalid value: 0: can only be set where behavior is Drain"
    ]


@pytest.mark.parametrize(
    ("list_name", "field"),
    [("machines", "selector"), ("machines", "clusterSelector"), ("pods", "selector"), ("pods", "namespaceSelector")],
)
def test_invalid_drain_rule_selector_is_denied(list_name: str, field: str) -> None:
    fine = {field: {"matchLabels": {"a": "b"}}}
    assert complaints(admit, rule(**{list_name: [fine]})) == []
    (said,) = complaints(admit, rule(**{list_name: [fine, {field: WRONG}]}))
    assert said.startswith(f"spec.{list_name}[1].{field}: Invalid value:")
