"""Which Pods leave before a restart, and what forbids it."""

from __future__ import annotations

from remuda.capi.machine.workload import Pod, PodSpec, Volume
from remuda.kube import clock
from remuda.kube.objects import Key, ObjectMeta, OwnerReference
from remuda.providers.controlplane.drainer import Evacuation
from remuda.providers.controlplane.drainer import plan_evacuation as plan
from remuda.providers.shared.types.configuration import DrainOptions

NOW = 1_800_000_000.0
SETS = {Key("default", "ds")}


def pod(name: str, owner: str = "ReplicaSet", *, local: bool = False, ending_for: float | None = None) -> Pod:
    owners = [OwnerReference(kind=owner, name="ds" if owner == "DaemonSet" else "x", controller=True)] if owner else []
    deleted = clock.rfc3339(NOW - ending_for) if ending_for is not None else None
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", owner_references=owners, deletion_timestamp=deleted),
        spec=PodSpec(volumes=[Volume(name="v", empty_dir={})] if local else []),
    )


def planned(*pods: Pod, **options: object) -> Evacuation:
    return plan(pods, DrainOptions(enabled=True, **options), SETS, now=NOW, unreachable=False)  # type: ignore[arg-type]


def test_replicated_pods_are_evicted_and_daemon_set_pods_stay() -> None:
    found = planned(pod("a"), pod("ds", "DaemonSet"))
    assert [one.metadata.name for one in found.evict] == ["a"]
    assert found.forbidden == ""
    assert planned(pod("ds", "DaemonSet")).finished


def test_pods_with_data_loss_block_drain_unless_allowed() -> None:
    lonely, local = pod("lonely", ""), pod("local", local=True)
    found = planned(lonely, local)
    assert "Pod default/lonely have no controller that would recreate them" in found.forbidden
    assert "Pod default/local would lose" in found.forbidden
    assert not found.finished
    assert planned(lonely, local, force=True, delete_empty_dir_data=True).forbidden == ""


def test_daemon_set_pods_block_drain_unless_ignored() -> None:
    assert "ignoreDaemonSets is false" in planned(pod("ds", "DaemonSet"), ignore_daemon_sets=False).forbidden


def test_terminating_pods_are_awaited_until_timeout() -> None:
    assert not planned(pod("slow", ending_for=100)).finished
    assert planned(pod("slow", ending_for=100), skip_wait_for_delete_timeout_seconds=60).finished
