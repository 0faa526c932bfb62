"""The coordination group: Leases, used for leader election and node heartbeats."""

from __future__ import annotations

from remuda.apiserver.kinds.columns import AGE, NAME, string, value
from remuda.apiserver.kinds.declare import Rules, declare, non_negative, one_of
from remuda.apiserver.resource import Obj
from remuda.kube import errors
from remuda.kube.errors import FieldError


def _validate(lease: Obj) -> list[FieldError]:
    spec = lease["spec"]
    found = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        found.append(errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    found += non_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
    strategy = spec.get("strategy")
    if strategy is not None and "/" not in strategy:
        found += one_of(strategy, "spec.strategy", ("OldestEmulationVersion",))
    if spec.get("preferredHolder") and not strategy:
        why = "may only be specified if `strategy` is defined"
        found.append(errors.forbidden("spec.preferredHolder", why))
    return found


LEASES = declare(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    Rules(validate=_validate),
    has_generation=False,
    allow_unconditional_update=False,
    allow_create_on_update=True,
    columns=(NAME, string("Holder", value("spec", "holderIdentity")), AGE),
)

RESOURCES = (LEASES,)
