"""Summaries, aggregates and mirrors: what decides the status, what people read, and that order never shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.conditions import (
    Priority,
    Reasons,
    Reporter,
    aggregate,
    classifier,
    internal_error,
    mirror,
    mirror_of_absent,
    negative_with,
    remediating,
    summary,
)
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition


def machine(name: str, status: str, message: str = "", *, type: str = "Ready", control_plane: bool = False) -> Reporter:
    return Reporter("Machine", name, [condition(type, status, "Because", message)], control_plane)


def parts(found: Condition) -> tuple[str, str, str]:
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    ("type", "status", "expected"),
    [
        ("Ready", "True", Priority.INFO),
        ("Ready", "False", Priority.ISSUE),
        ("Ready", "Unknown", Priority.UNKNOWN),
        ("Ready", "nonsense", Priority.UNKNOWN),
        ("Deleting", "True", Priority.ISSUE),
        ("Deleting", "False", Priority.INFO),
        ("Deleting", "Unknown", Priority.UNKNOWN),
    ],
)
def test_condition_polarity_decides_priority(type: str, status: str, expected: Priority) -> None:
    assert classifier()(condition(type, status, "Because")) == expected


def test_gates_with_negative_polarity_are_recognized() -> None:
    class Gate(NamedTuple):
        condition_type: str
        polarity: str

    negative = negative_with([Gate("Broken", "Negative"), Gate("Fine", "Positive"), Gate("Unsaid", "")])
    assert {"Broken", "Deleting"} <= negative
    assert not {"Fine", "Unsaid"} & negative


class TestReasons:
    def test_reasons_of_positive_condition_are_derived(self) -> None:
        assert Reasons.of("Ready") == Reasons("NotReady", "ReadyUnknown", "Ready")

    def test_reasons_of_negative_condition_are_derived(self) -> None:
        assert Reasons.of("ScalingUp") == Reasons("ScalingUp", "ScalingUpUnknown", "NotScalingUp")


class TestSummary:
    def test_summary_of_good_conditions_is_true(self) -> None:
        present = [condition("A", True, "Fine"), condition("Deleting", False, "NotDeleting")]
        assert parts(summary("Ready", present, ["Deleting", "A"])) == ("True", "Ready", "")

    def test_summary_includes_messages_of_good_conditions(self) -> None:
        present = [condition("A", True, "Fine", "as ever"), condition("B", True, "Fine")]
        assert parts(summary("Ready", present, ["A", "B"])) == ("True", "Ready", "* A: as ever")

    def test_summary_issue_overrides_unknown_and_hides_good_messages(self) -> None:
        present = [
            condition("A", "Unknown", "Hm", "who knows"),
            condition("B", True, "Fine", "as ever"),
            condition("C", False, "Broken"),
        ]
        found = summary("Available", present, ["C", "B", "A"])
        assert parts(found) == ("False", "NotAvailable", "* C: Broken\n* A: who knows")

    def test_summary_of_missing_condition_is_unknown(self) -> None:
        found = summary("Ready", [condition("A", True, "Fine")], ["A", "B"])
        assert parts(found) == ("Unknown", "ReadyUnknown", "* B: Condition not yet reported")

    def test_summary_ignores_missing_optional_conditions(self) -> None:
        broken = [condition("B", False, "Broken", "x")]
        assert summary("Ready", [condition("A", True, "Fine")], ["A", "B"], optional=["B"]).status == "True"
        assert summary("Ready", broken, ["B"], optional=["B"]).status == "False"
        assert summary("Ready", [], ["B"], optional=["B"]).status == "True"

    def test_summary_handles_negative_polarity(self) -> None:
        present = [condition("Broken", True, "Smashed"), condition("Fine", True, "Fine")]
        assert summary("Ready", present, ["Broken", "Fine"], negative={"Broken"}).status == "False"
        assert parts(summary("ScalingUp", present, ["Broken"], negative={"Broken"}))[:2] == ("True", "ScalingUp")
        assert parts(summary("ScalingUp", present, ["Fine"]))[:2] == ("False", "NotScalingUp")

    def test_summary_accepts_custom_classifier_and_reasons(self) -> None:
        present = [condition("A", False, "Gone", "has been deleted")]
        found = summary(
            "Available", present, ["A"], classify=lambda one: Priority.INFO, reasons=Reasons("Bad", "Hm", "Good")
        )
        assert parts(found) == ("True", "Good", "* A: has been deleted")

    def test_summary_lists_repeated_type_once(self) -> None:
        found = summary("Ready", [condition("A", False, "Broken")], ["A", "A"])
        assert found.message == "* A: Broken"

    @pytest.mark.parametrize(
        ("message", "told"),
        [
            ("one line", "* A: one line"),
            ("* a list", "* A:\n  * a list"),
            ("* a list\n* of two", "* A:\n  * a list\n  * of two"),
            ("* a list\n  * nested", "* A:\n  * a list\n    * nested"),
            ("two\nlines", "* A:\n  * two\n  * lines"),
            ("a heading:\n* an item", "* A:\n  * a heading:\n    * an item"),
            ("5 * 3", "* A: 5 * 3"),
        ],
    )
    def test_summary_indents_multi_line_messages(self, message: str, told: str) -> None:
        assert summary("Ready", [condition("A", False, "Broken", message)], ["A"]).message == told


class TestAggregate:
    def test_aggregate_of_no_objects_uses_given_reason(self) -> None:
        assert parts(aggregate("MachinesReady", "Ready", [], when_empty="NoReplicas")) == ("True", "NoReplicas", "")
        assert parts(aggregate("ScalingUp", "ScalingUp", [], when_empty="NotScalingUp")) == (
            "False",
            "NotScalingUp",
            "",
        )

    def test_aggregate_reason_follows_source_condition(self) -> None:
        for status, reason in [("True", "Ready"), ("False", "NotReady"), ("Unknown", "ReadyUnknown")]:
            found = aggregate("WorkerMachinesReady", "Ready", [machine("a", status)], when_empty="NoReplicas")
            assert (found.type, found.status, found.reason) == ("WorkerMachinesReady", status, reason)

    def test_aggregate_of_unreported_condition_is_unknown(self) -> None:
        found = aggregate("MachinesReady", "Ready", [machine("a", "True"), Reporter("Machine", "b", [])], when_empty="")
        assert parts(found) == ("Unknown", "ReadyUnknown", "* Machine b: Condition not yet reported")

    def test_aggregate_groups_objects_with_equal_messages(self) -> None:
        machines = [machine(name, "False", "no power") for name in ("c", "a", "b")]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.message == "* Machines a, b, c: no power"

    def test_aggregate_lists_at_most_three_names(self) -> None:
        machines = [machine(name, "False", "no power") for name in "abcde"]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.message == "* Machines a, b, c, ... (2 more): no power"

    def test_aggregate_lists_control_plane_machines_first(self) -> None:
        machines = [machine(name, "False", "no power", control_plane=name == "d") for name in "abcd"]
        machines += [machine("z", "Unknown", "silent", control_plane=True)]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.message == "* Machines d, a, b, ... (1 more): no power\n* Machine z: silent"

    def test_aggregate_lists_at_most_three_messages_and_counts_the_rest(self) -> None:
        machines = [machine(f"m{n}", "False", f"fault {n}") for n in range(5)]
        machines += [machine("u", "Unknown", "silent"), machine("fine", "True", "jolly")]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.message.split("\n") == [
            "* Machine m0: fault 0",
            "* Machine m1: fault 1",
            "* Machine m2: fault 2",
            "And 2 Machines with other issues",
            "And 1 Machine with status unknown",
        ]

    def test_aggregate_lists_most_frequent_message_first(self) -> None:
        machines = [
            machine("a", "False", "alone"),
            machine("b", "False", "together"),
            machine("c", "False", "together"),
        ]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.message == "* Machines b, c: together\n* Machine a: alone"

    def test_aggregate_lists_info_messages_only_without_issues(self) -> None:
        machines = [machine(name, "True", f"news of {name}") for name in "abcd"] + [machine("silent", "True")]
        found = aggregate("MachinesReady", "Ready", machines, when_empty="")
        assert found.status == "True"
        assert found.message.split("\n") == [
            "* Machine a: news of a",
            "* Machine b: news of b",
            "* Machine c: news of c",
            "And 1 Machine with additional info",
        ]

    def test_aggregate_lists_kinds_separately(self) -> None:
        def scaling(kind: str, name: str) -> Reporter:
            return Reporter(kind, name, [condition("ScalingUp", True, "ScalingUp", "from 1 to 2")])

        reporters = [scaling("MachineSet", "s"), scaling("DevControlPlane", "cp"), scaling("MachineSet", "r")]
        found = aggregate("ScalingUp", "ScalingUp", reporters, when_empty="NotScalingUp")
        assert parts(found) == (
            "True",
            "ScalingUp",
            "* DevControlPlane cp: from 1 to 2\n* MachineSets r, s: from 1 to 2",
        )

    def test_aggregate_message_limit_applies_across_kinds(self) -> None:
        reporters = [
            Reporter(kind, f"{kind}-{n}".lower(), [condition("Ready", False, "No", f"fault {n}")])
            for kind in ("Alpha", "Beta")
            for n in range(2)
        ]
        found = aggregate("AllReady", "Ready", reporters, when_empty="")
        assert found.message.split("\n") == [
            "* Alpha alpha-0: fault 0",
            "* Alpha alpha-1: fault 1",
            "* Beta beta-0: fault 0",
            "And 1 Beta with other issues",
        ]

    @given(
        st.lists(
            st.builds(
                machine,
                st.sampled_from("abcdefgh"),
                st.sampled_from(["True", "False", "Unknown"]),
                st.sampled_from(["", "one", "two", "three", "four"]),
                control_plane=st.booleans(),
            ),
            unique_by=lambda one: one.name,
        ),
        st.randoms(),
    )
    def test_aggregate_is_independent_of_object_order(self, machines: list[Reporter], random: Any) -> None:
        shuffled = random.sample(machines, len(machines))
        one = aggregate("MachinesReady", "Ready", machines, when_empty="NoReplicas")
        assert one == aggregate("MachinesReady", "Ready", shuffled, when_empty="NoReplicas")
        statuses = {each.conditions[0].status for each in machines}
        assert one.status == next((bad for bad in ("False", "Unknown") if bad in statuses), "True")
        assert sum(line.startswith("* ") for line in one.message.split("\n")) <= 3


class TestMirror:
    def test_mirror_copies_condition_with_transition_time(self) -> None:
        source = Condition(
            type="Ready",
            status="False",
            reason="NoQuota",
            message="buy more",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        found = mirror("InfrastructureReady", source, like="Ready", ready=True, waiting_for="unused")
        assert parts(found) == ("False", "NoQuota", "buy more")
        assert found.type == "InfrastructureReady"
        assert found.last_transition_time == source.last_transition_time

    @pytest.mark.parametrize(
        ("status", "like", "reason"),
        [
            ("True", "Ready", "Ready"),
            ("True", "Available", "Available"),
            ("False", "Ready", "NoReasonReported"),
            ("Unknown", "Ready", "NoReasonReported"),
        ],
    )
    def test_mirror_fills_in_missing_reason(self, status: str, like: str, reason: str) -> None:
        source = Condition(type=like, status=status)
        assert mirror("Target", source, like=like, ready=False, waiting_for="").reason == reason

    def test_mirror_without_condition_uses_the_flag(self) -> None:
        ready = mirror("InfrastructureReady", None, like="Ready", ready=True, waiting_for="the flag is false")
        waiting = mirror("ControlPlaneAvailable", None, like="Available", ready=False, waiting_for="the flag is false")
        assert parts(ready) == ("True", "Ready", "")
        assert parts(waiting) == ("False", "NotAvailable", "the flag is false")

    @pytest.mark.parametrize(
        ("existed", "deleting", "expected"),
        [
            (False, False, ("False", "ObjectDoesNotExist", "DevCluster does not exist")),
            (False, True, ("False", "ObjectDoesNotExist", "DevCluster does not exist")),
            (True, True, ("False", "ObjectDeleted", "DevCluster has been deleted")),
            (True, False, ("False", "ObjectDeleted", "DevCluster has been deleted while the Cluster still exists")),
        ],
    )
    def test_mirror_of_absent_object_reports_missing_or_deleted(
        self, existed: bool, deleting: bool, expected: tuple[str, str, str]
    ) -> None:
        found = mirror_of_absent(
            "InfrastructureReady", kind="DevCluster", existed=existed, owner="Cluster", owner_deleting=deleting
        )
        assert parts(found) == expected

    def test_internal_error_condition_refers_to_controller_logs(self) -> None:
        assert parts(internal_error("Ready")) == ("Unknown", "InternalError", "Please check controller logs for errors")


class TestRemediating:
    def test_remediating_is_false_for_healthy_machines(self) -> None:
        found = remediating([machine("a", "True", type="HealthCheckSucceeded")])
        assert parts(found) == ("False", "NotRemediating", "")

    def test_remediating_names_machines_waiting_for_owner(self) -> None:
        ill = [machine(name, "False", "waiting for its owner", type="OwnerRemediated") for name in "ba"]
        found = remediating([*ill, machine("c", "False", type="HealthCheckSucceeded")], by="MachineSet")
        assert parts(found) == ("True", "Remediating", "* Machines a, b: waiting for its owner")

    @pytest.mark.parametrize(
        ("names", "by", "message"),
        [
            ("a", "MachineSet", "Machine a is not healthy (not to be remediated by MachineSet)"),
            ("cab", "", "Machines a, b, c are not healthy (not to be remediated)"),
            ("dcab", "", "Machines a, b, c, ... (1 more) are not healthy (not to be remediated)"),
        ],
    )
    def test_remediating_names_unhealthy_machines_not_to_be_remediated(self, names: str, by: str, message: str) -> None:
        ill = [machine(name, "False", type="HealthCheckSucceeded") for name in names]
        assert parts(remediating(ill, by=by)) == ("False", "NotRemediating", message)
