from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.machinedeployment import rollout
from remuda.capi.machinedeployment.rollout import MachineSetCounts, RolloutLimits
from remuda.capi.types import RollingUpdate, RolloutStrategy


def steady(name: str, size: int, available: int | None = None) -> MachineSetCounts:
    """As many Machines as wanted, all of them available unless said otherwise."""
    return MachineSetCounts(name, size, size, size if available is None else available)


def strategy(surge: int | str, unavailable: int | str) -> RolloutStrategy:
    return RolloutStrategy(rolling_update=RollingUpdate(max_surge=surge, max_unavailable=unavailable))


@pytest.mark.parametrize(
    ("given", "replicas", "expected"),
    [
        (strategy(1, 0), 3, RolloutLimits(3, 1, 0)),
        (strategy("25%", "25%"), 10, RolloutLimits(10, 3, 2)),
        (strategy(0, 0), 3, RolloutLimits(3, 0, 1)),
        (strategy("0%", "10%"), 3, RolloutLimits(3, 0, 1)),
        (RolloutStrategy(type="OnDelete"), 3, RolloutLimits(3, 0, 0)),
    ],
)
def test_rollout_limits_are_computed_from_strategy(
    given: RolloutStrategy, replicas: int, expected: RolloutLimits
) -> None:
    assert rollout.limits(replicas, given) == expected


def test_rollout_floor_is_never_negative() -> None:
    assert RolloutLimits(1, 0, 5).floor == 0


class TestRolling:
    def test_rolling_update_starts_with_surge(self) -> None:
        plan = rollout.rolling(MachineSetCounts("new", 0), [steady("old", 3)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 3}

    def test_rolling_update_removes_old_machine_once_new_machine_is_available(self) -> None:
        plan = rollout.rolling(steady("new", 1), [steady("old", 3)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 2}

    def test_rolling_update_waits_for_new_machine_to_become_available(self) -> None:
        plan = rollout.rolling(steady("new", 1, 0), [steady("old", 3)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 3}
        assert plan.waiting == "waiting for 1 Machine of MachineSet new to become available before old ones are deleted"

    def test_rolling_update_waits_for_deletion_at_ceiling(self) -> None:
        plan = rollout.rolling(steady("new", 1), [MachineSetCounts("old", 2, 3, 2)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 2}
        assert plan.waiting == "waiting for 1 Machine to be deleted (at most 4 may exist)"

    def test_rolling_update_without_surge_removes_old_machines_first(self) -> None:
        plan = rollout.rolling(MachineSetCounts("new", 0), [steady("old", 3)], RolloutLimits(3, 0, 1))
        assert plan.sizes == {"new": 0, "old": 2}

    def test_unavailable_old_machines_are_removed_before_available_machines(self) -> None:
        plan = rollout.rolling(steady("new", 1), [steady("oldest", 2), steady("older", 1, 0)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "oldest": 2, "older": 0}

    def test_available_machines_are_removed_from_oldest_set_first(self) -> None:
        plan = rollout.rolling(steady("new", 2), [steady("oldest", 1), steady("older", 1)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 2, "oldest": 0, "older": 1}

    def test_outage_of_all_old_machines_removes_no_machine(self) -> None:
        plan = rollout.rolling(steady("new", 1, 0), [steady("old", 3, 0)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 3}

    def test_dead_old_machine_does_not_block_rollout(self) -> None:
        plan = rollout.rolling(steady("new", 1), [steady("old", 3, 2)], RolloutLimits(3, 1, 0))
        assert plan.sizes == {"new": 1, "old": 2}

    def test_scale_up_during_rollout_grows_new_set(self) -> None:
        plan = rollout.rolling(steady("new", 1), [steady("old", 2)], RolloutLimits(6, 1, 0))
        assert plan.sizes == {"new": 5, "old": 2}

    def test_scale_down_shrinks_new_set_to_replicas(self) -> None:
        assert rollout.rolling(steady("new", 5), [], RolloutLimits(2, 1, 0)).sizes == {"new": 2}

    def test_machines_above_ceiling_are_not_created(self) -> None:
        plan = rollout.rolling(MachineSetCounts("new", 2, 0, 0), [steady("old", 3)], RolloutLimits(3, 0, 1))
        assert plan.sizes["new"] == 0

    def test_rollout_is_held_until_sets_report_latest_size(self) -> None:
        silent = MachineSetCounts("old", 3, 5, 5, reported=False)
        plan = rollout.rolling(steady("new", 3), [silent], RolloutLimits(3, 1, 0))
        assert plan.held
        assert plan.sizes == {"new": 3, "old": 3}
        assert plan.waiting == "MachineSet old has not observed the latest spec.replicas yet"

    def test_completed_rollout_has_no_waiting_message(self) -> None:
        plan = rollout.rolling(steady("new", 3), [MachineSetCounts("old", 0)], RolloutLimits(3, 1, 0))
        assert (plan.sizes, plan.waiting) == ({"new": 3, "old": 0}, "")


class TestOnDelete:
    def test_on_delete_replaces_no_machine_automatically(self) -> None:
        plan = rollout.on_delete(MachineSetCounts("new", 0), [steady("old", 3, 0)], RolloutLimits(3))
        assert plan.sizes == {"new": 0, "old": 3}
        assert plan.waiting == "waiting for the user to delete 3 Machines of earlier revisions"

    def test_on_delete_replaces_machine_after_deletion_completes(self) -> None:
        going = rollout.on_delete(MachineSetCounts("new", 0), [MachineSetCounts("old", 3, 3, 2)], RolloutLimits(3))
        assert going.sizes == {"new": 0, "old": 3}
        gone = rollout.on_delete(MachineSetCounts("new", 0), [MachineSetCounts("old", 3, 2, 2)], RolloutLimits(3))
        assert gone.sizes == {"new": 0, "old": 2}
        settled = rollout.on_delete(MachineSetCounts("new", 0), [steady("old", 2)], RolloutLimits(3))
        assert settled.sizes == {"new": 1, "old": 2}

    def test_on_delete_scale_down_removes_old_unavailable_machines_first(self) -> None:
        plan = rollout.on_delete(steady("new", 1), [steady("oldest", 2), steady("older", 2, 1)], RolloutLimits(3))
        assert plan.sizes == {"new": 1, "oldest": 1, "older": 1}

    def test_on_delete_is_held_until_sets_report(self) -> None:
        assert rollout.on_delete(MachineSetCounts("new", 1, reported=False), [], RolloutLimits(3)).held


class TestProportional:
    def test_proportional_scaling_gives_all_replicas_to_single_set(self) -> None:
        assert rollout.proportional([steady("new", 3)], RolloutLimits(5, 1)).sizes == {"new": 5}

    def test_proportional_scaling_of_empty_sets_grows_newest_set(self) -> None:
        assert rollout.proportional(
            [MachineSetCounts("new", 0), MachineSetCounts("old", 0)], RolloutLimits(2)
        ).sizes == {"new": 2, "old": 0}

    def test_proportional_scaling_without_sets_plans_nothing(self) -> None:
        assert rollout.proportional([], RolloutLimits(2)).sizes == {}

    def test_proportional_scaling_keeps_shares(self) -> None:
        sets = [MachineSetCounts("new", 5, sized_for=10), MachineSetCounts("old", 8, sized_for=10)]
        assert rollout.proportional(sets, RolloutLimits(20, 3)).sizes == {"new": 9, "old": 14}

    def test_proportional_scaling_keeps_sets_already_sized(self) -> None:
        sets = [MachineSetCounts("new", 5, sized_for=10), MachineSetCounts("old", 8, sized_for=10)]
        assert rollout.proportional(sets, RolloutLimits(10, 3)).sizes == {"new": 5, "old": 8}

    def test_proportional_scaling_completes_interrupted_resize(self) -> None:
        sets = [MachineSetCounts("new", 9, sized_for=20), MachineSetCounts("old", 8, sized_for=10)]
        assert rollout.proportional(sets, RolloutLimits(20, 3)).sizes == {"new": 9, "old": 14}

    def test_proportional_scaling_to_zero_empties_all_sets(self) -> None:
        sets = [MachineSetCounts("new", 5, sized_for=10), MachineSetCounts("old", 8, sized_for=10)]
        assert rollout.proportional(sets, RolloutLimits(0, 3)).sizes == {"new": 0, "old": 0}


def test_scale_up_after_scale_down_keeps_existing_machines() -> None:
    """Five were to go, three still stand: with room for one more they are not sent away only to be made anew."""
    plan = rollout.rolling(MachineSetCounts("new", wanted=0, existing=5, available=3), [], RolloutLimits(5, 1, 3))
    assert plan.sizes == {"new": 3}


@st.composite
def counts(draw: st.DrawFn, name: str) -> MachineSetCounts:
    existing = draw(st.integers(0, 6))
    return MachineSetCounts(name, draw(st.integers(0, 6)), existing, draw(st.integers(0, existing)))


limits = st.builds(RolloutLimits, st.integers(0, 6), st.integers(0, 3), st.integers(1, 3)) | st.builds(
    RolloutLimits, st.integers(0, 6), st.integers(1, 3), st.just(0)
)


@given(new=counts("new"), oldest=counts("oldest"), older=counts("older"), limits=limits)
def test_rolling_update_plan_respects_ceiling_and_floor(
    new: MachineSetCounts, oldest: MachineSetCounts, older: MachineSetCounts, limits: RolloutLimits
) -> None:
    old = [oldest, older]
    sizes = rollout.rolling(new, old, limits).sizes
    everything = [new, *old]
    reachable = sum(max(sizes[one.name], one.existing, 0 if one is new else one.wanted) for one in everything)
    before = sum(max(one.wanted, one.existing) for one in everything)
    assert reachable <= max(limits.ceiling, before)
    if sizes["new"] > max(new.wanted, new.available):  # those that stand need not be made
        assert reachable <= limits.ceiling

    kept_before = sum(min(one.available, one.wanted) for one in old)
    kept = sum(min(one.available, sizes[one.name]) for one in old)
    if kept < kept_before:
        assert kept + min(new.available, sizes["new"]) >= limits.floor
        assert all(sizes[one.name] <= one.available for one in old)
    assert all(0 <= sizes[one.name] <= one.wanted for one in old)
    assert sizes["new"] <= limits.replicas


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=5), limits=st.builds(RolloutLimits, st.integers(1, 200)))
def test_proportional_shares_sum_to_replicas_and_stay_proportional(sizes: list[int], limits: RolloutLimits) -> None:
    sets = [MachineSetCounts(f"set-{place}", size, sized_for=-1) for place, size in enumerate(sizes)]
    planned = rollout.proportional(sets, limits).sizes
    assert sum(planned.values()) == limits.replicas
    for one in sets:
        assert abs(planned[one.name] - one.wanted * limits.replicas / sum(sizes)) < 1
