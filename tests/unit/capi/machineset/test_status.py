from __future__ import annotations

from typing import Any

import pytest

from remuda.capi import conditions
from remuda.capi.machineset import status
from remuda.capi.machineset.status import ObservedMachineSet
from remuda.capi.types import Machine, MachineSet, MachineSetSpec, Selector, SelectorRequirement
from remuda.kube import clock
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, ObjectMeta
from tests.unit.capi.machineset.objects import CREATED, good, machine

NOW = clock.parse(CREATED) + 60
Json = dict[str, Any]


def machine_set(replicas: int | None = 3, deleted: bool = False, selector: Selector | None = None) -> MachineSet:
    return MachineSet(
        metadata=ObjectMeta(name="ms", generation=4, deletion_timestamp=CREATED if deleted else None),
        spec=MachineSetSpec(replicas=replicas, selector=selector or Selector(match_labels={"b": "2", "a": "1"})),
    )


def seen(
    *machines: Machine,
    now: float = NOW,
    obstacles: tuple[str, ...] = (),
    failed_checks: tuple[str, ...] = (),
    **facts: Any,
) -> ObservedMachineSet:
    return ObservedMachineSet(
        machine_set=machine_set(**facts), machines=machines, now=now, obstacles=obstacles, failed_checks=failed_checks
    )


def condition_fields(found: Condition) -> tuple[str, str, str]:
    return found.status, found.reason, found.message


class TestCounters:
    def test_counters_count_ready_available_up_to_date_and_versions(self) -> None:
        machines = [
            good("a", version="v1.35.0"),
            good("b", version="v1.35.0", kubelet="v1.34.0"),
            good("leaving", deleted=CREATED, version="v1.35.0"),
            machine("c", conditions={"Ready": True}),
        ]
        assert status.counters(machines) == {
            "replicas": 4,
            "readyReplicas": 3,
            "availableReplicas": 2,
            "upToDateReplicas": 3,
            "versions": [{"version": "v1.34.0", "replicas": 1}, {"version": "v1.35.0", "replicas": 2}],
        }

    def test_counters_of_empty_set_are_zero(self) -> None:
        counted = status.counters([])
        assert counted.pop("versions") == []
        assert set(counted.values()) == {0}


class TestScalingUp:
    def test_scaling_up_is_true_below_desired_replicas(self) -> None:
        assert condition_fields(status.scaling_up(seen(good()))) == (
            "True",
            "ScalingUp",
            "Scaling up from 1 to 3 replicas",
        )

    def test_scaling_up_is_blocked_by_obstacles(self) -> None:
        found = status.scaling_up(seen(obstacles=("the template is missing", "and more")))
        assert found.message == (
            "Scaling up from 0 to 3 replicas is blocked because:\n* the template is missing\n* and more"
        )
        assert found.reason == "ScalingUpBlocked"

    def test_failed_preflight_check_alone_keeps_reason_scaling_up(self) -> None:
        found = status.scaling_up(seen(failed_checks=("it is upgrading",)))
        text = "Scaling up from 0 to 3 replicas is blocked because:\n* it is upgrading"
        assert condition_fields(found) == ("True", "ScalingUp", text)
        both = status.scaling_up(seen(obstacles=("no template",), failed_checks=("it is upgrading",)))
        assert both.reason == "ScalingUpBlocked"
        assert both.message.splitlines()[1:] == ["* no template", "* it is upgrading"]

    def test_scaling_up_is_false_at_desired_replicas(self) -> None:
        assert condition_fields(status.scaling_up(seen(good(), replicas=1))) == ("False", "NotScalingUp", "")

    def test_scaling_up_reports_obstacles_without_need_to_scale(self) -> None:
        found = status.scaling_up(seen(good(), replicas=1, obstacles=("no template",)))
        assert condition_fields(found) == (
            "False",
            "NotScalingUp",
            "Scaling up would be blocked because:\n* no template",
        )

    def test_scaling_up_is_false_while_deleting(self) -> None:
        assert status.scaling_up(seen(deleted=True)).status == "False"

    def test_scaling_conditions_are_unknown_until_replicas_are_set(self) -> None:
        for derive in (status.scaling_up, status.scaling_down):
            found = derive(seen(replicas=None))
            assert condition_fields(found) == ("Unknown", "WaitingForReplicasSet", "Waiting for spec.replicas set")


class TestScalingDown:
    def test_scaling_down_is_true_above_desired_replicas(self) -> None:
        found = status.scaling_down(seen(good("a"), good("b"), replicas=1))
        assert condition_fields(found) == ("True", "ScalingDown", "Scaling down from 2 to 1 replicas")

    def test_scaling_down_is_false_below_desired_replicas(self) -> None:
        assert condition_fields(status.scaling_down(seen(good("a")))) == ("False", "NotScalingDown", "")

    @pytest.mark.parametrize(
        ("count", "line"),
        [
            (1, "* Machine m0 is in deletion since more than 15m"),
            (5, "* Machines m0, m1, m2, ... (2 more) are in deletion since more than 15m"),
        ],
    )
    def test_scaling_down_message_names_slow_deletions(self, count: int, line: str) -> None:
        machines = [good(f"m{n}", deleted=CREATED) for n in range(count)]
        late = status.scaling_down(seen(*machines, replicas=0, now=clock.parse(CREATED) + 901))
        assert late.message.split("\n")[1:] == [line]
        early = status.scaling_down(seen(*machines, replicas=0, now=clock.parse(CREATED) + 899))
        assert "\n" not in early.message


def test_slow_deletion_report_time_is_announced() -> None:
    machines = [good("a"), good("b", deleted=CREATED)]
    at = conditions.becomes_late_at(machines, NOW)
    assert at is not None
    assert status.late(machines, at) != []
    assert conditions.becomes_late_at(machines, at) is None
    assert conditions.becomes_late_at([good()], NOW) is None


class TestDeleting:
    def test_deleting_condition_is_false_without_deletion(self) -> None:
        assert condition_fields(status.deleting(seen())) == ("False", "NotDeleting", "")

    def test_deleting_condition_counts_remaining_machines(self) -> None:
        found = status.deleting(seen(good("a"), good("b"), deleted=True))
        assert condition_fields(found) == ("True", "Deleting", "Deleting 2 Machines")
        assert status.deleting(seen(good("a"), deleted=True)).message == "Deleting 1 Machine"

    def test_deleting_condition_reports_completion(self) -> None:
        assert status.deleting(seen(deleted=True)).reason == "DeletionCompleted"


def by_type(observed: ObservedMachineSet) -> dict[str, Condition]:
    return {found.type: found for found in status.all_conditions(observed)}


def test_machine_conditions_are_aggregated() -> None:
    sick = machine("sick", conditions=[condition("Ready", False, "NotReady", "no node")])
    found = by_type(seen(good("fine"), sick))
    assert condition_fields(found["MachinesReady"]) == ("False", "NotReady", "* Machine sick: no node")
    assert found["MachinesUpToDate"].status == "Unknown"
    assert found["Remediating"].status == "False"
    assert by_type(seen())["MachinesReady"].reason == "NoReplicas"


def test_machines_up_to_date_ignores_new_machine_without_condition() -> None:
    young = machine("young")
    assert status.judged([young], clock.parse(CREATED) + 5) == []
    assert len(status.judged([young], clock.parse(CREATED) + 11)) == 1
    assert len(status.judged([good()], clock.parse(CREATED) + 5)) == 1


class TestPublish:
    def test_published_status_contains_counters_selector_and_conditions(self) -> None:
        raw: Json = {}
        status.publish(raw, seen(good("a")))
        assert raw["observedGeneration"] == 4
        assert raw["selector"] == "a=1,b=2"
        assert raw["replicas"] == 1
        types = [found["type"] for found in raw["conditions"]]
        assert types == ["MachinesReady", "MachinesUpToDate", "Remediating", "ScalingDown", "ScalingUp", "Deleting"]
        assert {found["observedGeneration"] for found in raw["conditions"]} == {4}

    def test_publishing_status_twice_changes_nothing(self) -> None:
        raw: Json = {}
        status.publish(raw, seen(good("a")))
        before = dict(raw)
        status.publish(raw, seen(good("a"), now=NOW + 1))
        assert raw == before

    def test_invalid_selector_is_omitted_from_status(self) -> None:
        raw: Json = {"selector": "old"}
        nonsense = Selector(match_expressions=[SelectorRequirement(key="a", operator="Near")])
        status.publish(raw, seen(selector=nonsense))
        assert "selector" not in raw
