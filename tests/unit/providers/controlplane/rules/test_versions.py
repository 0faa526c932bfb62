"""Which version may follow which: by what nodes run, so that a wrong version wedges nothing."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane.rules.versions import KNOWN_MINORS, RunningNode, complaints, transitions, warnings

PATH = "spec.kubernetesVersion"


def server(version: str, machine: str = "s-1") -> RunningNode:
    return RunningNode(machine=machine, version=version, server=True)


def worker(version: str, machine: str = "w-1") -> RunningNode:
    return RunningNode(machine=machine, version=version, server=False)


def said(old: str, new: str, *nodes: RunningNode) -> list[str]:
    return [str(error) for error in transitions(old, new, nodes, PATH)]


@pytest.mark.parametrize("text", ["v1.36.4+k3s1", "v1.36.4+rke2r12", "v1.36.4-rc2+k3s1", "v1.36.4+nano1"])
def test_distribution_version_is_accepted(text: str) -> None:
    assert complaints(text, PATH) == []


@pytest.mark.parametrize(
    "text", ["v1.36.4", "1.36.4+k3s1", "v1.36+k3s1", "latest", "v1.36.4+kubeadm1", "v1.36.4+rke21"]
)
def test_malformed_version_is_rejected(text: str) -> None:
    (complaint,) = complaints(text, PATH)
    assert str(complaint).startswith(PATH)
    assert text in str(complaint)


def test_missing_version_is_rejected() -> None:
    assert "Required value" in str(complaints("", PATH)[0])


def test_unknown_minor_is_warned_and_not_rejected() -> None:
    first, last = KNOWN_MINORS["k3s"]
    assert warnings(f"v1.{last}.0+k3s1", PATH) == []
    for minor in (first - 1, last + 1):
        assert complaints(f"v1.{minor}.0+k3s1", PATH) == []
        assert "is not a release that this manager knows" in warnings(f"v1.{minor}.0+k3s1", PATH)[0]


@pytest.mark.parametrize("new", ["v1.35.3+k3s1", "v1.35.2+k3s2", "v1.36.0+k3s1"])
def test_upgrade_to_next_patch_or_minor_is_accepted(new: str) -> None:
    assert said("v1.35.2+k3s1", new) == []
    assert said("v1.35.2+k3s1", new, server("v1.35.2+k3s1"), worker("v1.35.2+k3s1")) == []


def test_another_distribution_is_refused() -> None:
    assert "cannot change the distribution of a cluster from k3s to rke2" in said("v1.35.2+k3s1", "v1.35.2+rke2r1")[0]


def test_skipped_minor_is_rejected_with_next_minor() -> None:
    (complaint,) = said("v1.34.1+k3s1", "v1.36.0+k3s1")
    assert "skips a minor version" in complaint
    assert "v1.35 first" in complaint


def test_downgrade_is_rejected_with_machine_name() -> None:
    (complaint,) = said("v1.36.4+k3s1", "v1.36.3+k3s1", server("v1.36.4+k3s1"))
    assert "Machine s-1 runs v1.36.4+k3s1" in complaint


def test_requested_version_that_no_node_runs_may_be_reverted() -> None:
    nodes = (server("v1.35.2+k3s1"), worker("v1.35.2+k3s1"))
    assert said("v1.36.99+k3s1", "v1.35.2+k3s1", *nodes) == []
    assert said("v1.36.99+k3s1", "v1.36.4+k3s1", *nodes) == []


def test_partial_upgrade_may_continue_but_not_revert() -> None:
    nodes = (server("v1.36.0+k3s1"), server("v1.35.2+k3s1", "s-2"), worker("v1.35.2+k3s1"))
    assert said("v1.36.0+k3s1", "v1.36.4+k3s1", *nodes) == []
    assert "Machine s-1 runs" in said("v1.36.0+k3s1", "v1.35.2+k3s1", *nodes)[0]
    assert "Machine s-2 runs" in said("v1.36.0+k3s1", "v1.37.0+k3s1", *nodes)[0]


def test_worker_may_run_three_minor_versions_behind() -> None:
    assert said("v1.36.0+k3s1", "v1.37.0+k3s1", server("v1.36.0+k3s1"), worker("v1.34.0+k3s1")) == []
    (complaint,) = said("v1.36.0+k3s1", "v1.37.0+k3s1", server("v1.36.0+k3s1"), worker("v1.33.0+k3s1"))
    assert "Machine w-1 runs" in complaint


def test_release_candidate_precedes_release() -> None:
    assert said("v1.36.4-rc1+k3s1", "v1.36.4+k3s1", server("v1.36.4-rc1+k3s1")) == []
    assert said("v1.36.4+k3s1", "v1.36.4-rc1+k3s1", server("v1.36.4+k3s1")) != []


def test_long_machine_list_is_truncated_with_count() -> None:
    nodes = [server("v1.36.4+k3s1", f"s-{number}") for number in range(7)]
    (complaint,) = said("v1.36.4+k3s1", "v1.36.3+k3s1", *nodes)
    assert "and 4 more" in complaint
