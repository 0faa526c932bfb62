"""Admission of MachineDrainRules. It sets no defaults."""

from __future__ import annotations

from remuda.capi.admission.machine_fields import selector_complaints
from remuda.capi.admission.rules import admission
from remuda.capi.types import MACHINE_DRAIN_RULE, MachineDrainRule, Selector
from remuda.kube.errors import FieldError, invalid


def complaints(rule: MachineDrainRule) -> list[FieldError]:
    found = []
    drain = rule.spec.drain
    if drain.order is not None and drain.behavior != "Drain":
        found.append(invalid("spec.drain.order", drain.order, "can only be set where behavior is Drain"))
    for index, machines in enumerate(rule.spec.machines):
        found += _optional(machines.selector, f"spec.machines[{index}].selector")
        found += _optional(machines.cluster_selector, f"spec.machines[{index}].clusterSelector")
    for index, pods in enumerate(rule.spec.pods):
        found += _optional(pods.selector, f"spec.pods[{index}].selector")
        found += _optional(pods.namespace_selector, f"spec.pods[{index}].namespaceSelector")
    return found


def _optional(selector: Selector | None, path: str) -> list[FieldError]:
    return selector_complaints(selector, path) if selector is not None else []


admit = admission(MACHINE_DRAIN_RULE, complaints=complaints)
