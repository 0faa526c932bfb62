"""Admission of MachineHealthChecks."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.capi import names
from remuda.capi.admission.machine_fields import (
    amount_complaints,
    cluster_label,
    immutable_cluster,
    selector_complaints,
)
from remuda.capi.admission.rules import admission
from remuda.capi.types import MACHINE_HEALTH_CHECK, MachineHealthCheck, MachineHealthCheckSpec, RemediationTrigger
from remuda.kube.errors import FieldError, invalid, required

NODE_STARTUP_TIMEOUT_SECONDS = 600
_SHORTEST_STARTUP_SECONDS = 30


def defaults(new: MachineHealthCheck, old: MachineHealthCheck | None) -> dict[str, Any]:
    patch: dict[str, Any] = {"metadata": cluster_label(new.spec.cluster_name)}
    if new.spec.checks.node_startup_timeout_seconds is None:
        patch["spec"] = {"checks": {"nodeStartupTimeoutSeconds": NODE_STARTUP_TIMEOUT_SECONDS}}
    return patch


def complaints(check: MachineHealthCheck) -> list[FieldError]:
    found = _selector_complaints(check.spec)
    timeout = check.spec.checks.node_startup_timeout_seconds
    if timeout is not None and 0 < timeout < _SHORTEST_STARTUP_SECONDS:
        text = f"must be 0 (no limit) or at least {_SHORTEST_STARTUP_SECONDS}: no server starts faster"
        found.append(invalid("spec.checks.nodeStartupTimeoutSeconds", timeout, text))
    return found + _trigger_complaints(check.spec.remediation.trigger_if)


def _selector_complaints(spec: MachineHealthCheckSpec) -> list[FieldError]:
    if spec.selector.empty:
        return [required("spec.selector", "must not be empty: it would select every Machine of the cluster")]
    found = selector_complaints(spec.selector, "spec.selector")
    cluster = spec.selector.match_labels.get(names.CLUSTER_NAME, spec.cluster_name)
    if cluster != spec.cluster_name:
        text = f"selects Machines of a cluster other than spec.clusterName, which is {spec.cluster_name!r}"
        found.append(invalid("spec.selector", msgspec.to_builtins(spec.selector), text))
    return found


def _trigger_complaints(trigger: RemediationTrigger) -> list[FieldError]:
    path = "spec.remediation.triggerIf"
    found = amount_complaints(trigger.unhealthy_less_than_or_equal_to, f"{path}.unhealthyLessThanOrEqualTo")
    first, _, last = trigger.unhealthy_in_range.strip("[]").partition("-")
    if first.isdecimal() and last.isdecimal() and int(first) > int(last):
        text = "is an empty range: its start is greater than its end"
        found.append(invalid(f"{path}.unhealthyInRange", trigger.unhealthy_in_range, text))
    return found


def transitions(old: MachineHealthCheck, new: MachineHealthCheck) -> list[FieldError]:
    return immutable_cluster(old.spec.cluster_name, new.spec.cluster_name)


admit = admission(MACHINE_HEALTH_CHECK, defaults=defaults, complaints=complaints, transitions=transitions)
