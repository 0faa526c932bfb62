"""Counting: what is not reported is left out, what is reported is summed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.cluster.counts import control_plane_counts, worker_counts
from remuda.capi.cluster.scope import Look, Members
from remuda.capi.types import MachineDeployment, VersionCount
from remuda.capi.types.shared import TemplateMetadata
from tests.unit.capi.cluster.facts import CONTROL_PLANE, deployment, found, good, machine, machine_set


def servers(name: str, **numbers: Any) -> MachineDeployment:
    """A MachineDeployment whose Machines are of the control plane."""
    made = deployment(name, **numbers)
    template = msgspec.structs.replace(
        made.spec.template, metadata=TemplateMetadata(labels={names.CONTROL_PLANE: "true"})
    )
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, template=template))


class TestControlPlane:
    def test_the_provider_counts(self) -> None:
        status = {
            "replicas": 3,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 0,
            "versions": [{"version": "v1.31.0", "replicas": 2}, {"version": "v1.30.0", "replicas": 1}],
        }
        machines = Members(machines=[machine("ignored", control_plane=True)])
        assert control_plane_counts(found(CONTROL_PLANE, spec={"replicas": 3}, status=status), machines) == {
            "desiredReplicas": 3,
            "replicas": 3,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 0,
            "versions": [{"version": "v1.30.0", "replicas": 1}, {"version": "v1.31.0", "replicas": 2}],
        }

    @pytest.mark.parametrize(
        "look", [Look(CONTROL_PLANE), Look(CONTROL_PLANE, error=ValueError()), found(CONTROL_PLANE)]
    )
    def test_a_provider_that_says_nothing(self, look: Look) -> None:
        assert control_plane_counts(look, Members(machines=[machine("a", control_plane=True)])) == {}

    def test_numbers_that_are_none_are_left_out(self) -> None:
        assert control_plane_counts(found(CONTROL_PLANE, status={"replicas": "three"}), Members()) == {}

    def test_without_a_provider_machines_are_counted(self) -> None:
        machines = [
            machine("a", *good("Ready", "Available", "UpToDate"), control_plane=True),
            machine("b", *good("Ready"), control_plane=True),
            machine("worker", *good("Ready")),
        ]
        assert control_plane_counts(Look(), Members(machines=machines)) == {
            "desiredReplicas": 2,
            "replicas": 2,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 1,
        }

    def test_deployments_of_servers_say_how_many_are_wanted_where_the_provider_does_not(self) -> None:
        members = Members(deployments=[servers("s", replicas=3), deployment("w", replicas=2)])
        look = found(CONTROL_PLANE, status={"replicas": 2, "version": "v1.30.0"})
        assert control_plane_counts(look, members) == {"desiredReplicas": 3, "replicas": 2}

    def test_nobody_there_and_nobody_to_ask(self) -> None:
        assert control_plane_counts(Look(), Members()) == {}


class TestWorkers:
    def test_everything_that_owns_workers_and_those_nobody_owns(self) -> None:
        counted: dict[str, Any] = {"ready_replicas": 1, "available_replicas": 1, "up_to_date_replicas": 1}
        members = Members(
            deployments=[deployment("d", replicas=3)],
            sets=[machine_set("lone", replicas=2, **counted), machine_set("owned", replicas=5, owned=True, **counted)],
            machines=[
                machine("lone", *good("Ready", "UpToDate")),
                machine("owned", *good("Ready"), owned=True),
                machine("leader", *good("Ready"), control_plane=True),
            ],
        )
        assert worker_counts(members) == {
            "desiredReplicas": 3 + 2 + 1,
            "replicas": 1,
            "readyReplicas": 1 + 1,
            "availableReplicas": 1 + 0,
            "upToDateReplicas": 1 + 1,
        }

    def test_servers_are_not_workers(self) -> None:
        members = Members(deployments=[servers("s", replicas=3, ready_replicas=3), deployment("w", replicas=2)])
        assert worker_counts(members) == {"desiredReplicas": 2}

    def test_no_workers_no_numbers(self) -> None:
        assert worker_counts(Members()) == {}

    def test_zero_is_a_number(self) -> None:
        assert worker_counts(Members(deployments=[deployment("d", replicas=0, ready_replicas=0)])) == {
            "desiredReplicas": 0,
            "readyReplicas": 0,
        }

    def test_versions_are_summed_and_in_order(self) -> None:
        one = [VersionCount(version="v1.30.10", replicas=1), VersionCount(version="v1.30.9", replicas=2)]
        other = [VersionCount(version="v1.30.10", replicas=4), VersionCount(version="odd", replicas=1)]
        members = Members(deployments=[deployment("a", versions=one), deployment("b", versions=other)])
        assert worker_counts(members)["versions"] == [
            {"version": "odd", "replicas": 1},
            {"version": "v1.30.9", "replicas": 2},
            {"version": "v1.30.10", "replicas": 5},
        ]
