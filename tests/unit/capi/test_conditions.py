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
def test_polarity_decides_what_is_an_issue(type: str, status: str, expected: Priority) -> None:
    assert classifier()(condition(type, status, "Because")) == expected


def test_gates_may_be_negative() -> None:
    class Gate(NamedTuple):
        condition_type: str
        polarity: str

    negative = negative_with([Gate("Broken", "Negative"), Gate("Fine", "Positive"), Gate("Unsaid", "")])
    assert {"Broken", "Deleting"} <= negative
    assert not {"Fine", "Unsaid"} & negative


class TestReasons:
    def test_positive(self) -> None:
        assert Reasons.of("Ready") == Reasons("NotReady", "ReadyUnknown", "Ready")

    def test_negative(self) -> None:
        assert Reasons.of("ScalingUp") == Reasons("ScalingUp", "ScalingUpUnknown", "NotScalingUp")


class TestSummary:
    def test_all_good(self) -> None:
        present = [condition("A", True, "Fine"), condition("Deleting", False, "NotDeleting")]
        assert parts(summary("Ready", present, ["Deleting", "A"])) == ("True", "Ready", "")

    def test_good_news_with_words_are_told(self) -> None:
        present = [condition("A", True, "Fine", "as ever"), condition("B", True, "Fine")]
        assert parts(summary("Ready", present, ["A", "B"])) == ("True", "Ready", "* A: as ever")

    def test_an_issue_beats_unknown_and_silences_good_news(self) -> None:
        present = [
            condition("A", "Unknown", "Hm", "who knows"),
            condition("B", True, "Fine", "as ever"),
            condition("C", False, "Broken"),
        ]
        found = summary("Available", present, ["C", "B", "A"])
        assert parts(found) == ("False", "NotAvailable", "* C: Broken\n* A: who knows")

    def test_what_is_not_reported_yet_is_unknown(self) -> None:
        found = summary("Ready", [condition("A", True, "Fine")], ["A", "B"])
        assert parts(found) == ("Unknown", "ReadyUnknown", "* B: Condition not yet reported")

    def test_what_is_optional_may_be_missing_but_counts_when_there(self) -> None:
        broken = [condition("B", False, "Broken", "x")]
        assert summary("Ready", [condition("A", True, "Fine")], ["A", "B"], optional=["B"]).status == "True"
        assert summary("Ready", broken, ["B"], optional=["B"]).status == "False"
        assert summary("Ready", [], ["B"], optional=["B"]).status == "True"

    def test_negative_sources_and_a_negative_target(self) -> None:
        present = [condition("Broken", True, "Smashed"), condition("Fine", True, "Fine")]
        assert summary("Ready", present, ["Broken", "Fine"], negative={"Broken"}).status == "False"
        assert parts(summary("ScalingUp", present, ["Broken"], negative={"Broken"}))[:2] == ("True", "ScalingUp")
        assert parts(summary("ScalingUp", present, ["Fine"]))[:2] == ("False", "NotScalingUp")

    def test_a_caller_may_judge_and_name_for_itself(self) -> None:
        present = [condition("A", False, "Gone", "has been deleted")]
        found = summary(
            "Available", present, ["A"], classify=lambda one: Priority.INFO, reasons=Reasons("Bad", "Hm", "Good")
        )
        assert parts(found) == ("True", "Good", "* A: has been deleted")

    def test_a_repeated_type_is_told_once(self) -> None:
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
    def test_longer_messages_are_indented(self, message: str, told: str) -> None:
        assert summary("Ready", [condition("A", False, "Broken", message)], ["A"]).message == told


class TestAggregate:
    def test_nobody(self) -> None:
        assert parts(aggregate("MachinesReady", "Ready", [], nobody="NoReplicas")) == ("True", "NoReplicas", "")
        assert parts(aggregate("ScalingUp", "ScalingUp", [], nobody="NotScalingUp")) == ("False", "NotScalingUp", "")

    def test_the_reason_follows_the_source(self) -> None:
        for status, reason in [("True", "Ready"), ("False", "NotReady"), ("Unknown", "ReadyUnknown")]:
            found = aggregate("WorkerMachinesReady", "Ready", [machine("a", status)], nobody="NoReplicas")
            assert (found.type, found.status, found.reason) == ("WorkerMachinesReady", status, reason)

    def test_one_that_does_not_report_is_unknown(self) -> None:
        found = aggregate("MachinesReady", "Ready", [machine("a", "True"), Reporter("Machine", "b", [])], nobody="")
        assert parts(found) == ("Unknown", "ReadyUnknown", "* Machine b: Condition not yet reported")

    def test_the_same_words_are_said_once(self) -> None:
        machines = [machine(name, "False", "no power") for name in ("c", "a", "b")]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.message == "* Machines a, b, c: no power"

    def test_at_most_three_names(self) -> None:
        machines = [machine(name, "False", "no power") for name in "abcde"]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.message == "* Machines a, b, c, ... (2 more): no power"

    def test_control_plane_machines_come_first(self) -> None:
        machines = [machine(name, "False", "no power", control_plane=name == "d") for name in "abcd"]
        machines += [machine("z", "Unknown", "silent", control_plane=True)]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.message == "* Machines d, a, b, ... (1 more): no power\n* Machine z: silent"

    def test_at_most_three_messages_and_a_count_of_the_rest(self) -> None:
        machines = [machine(f"m{n}", "False", f"fault {n}") for n in range(5)]
        machines += [machine("u", "Unknown", "silent"), machine("fine", "True", "jolly")]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.message.split("\n") == [
            "* Machine m0: fault 0",
            "* Machine m1: fault 1",
            "* Machine m2: fault 2",
            "And 2 Machines with other issues",
            "And 1 Machine with status unknown",
        ]

    def test_what_many_say_is_said_before_what_one_says(self) -> None:
        machines = [
            machine("a", "False", "alone"),
            machine("b", "False", "together"),
            machine("c", "False", "together"),
        ]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.message == "* Machines b, c: together\n* Machine a: alone"

    def test_good_news_only_when_there_is_no_other(self) -> None:
        machines = [machine(name, "True", f"news of {name}") for name in "abcd"] + [machine("silent", "True")]
        found = aggregate("MachinesReady", "Ready", machines, nobody="")
        assert found.status == "True"
        assert found.message.split("\n") == [
            "* Machine a: news of a",
            "* Machine b: news of b",
            "* Machine c: news of c",
            "And 1 Machine with additional info",
        ]

    def test_kinds_are_told_apart(self) -> None:
        def scaling(kind: str, name: str) -> Reporter:
            return Reporter(kind, name, [condition("ScalingUp", True, "ScalingUp", "from 1 to 2")])

        reporters = [scaling("MachineSet", "s"), scaling("DevControlPlane", "cp"), scaling("MachineSet", "r")]
        found = aggregate("ScalingUp", "ScalingUp", reporters, nobody="NotScalingUp")
        assert parts(found) == (
            "True",
            "ScalingUp",
            "* DevControlPlane cp: from 1 to 2\n* MachineSets r, s: from 1 to 2",
        )

    def test_three_messages_are_the_most_over_all_kinds(self) -> None:
        reporters = [
            Reporter(kind, f"{kind}-{n}".lower(), [condition("Ready", False, "No", f"fault {n}")])
            for kind in ("Alpha", "Beta")
            for n in range(2)
        ]
        found = aggregate("AllReady", "Ready", reporters, nobody="")
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
    def test_the_order_of_objects_never_shows(self, machines: list[Reporter], random: Any) -> None:
        shuffled = random.sample(machines, len(machines))
        one = aggregate("MachinesReady", "Ready", machines, nobody="NoReplicas")
        assert one == aggregate("MachinesReady", "Ready", shuffled, nobody="NoReplicas")
        statuses = {each.conditions[0].status for each in machines}
        assert one.status == next((bad for bad in ("False", "Unknown") if bad in statuses), "True")
        assert sum(line.startswith("* ") for line in one.message.split("\n")) <= 3


class TestMirror:
    def test_a_condition_is_taken_over_with_its_time(self) -> None:
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
    def test_a_missing_reason_is_made_up(self, status: str, like: str, reason: str) -> None:
        source = Condition(type=like, status=status)
        assert mirror("Target", source, like=like, ready=False, waiting_for="").reason == reason

    def test_without_a_condition_the_flag_decides(self) -> None:
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
    def test_an_object_that_is_not_there(self, existed: bool, deleting: bool, expected: tuple[str, str, str]) -> None:
        found = mirror_of_absent(
            "InfrastructureReady", kind="DevCluster", existed=existed, owner="Cluster", owner_deleting=deleting
        )
        assert parts(found) == expected

    def test_an_object_that_cannot_be_read(self) -> None:
        assert parts(internal_error("Ready")) == ("Unknown", "InternalError", "Please check controller logs for errors")


class TestRemediating:
    def test_nobody_is_ill(self) -> None:
        found = remediating([machine("a", "True", type="HealthCheckSucceeded")])
        assert parts(found) == ("False", "NotRemediating", "")

    def test_machines_that_wait_for_their_owner(self) -> None:
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
    def test_ill_ones_nobody_will_remediate(self, names: str, by: str, message: str) -> None:
        ill = [machine(name, "False", type="HealthCheckSucceeded") for name in names]
        assert parts(remediating(ill, by=by)) == ("False", "NotRemediating", message)
