from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from remuda.capi.machinedeployment import status
from remuda.capi.machinedeployment.rollout import RolloutLimits
from remuda.capi.machinedeployment.status import ObservedMachineDeployment
from remuda.capi.types import (
    Machine,
    MachineDeployment,
    MachineDeploymentSpec,
    MachineSet,
    MachineSetStatus,
    Selector,
    SelectorRequirement,
    VersionCount,
)
from remuda.kube import clock
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, ObjectMeta
from tests.unit.capi.machineset.objects import CREATED, good, machine

NOW = clock.parse(CREATED) + 60
Json = dict[str, Any]


def deployment(deleted: bool = False, selector: Selector | None = None) -> MachineDeployment:
    return MachineDeployment(
        metadata=ObjectMeta(name="md", generation=2, deletion_timestamp=CREATED if deleted else None),
        spec=MachineDeploymentSpec(selector=selector or Selector(match_labels={"a": "1"})),
    )


def machine_set(
    name: str, replicas: int = 0, available: int = 0, growing: str = "", version: str = "", reason: str = "ScalingUp"
) -> MachineSet:
    return MachineSet(
        metadata=ObjectMeta(name=name),
        status=MachineSetStatus(
            replicas=replicas,
            ready_replicas=available,
            available_replicas=available,
            conditions=[condition("ScalingUp", True, reason, growing)] if growing else [],
            versions=[VersionCount(version=version, replicas=replicas)] if version else [],
        ),
    )


def seen(
    *sets: MachineSet,
    machines: Sequence[Machine] = (),
    limits: RolloutLimits | None = RolloutLimits(3, 1, 1),  # noqa: B008
    deleted: bool = False,
    **facts: Any,
) -> ObservedMachineDeployment:
    """The last set is the new one."""
    return ObservedMachineDeployment(
        deployment=deployment(deleted),
        new=sets[-1] if sets else None,
        sets=sets,
        machines=machines,
        limits=limits,
        now=NOW,
        **facts,
    )


def condition_fields(found: Condition) -> tuple[str, str, str]:
    return found.status, found.reason, found.message


def test_deployment_counters_sum_machine_sets() -> None:
    observed = seen(machine_set("old", 2, 2, version="v1.34.0"), machine_set("new", 2, 1, version="v1.35.0"))
    assert status.counters(observed) == {
        "replicas": 4,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "upToDateReplicas": 2,
        "versions": [{"version": "v1.34.0", "replicas": 2}, {"version": "v1.35.0", "replicas": 2}],
    }
    assert status.counters(seen())["upToDateReplicas"] == 0


@pytest.mark.parametrize(
    ("have", "limits", "deleted", "phase"),
    [
        (2, RolloutLimits(3), False, "ScalingUp"),
        (3, RolloutLimits(3), False, "Running"),
        (4, RolloutLimits(3), False, "ScalingDown"),
        (3, RolloutLimits(3), True, "ScalingDown"),
        (3, None, False, "Unknown"),
    ],
)
def test_deployment_phase_follows_replica_counts(
    have: int, limits: RolloutLimits | None, deleted: bool, phase: str
) -> None:
    assert status.phase(seen(machine_set("new", have), limits=limits, deleted=deleted)) == phase


class TestAvailable:
    @pytest.mark.parametrize(("available", "expected"), [(3, "True"), (2, "True"), (1, "False")])
    def test_available_requires_minimum_available_replicas(self, available: int, expected: str) -> None:
        assert status.available(seen(machine_set("new", 3, available))).status == expected

    def test_available_message_names_missing_replicas(self) -> None:
        found = status.available(seen(machine_set("new", 3, 1)))
        assert condition_fields(found) == (
            "False",
            "NotAvailable",
            "1 available replicas, at least 2 required (maxUnavailable is 1, spec.replicas is 3)",
        )
        strict = status.available(seen(machine_set("new", 3, 1), limits=RolloutLimits(3, 1, 0)))
        assert strict.message == "1 available replicas, at least 3 required"

    def test_available_is_false_while_deleting(self) -> None:
        assert status.available(seen(deleted=True)).message == "Deletion in progress"

    def test_condition_is_unknown_until_replicas_are_set(self) -> None:
        assert condition_fields(status.available(seen(limits=None)))[:2] == ("Unknown", "WaitingForReplicasSet")


class TestRollingOut:
    def outdated(self, name: str, message: str) -> Machine:
        return machine(name, conditions=[condition("UpToDate", False, "NotUpToDate", message)])

    def test_rolling_out_is_false_when_machines_are_up_to_date(self) -> None:
        assert condition_fields(status.rolling_out(seen(machines=[good()]))) == ("False", "NotRollingOut", "")

    def test_rolling_out_message_names_reasons_and_wait(self) -> None:
        machines = [
            self.outdated("a", "* Version v1, v2 required"),
            self.outdated("b", "* Version v1, v2 required"),
            good(),
        ]
        found = status.rolling_out(seen(machines=machines, waiting="waiting for 1 Machine"))
        assert found.status == "True"
        assert found.message.split("\n") == [
            "Rolling out 2 not up-to-date replicas",
            "* Version v1, v2 required",
            "* Waiting for 1 Machine",
        ]

    def test_rolling_out_message_names_three_most_frequent_reasons(self) -> None:
        machines = [self.outdated(str(n), reason) for n, reason in enumerate(("d", "c", "b", "a", "d"))]
        lines = status.rolling_out(seen(machines=machines)).message.split("\n")
        assert lines[1:] == ["* d", "* a", "* b"]


class TestScaling:
    def test_scaling_up_message_lists_each_obstacle_once(self) -> None:
        text = "Scaling up from 0 to 1 replicas is blocked because:\n* no template"
        sets = [machine_set("a", growing=text), machine_set("b", growing=text)]
        found = status.scaling_up(seen(*sets, obstacles=["no template", "no cluster"]))
        assert found.message == ("Scaling up from 0 to 3 replicas is blocked because:\n* no template\n* no cluster")
        assert found.reason == "ScalingUpBlocked"

    @pytest.mark.parametrize("reason", ["ScalingUp", "ScalingUpBlocked"])
    def test_scaling_up_takes_reason_from_machine_sets(self, reason: str) -> None:
        text = "Scaling up from 0 to 1 replicas is blocked because:\n* something"
        sets = [machine_set("a", growing="Scaling up"), machine_set("b", growing=text, reason=reason)]
        assert condition_fields(status.scaling_up(seen(*sets))) == ("True", reason, text.replace("to 1", "to 3"))

    def test_scaling_up_reports_replica_counts_and_obstacles(self) -> None:
        assert status.scaling_up(seen(machine_set("a", 1))).message == "Scaling up from 1 to 3 replicas"
        assert condition_fields(status.scaling_up(seen(machine_set("a", 3)))) == ("False", "NotScalingUp", "")
        blocked = status.scaling_up(seen(machine_set("a", 3), obstacles=["x"]))
        assert condition_fields(blocked) == ("False", "NotScalingUp", "Scaling up would be blocked because:\n* x")

    def test_scaling_down_reports_replica_counts(self) -> None:
        found = status.scaling_down(seen(machine_set("a", 4), machine_set("b", 1)))
        assert condition_fields(found) == ("True", "ScalingDown", "Scaling down from 5 to 3 replicas")
        assert status.scaling_down(seen(machine_set("a", 3))).status == "False"
        assert status.scaling_down(seen(machine_set("a", 1), deleted=True)).status == "True"

    def test_condition_is_unknown_until_replicas_are_set(self) -> None:
        for derive in (status.scaling_up, status.scaling_down):
            assert derive(seen(limits=None)).reason == "WaitingForReplicasSet"


class TestDeleting:
    def test_deleting_condition_follows_deletion_stages(self) -> None:
        assert status.deleting(seen()).reason == "NotDeleting"
        machines = [good("a"), good("b")]
        assert status.deleting(seen(machine_set("s"), machines=machines, deleted=True)).message == "Deleting 2 Machines"
        empty = status.deleting(seen(machine_set("s"), machine_set("t"), deleted=True))
        assert empty.message == "Deleting MachineSets s, t"
        assert status.deleting(seen(deleted=True)).reason == "DeletionCompleted"


class TestPublish:
    def test_published_status_contains_conditions_in_order(self) -> None:
        raw: Json = {}
        status.publish(raw, seen(machine_set("new", 3, 3), machines=[good()]))
        assert (raw["observedGeneration"], raw["selector"], raw["phase"]) == (2, "a=1", "Running")
        assert [found["type"] for found in raw["conditions"]] == [
            "Available",
            "MachinesReady",
            "MachinesUpToDate",
            "Remediating",
            "RollingOut",
            "ScalingDown",
            "ScalingUp",
            "Deleting",
        ]

    def test_publishing_status_twice_changes_nothing(self) -> None:
        raw: Json = {}
        observed = seen(machine_set("new", 3, 3), machines=[good()])
        status.publish(raw, observed)
        before = dict(raw)
        status.publish(raw, observed)
        assert raw == before

    def test_invalid_selector_is_omitted_from_status(self) -> None:
        nonsense = Selector(match_expressions=[SelectorRequirement(key="a", operator="Near")])
        observed = ObservedMachineDeployment(
            deployment=deployment(selector=nonsense), new=None, sets=(), machines=(), limits=None, now=NOW
        )
        raw: Json = {"selector": "old"}
        status.publish(raw, observed)
        assert "selector" not in raw
