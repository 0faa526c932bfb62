"""Which Machines of hosts that registered themselves are deleted, and when."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.types import Machine, MachineSpec, MachineStatus, Reference
from remuda.kube import clock
from remuda.kube.clock import BadDuration
from remuda.kube.objects import Condition, ObjectMeta
from remuda.provisioning import removal
from tests.unit.provisioning.clusters import declared, read

GONE = "2026-01-01T00:00:00Z"
NOW = clock.parse(GONE) + 100


def machine(name: str = "m", kind: str = "CustomMachine", reason: str = "NodeDeleted", **metadata: Any) -> Machine:
    said = Condition(type="NodeHealthy", status="False", reason=reason, last_transition_time=GONE)
    return Machine(
        metadata=ObjectMeta(name=name, **metadata),
        spec=MachineSpec(infrastructure_ref=Reference(api_group="rke.cattle.io", kind=kind, name=name)),
        status=MachineStatus(conditions=(said,)),
    )


def test_only_custom_machines_with_long_deleted_node_are_stale() -> None:
    spared = [machine(kind="SimMachine"), machine(reason="NodeNotReady"), machine(deletion_timestamp=GONE), Machine()]
    gone = machine("gone")
    assert removal.find_missing([*spared, gone], 60, NOW) == ([gone], None)
    assert removal.find_missing([*spared, gone], 160, NOW) == ([], 60)


def test_grace_period_is_read_from_annotation() -> None:
    def of(annotation: str) -> float | None:
        key = "rke.cattle.io/delete-missing-custom-machines-after"
        return removal.grace_period(read(declared(metadata={"annotations": {key: annotation}})))

    assert removal.grace_period(read(declared())) is None
    assert of("1h") == 3600
    with pytest.raises(BadDuration):
        of("later")
