"""The order of deletion, whatever is left of a cluster."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.capi.cluster.deletion import plan
from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup
from remuda.runtime.outcome import Retryable
from tests.unit.capi.cluster.facts import CONTROL_PLANE, INFRASTRUCTURE, deployment, found, machine, machine_set

THERE = found(INFRASTRUCTURE)
LEADING = found(CONTROL_PLANE)
ALL = ClusterMembers([deployment("d")], [machine_set("s", owned=True)], [machine("m", owned=True)])


def names_of(members: Any) -> list[str]:
    return [obj.metadata.name for _, obj in members]


def test_deletion_starts_with_workers_and_deletes_only_uncontrolled_objects() -> None:
    members = ClusterMembers(
        [deployment("d")],
        [machine_set("s"), machine_set("owned-set", owned=True)],
        [
            machine("m"),
            machine("owned", owned=True),
            machine("going", deleting=True),
            machine("cp", control_plane=True),
        ],
    )
    stage = plan(members, LEADING, THERE)
    assert stage.reason == "WaitingForWorkersDeletion"
    assert names_of(stage.delete) == ["d", "s", "m"]
    assert stage.delete_provider is None
    assert stage.on == "MachineDeployment ns/d"
    assert stage.message.split("\n") == [
        "* MachineDeployment: d",
        "* MachineSets: s, owned-set",
        "* Machines: m, owned, going",
    ]


def test_deletion_message_truncates_long_object_lists() -> None:
    stage = plan(ClusterMembers(machines=[machine(name) for name in "abcde"]), ProviderLookup(), ProviderLookup())
    assert stage.message == "* Machines: a, b, c, ... (2 more)"
    assert len(stage.delete) == 5


def test_control_plane_machines_are_deleted_only_without_provider() -> None:
    members = ClusterMembers(machines=[machine("cp", control_plane=True)])
    assert plan(members, LEADING, THERE).delete_provider is LEADING.obj
    assert plan(members, ProviderLookup(CONTROL_PLANE), THERE).delete_provider is THERE.obj
    stage = plan(members, ProviderLookup(), THERE)
    assert (stage.reason, names_of(stage.delete)) == ("WaitingForControlPlaneDeletion", ["cp"])


def test_deletion_removes_control_plane_before_infrastructure() -> None:
    stage = plan(ClusterMembers(), LEADING, THERE)
    assert (stage.reason, stage.on) == ("WaitingForControlPlaneDeletion", "DevControlPlane ns/c")
    stage = plan(ClusterMembers(), ProviderLookup(CONTROL_PLANE), THERE)
    assert (stage.reason, stage.message) == ("WaitingForInfrastructureDeletion", "Waiting for DevCluster to be deleted")
    stage = plan(ClusterMembers(), ProviderLookup(CONTROL_PLANE), ProviderLookup(INFRASTRUCTURE))
    assert stage.completed
    assert plan(ClusterMembers(), ProviderLookup(), ProviderLookup()).completed


def test_unreadable_provider_blocks_deletion_with_its_error() -> None:
    error = Retryable("no label on devclusters")
    stage = plan(ClusterMembers(), ProviderLookup(), ProviderLookup(INFRASTRUCTURE, error=error))
    assert (stage.reason, stage.message, stage.error) == ("InternalError", "no label on devclusters", error)
    assert not stage.completed
    assert plan(ALL, ProviderLookup(CONTROL_PLANE, error=error), THERE).error is None, "workers can go meanwhile"


def test_provider_object_that_violates_contract_can_be_deleted() -> None:
    broken = THERE._replace(error=Retryable("nonsense"))
    assert plan(ClusterMembers(), ProviderLookup(), broken).delete_provider is THERE.obj


looks = st.sampled_from([ProviderLookup(), ProviderLookup(CONTROL_PLANE), LEADING])
machines = st.lists(
    st.builds(
        machine, st.text("abc", min_size=1), control_plane=st.booleans(), owned=st.booleans(), deleting=st.booleans()
    )
)


@given(machines, looks, looks)
def test_later_deletion_stages_wait_for_earlier_stages(
    some: list[Any], control_plane: ProviderLookup, infrastructure: ProviderLookup
) -> None:
    members = ClusterMembers(machines=some)
    stage = plan(members, control_plane, infrastructure)
    if members.workers:
        assert not any(obj in members.control_plane for _, obj in stage.delete)
    if members.workers or control_plane.obj is not None:
        assert stage.delete_provider is not infrastructure.obj or infrastructure.obj in (None, control_plane.obj)
    assert all(obj.metadata.controller is None and not obj.metadata.deleting for _, obj in stage.delete)
    left = bool(members.workers) or control_plane.obj is not None or infrastructure.obj is not None
    left = left or (control_plane.ref is None and bool(members.control_plane))
    assert stage.completed is not left
