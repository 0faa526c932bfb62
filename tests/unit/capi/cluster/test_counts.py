"""Counting: what is not reported is left out, what is reported is summed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.cluster.counts import control_plane_counts, worker_counts
from remuda.capi.cluster.scope import ClusterMembers, ProviderLookup
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
    def test_control_plane_counts_come_from_the_provider(self) -> None:
        status = {
            "replicas": 3,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 0,
            "versions": [{"version": "v1.31.0", "replicas": 2}, {"version": "v1.30.0", "replicas": 1}],
        }
        machines = ClusterMembers(machines=[machine("ignored", control_plane=True)])
        assert control_plane_counts(found(CONTROL_PLANE, spec={"replicas": 3}, status=status), machines) == {
            "desiredReplicas": 3,
            "replicas": 3,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 0,
            "versions": [{"version": "v1.30.0", "replicas": 1}, {"version": "v1.31.0", "replicas": 2}],
        }

    @pytest.mark.parametrize(
        "look", [ProviderLookup(CONTROL_PLANE), ProviderLookup(CONTROL_PLANE, error=ValueError()), found(CONTROL_PLANE)]
    )
    def test_silent_provider_yields_no_control_plane_counts(self, look: ProviderLookup) -> None:
        assert control_plane_counts(look, ClusterMembers(machines=[machine("a", control_plane=True)])) == {}

    def test_non_numeric_provider_counts_are_omitted(self) -> None:
        assert control_plane_counts(found(CONTROL_PLANE, status={"replicas": "three"}), ClusterMembers()) == {}

    def test_control_plane_machines_are_counted_without_provider(self) -> None:
        machines = [
            machine("a", *good("Ready", "Available", "UpToDate"), control_plane=True),
            machine("b", *good("Ready"), control_plane=True),
            machine("worker", *good("Ready")),
        ]
        assert control_plane_counts(ProviderLookup(), ClusterMembers(machines=machines)) == {
            "desiredReplicas": 2,
            "replicas": 2,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "upToDateReplicas": 1,
        }

    def test_desired_replicas_fall_back_to_control_plane_deployments(self) -> None:
        members = ClusterMembers(deployments=[servers("s", replicas=3), deployment("w", replicas=2)])
        look = found(CONTROL_PLANE, status={"replicas": 2, "version": "v1.30.0"})
        assert control_plane_counts(look, members) == {"desiredReplicas": 3, "replicas": 2}

    def test_no_provider_and_no_machines_yield_no_counts(self) -> None:
        assert control_plane_counts(ProviderLookup(), ClusterMembers()) == {}


class TestWorkers:
    def test_worker_counts_sum_deployments_unowned_sets_and_unowned_machines(self) -> None:
        counted: dict[str, Any] = {"ready_replicas": 1, "available_replicas": 1, "up_to_date_replicas": 1}
        members = ClusterMembers(
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

    def test_control_plane_deployments_are_not_counted_as_workers(self) -> None:
        members = ClusterMembers(deployments=[servers("s", replicas=3, ready_replicas=3), deployment("w", replicas=2)])
        assert worker_counts(members) == {"desiredReplicas": 2}

    def test_cluster_without_workers_has_no_worker_counts(self) -> None:
        assert worker_counts(ClusterMembers()) == {}

    def test_zero_worker_replicas_are_reported(self) -> None:
        assert worker_counts(ClusterMembers(deployments=[deployment("d", replicas=0, ready_replicas=0)])) == {
            "desiredReplicas": 0,
            "readyReplicas": 0,
        }

    def test_worker_versions_are_summed_and_sorted(self) -> None:
        one = [VersionCount(version="v1.30.10", replicas=1), VersionCount(version="v1.30.9", replicas=2)]
        other = [VersionCount(version="v1.30.10", replicas=4), VersionCount(version="odd", replicas=1)]
        members = ClusterMembers(deployments=[deployment("a", versions=one), deployment("b", versions=other)])
        assert worker_counts(members)["versions"] == [
            {"version": "odd", "replicas": 1},
            {"version": "v1.30.9", "replicas": 2},
            {"version": "v1.30.10", "replicas": 5},
        ]
