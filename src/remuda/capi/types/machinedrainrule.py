"""MachineDrainRule: which Pods are moved away from a Node that goes, which are left, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from remuda.capi import names
from remuda.capi.types.shared import Int32, Selector
from remuda.kube.objects import Field, Kind, Object, Part
from remuda.kube.schema import Rule

DRAIN_BEHAVIORS = ("Drain", "Skip", "WaitCompleted")


def _unique(field: str) -> tuple[Rule, ...]:
    return (Rule(rule="self.all(x, self.exists_one(y, x == y))", message=f"entries in {field} must be unique"),)


_ONLY_DRAIN_HAS_AN_ORDER = (
    Rule(
        rule="self.behavior == 'Drain' || !has(self.order)",
        message="can only be set where behavior is Drain",
        field_path=".order",
    ),
)


class DrainAction(Part):
    """Drain behavior for the selected Pods."""

    behavior: Annotated[
        str,
        Field(
            "Drain: evict the Pods. Skip: ignore them. WaitCompleted: wait until they complete.",
            required=True,
            enum=DRAIN_BEHAVIORS,
        ),
    ] = ""
    order: Annotated[Int32 | None, Field("Pods with a lower order are evicted first; only with Drain; 0 if unset.")] = (
        None
    )


class DrainMachines(Part):
    """Machines whose labels, and whose Cluster's labels, match."""

    selector: Annotated[Selector | None, Field("Selector for labels of the Machine.", map_type="atomic")] = None
    cluster_selector: Annotated[Selector | None, Field("Selector for labels of its Cluster.", map_type="atomic")] = None


class DrainPods(Part):
    """Pods whose labels, and whose namespace's labels, match."""

    selector: Annotated[Selector | None, Field("Selector for labels of the Pod.", map_type="atomic")] = None
    namespace_selector: Annotated[
        Selector | None, Field("Selector for labels of its namespace.", map_type="atomic")
    ] = None


class MachineDrainRuleSpec(Part):
    """Selected Pods and Machines, and the drain behavior for them."""

    drain: Annotated[DrainAction, Field(required=True, rules=_ONLY_DRAIN_HAS_AN_ORDER)] = DrainAction()
    machines: Annotated[
        Sequence[DrainMachines],
        Field(
            "The rule applies to Machines that match any entry; to all Machines if unset.",
            list_type="atomic",
            min_items=1,
            max_items=32,
            rules=_unique("machines"),
            items=Field(min_properties=1),
        ),
    ] = ()
    pods: Annotated[
        Sequence[DrainPods],
        Field(
            "The rule applies to Pods that match any entry; to all Pods if unset.",
            list_type="atomic",
            min_items=1,
            max_items=32,
            rules=_unique("pods"),
            items=Field(min_properties=1),
        ),
    ] = ()


class MachineDrainRule(Object):
    """Rule for the Pods of a Node that is drained before its Machine is deleted."""

    spec: Annotated[MachineDrainRuleSpec, Field(required=True)] = MachineDrainRuleSpec()


MACHINE_DRAIN_RULE = Kind(names.API_VERSION, "MachineDrainRule", "machinedrainrules", MachineDrainRule)
