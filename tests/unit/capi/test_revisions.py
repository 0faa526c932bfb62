from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import names, revisions
from remuda.capi.revisions import Sets
from remuda.capi.types import (
    Bootstrap,
    MachineDeletion,
    MachineDeployment,
    MachineDeploymentSpec,
    MachineSet,
    MachineSetSpec,
    MachineSpec,
    MachineTemplate,
    Reference,
    Rollout,
    TemplateMetadata,
)
from remuda.kube import clock
from remuda.kube import names as kube_names
from remuda.kube.objects import ObjectMeta

NOW = clock.parse("2026-01-01T12:00:00Z")


def free(name: str) -> bool:
    """No name is taken."""
    return False


def template(**spec: Any) -> MachineTemplate:
    defaults: dict[str, Any] = {
        "version": "v1.35.0",
        "bootstrap": Bootstrap(config_ref=Reference(api_group="b", kind="BTemplate", name="b")),
        "infrastructure_ref": Reference(api_group="i", kind="ITemplate", name="i"),
    }
    return MachineTemplate(spec=MachineSpec(**(defaults | spec)))


def machine_set(
    name: str, created: str = "2026-01-01T00:00:00Z", replicas: int = 1, deleted: bool = False, **spec: Any
) -> MachineSet:
    return MachineSet(
        metadata=ObjectMeta(name=name, creation_timestamp=created, deletion_timestamp=created if deleted else None),
        spec=MachineSetSpec(replicas=replicas, template=template(**spec)),
    )


def deployment(after: str | None = None, name: str = "md", **spec: Any) -> MachineDeployment:
    return MachineDeployment(
        metadata=ObjectMeta(name=name, uid="u"),
        spec=MachineDeploymentSpec(template=template(**spec), rollout=Rollout(after=after)),
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "v1.36.0"},
        {"failure_domain": "a"},
        {"bootstrap": Bootstrap(data_secret_name="s")},
        {"infrastructure_ref": Reference(api_group="i", kind="ITemplate", name="other")},
    ],
)
def test_immutable_template_change_makes_a_revision(spec: dict[str, Any]) -> None:
    assert revisions.essence(template(**spec)) != revisions.essence(template())
    assert revisions.sort(deployment(**spec), [machine_set("a")], NOW).new is None


def test_in_place_template_change_makes_no_revision() -> None:
    changed = template(
        cluster_name="c", min_ready_seconds=3, deletion=MachineDeletion(node_drain_timeout_seconds=1), provider_id="x"
    )
    labelled = msgspec.structs.replace(changed, metadata=TemplateMetadata(labels={"a": "b"}))
    assert revisions.essence(labelled) == revisions.essence(template())


class TestSort:
    def test_old_machine_sets_are_sorted_oldest_first(self) -> None:
        sets = [
            machine_set("c", "2026-01-03T00:00:00Z", version="v1.33.0"),
            machine_set("b", "2026-01-02T00:00:00Z"),
            machine_set("a", "2026-01-01T00:00:00Z", version="v1.34.0"),
        ]
        found = revisions.sort(deployment(), sets, NOW)
        assert found.new is sets[1]
        assert [one.metadata.name for one in found.old] == ["a", "c"]

    def test_largest_then_oldest_matching_set_is_new(self) -> None:
        small, older, younger = (
            machine_set("a", "2026-01-01T00:00:00Z", 1),
            machine_set("c", "2026-01-02T00:00:00Z", 3),
            machine_set("b", "2026-01-03T00:00:00Z", 3),
        )
        assert revisions.sort(deployment(), [younger, small, older], NOW).new is older

    def test_deleting_machine_set_is_never_new(self) -> None:
        found = revisions.sort(deployment(), [machine_set("a", deleted=True)], NOW)
        assert found.new is None
        assert len(found.old) == 1

    def test_passed_rollout_after_selects_only_later_sets(self) -> None:
        before, later = machine_set("a", "2026-01-01T10:00:00Z"), machine_set("b", "2026-01-01T11:30:00Z")
        due = deployment("2026-01-01T11:00:00Z")
        assert revisions.sort(due, [before], NOW).new is None
        assert revisions.sort(due, [before, later], NOW).new is later

    def test_set_with_rollout_hash_is_recognized_despite_clock_skew(self) -> None:
        due = deployment("2026-01-01T11:59:59.9Z")
        hash = revisions.identify(due, free, NOW).hash
        made = machine_set("a", "2026-01-01T11:30:00Z")
        labelled = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, labels={names.TEMPLATE_HASH: hash})
        )
        assert revisions.sort(due, [made], NOW).new is None
        assert revisions.sort(due, [labelled], NOW).new is labelled
        assert revisions.sort(deployment("2026-01-01T11:45:00Z"), [labelled], NOW).new is None

    def test_rollout_after_ignores_fractions_of_a_second(self) -> None:
        made = machine_set("a", "2026-01-01T11:00:00Z")
        assert revisions.sort(deployment("2026-01-01T11:00:00.9Z"), [made], NOW).new is made

    def test_future_rollout_after_changes_nothing(self) -> None:
        before = machine_set("a", "2026-01-01T10:00:00Z")
        assert revisions.sort(deployment("2026-01-01T13:00:00Z"), [before], NOW).new is before


class TestIdentity:
    def test_identity_of_equal_deployments_is_equal(self) -> None:
        first, second = (revisions.identify(deployment(), free, NOW) for _ in range(2))
        assert first == second
        assert first.name.startswith("md-")
        assert first.hash.endswith(first.name.removeprefix("md"))

    def test_identity_differs_by_template_and_rollout_time(self) -> None:
        due = deployment("2026-01-01T11:00:00Z")
        found = {revisions.identify(one, free, NOW).name for one in (deployment(), deployment(version="v2.0.0"), due)}
        assert len(found) == 3

    def test_identity_never_reuses_a_taken_name(self) -> None:
        taken: set[str] = set()
        for _ in range(20):
            name = revisions.identify(deployment(), taken.__contains__, NOW).name
            assert name not in taken
            taken.add(name)

    @given(name=st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
    def test_identity_name_and_hash_are_valid(self, name: str) -> None:
        found = revisions.identify(deployment(name=name), free, NOW)
        assert kube_names.dns1123_subdomain(found.name) == []
        assert len(found.name) <= 63
        assert kube_names.label_value(found.hash) == []


def numbered(number: int | str | None) -> MachineSet:
    notes = {} if number is None else {names.REVISION: str(number)}
    return MachineSet(metadata=ObjectMeta(annotations=notes))


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (None, [], 1),
        (None, [1, 4, 2], 5),
        (3, [1, 2], 3),
        (1, [1, 2], 3),  # rolled back
        (None, ["x"], 1),
        (2, [None], 2),
    ],
)
def test_next_revision_number_exceeds_old_revisions(new: int | None, old: list[Any], expected: int) -> None:
    sets = Sets(numbered(new) if new is not None else None, [numbered(one) for one in old])
    assert revisions.next_revision(sets) == expected


class TestBookkeeping:
    def test_bookkeeping_records_first_revision(self) -> None:
        assert revisions.bookkeeping({}, 1) == {names.REVISION: "1"}

    def test_bookkeeping_of_unchanged_revision_is_empty(self) -> None:
        assert revisions.bookkeeping({names.REVISION: "2"}, 2) == {}

    def test_bookkeeping_appends_previous_revision_to_history(self) -> None:
        noted = revisions.bookkeeping({names.REVISION: "5", names.REVISION_HISTORY: "1,3"}, 6)
        assert noted == {names.REVISION: "6", names.REVISION_HISTORY: "1,3,5"}

    def test_bookkeeping_limits_revision_history_length(self) -> None:
        long = ",".join(map(str, range(1, 2000)))
        noted = revisions.bookkeeping({names.REVISION: "2000", names.REVISION_HISTORY: long}, 2001)
        assert len(noted[names.REVISION_HISTORY]) <= 2000
        assert noted[names.REVISION_HISTORY].endswith(",1999,2000")
