"""The policy group: PodDisruptionBudgets, which limit how many pods of a set may be evicted at a time."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import AGE, NAME, integer, string, value
from remuda.apiserver.kinds.declare import Rules, declare, non_negative, one_of
from remuda.apiserver.kinds.workloads import count_or_percent_errors, over_hundred_errors
from remuda.apiserver.resource import Obj
from remuda.kube import errors
from remuda.kube.errors import FieldError
from remuda.kube.selectors import validate_label_selector


def _validate(budget: Obj) -> list[FieldError]:
    spec = budget["spec"]
    found = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        found.append(errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            found += count_or_percent_errors(spec[field], f"spec.{field}")
            found += over_hundred_errors(spec[field], f"spec.{field}")
    found += validate_label_selector(spec.get("selector"), "spec.selector")
    policies = ("AlwaysAllow", "IfHealthyBudget")
    return found + one_of(spec.get("unhealthyPodEvictionPolicy"), "spec.unhealthyPodEvictionPolicy", policies)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        found += non_negative(new["status"].get(field), f"status.{field}")
    return found


POD_DISRUPTION_BUDGETS = declare(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    Rules(validate=_validate, validate_status=_validate_status),
    short_names=("pdb",),
    has_status=True,
    allow_unconditional_update=False,
    columns=(
        NAME,
        string("Min Available", lambda obj: str(value("spec", "minAvailable", default="N/A")(obj))),
        string("Max Unavailable", lambda obj: str(value("spec", "maxUnavailable", default="N/A")(obj))),
        integer("Allowed Disruptions", value("status", "disruptionsAllowed", default=0)),
        AGE,
    ),
)

RESOURCES = (POD_DISRUPTION_BUDGETS,)
