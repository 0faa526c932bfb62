"""What `kubectl get` prints."""

from __future__ import annotations

import time
from typing import Any

import pytest

from remuda.apiserver.kinds.columns import human_duration, since
from remuda.apiserver.resource import Resource
from remuda.kube import clock

from .writing import POD, created, kind


@pytest.fixture(autouse=True)
def frozen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock: an age must not grow between the test and the column that shows it."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


def row(resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    return {column.name: column.cell(obj) for column in resource.columns if column.cell is not None}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)
def test_duration_is_formatted_like_kubectl(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown


def test_unknown_age_is_shown_as_unknown() -> None:
    assert since(None) == since("soon") == "<unknown>"
    assert since(clock.rfc3339(time.time() - 300)) == "5m"


def ago(seconds: float) -> str:
    return clock.rfc3339(time.time() - seconds)


PODS = kind("Pod")


@pytest.mark.parametrize(
    ("status", "deleted", "ready", "shown"),
    [
        ({"phase": "Pending"}, False, "0/1", "Pending"),
        (
            {"phase": "Running", "containerStatuses": [{"ready": True, "state": {"running": {}}}]},
            False,
            "1/1",
            "Running",
        ),
        ({"phase": "Running"}, True, "0/1", "Terminating"),
        ({"phase": "Failed", "reason": "Evicted"}, False, "0/1", "Evicted"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            False,
            "0/1",
            "CrashLoopBackOff",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
            False,
            "0/1",
            "ExitCode:3",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            False,
            "0/1",
            "Completed",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            False,
            "0/1",
            "Init:0/1",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1}}}]},
            False,
            "0/1",
            "Init:ExitCode:1",
        ),
    ],
)
def test_pod_columns_show_ready_and_status(status: Any, deleted: bool, ready: str, shown: str) -> None:
    pod = created(PODS, spec={**POD, "initContainers": [{"name": "i", "image": "i"}]})
    pod["status"] = status
    if deleted:
        pod["metadata"]["deletionTimestamp"] = ago(0)
    found = row(PODS, pod)
    assert (found["Ready"], found["Status"]) == (ready, shown)


def test_pod_restarts_column_shows_time_of_last_restart() -> None:
    pod = created(PODS, spec=POD)
    last = {"terminated": {"finishedAt": ago(300)}}
    pod["status"] = {"containerStatuses": [{"restartCount": 4, "lastState": last, "state": {"running": {}}}]}
    assert row(PODS, pod)["Restarts"] == "4 (5m ago)"


def test_node_columns_show_status_roles_and_addresses() -> None:
    labels = {"node-role.kubernetes.io/etcd": "", "node-role.kubernetes.io/control-plane": "true"}
    node = created(
        kind("Node"),
        metadata={"labels": labels, "creationTimestamp": ago(7200)},
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "kernelVersion": "6.1", "architecture": "arm64"},
        },
    )
    found = row(kind("Node"), node)
    assert found["Status"] == "Ready,SchedulingDisabled"
    assert found["Roles"] == "control-plane,etcd"
    assert (found["Age"], found["Version"]) == ("120m", "v1.36.3")
    assert (found["Internal-IP"], found["External-IP"]) == ("10.0.0.1", "<none>")
    assert (found["OS-Image"], found["Kernel-Version"]) == ("<unknown>", "6.1 (arm64)")


def test_service_and_endpoints_columns_show_ports_and_addresses() -> None:
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b", "nodePort": 30081}]
    service = created(kind("Service"), spec={"type": "NodePort", "ports": ports, "selector": {"b": "2", "a": "1"}})
    found = row(kind("Service"), service)
    assert (found["Cluster-IP"], found["External-IP"]) == ("<none>", "<none>")
    assert (found["Port(s)"], found["Selector"]) == ("80/TCP,81:30081/TCP", "a=1,b=2")
    addresses = [{"ip": f"10.0.0.{n}"} for n in range(5)]
    endpoints = created(kind("Endpoints"), subsets=[{"addresses": addresses, "ports": [{"port": 80}]}])
    assert row(kind("Endpoints"), endpoints)["Endpoints"] == "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."


def test_job_columns_show_status_completions_and_duration() -> None:
    job = created(kind("Job", "batch"), spec={"template": {"spec": {**POD, "restartPolicy": "Never"}}})
    job["status"] = {
        "succeeded": 1,
        "startTime": "2026-01-02T03:00:00Z",
        "completionTime": "2026-01-02T03:02:05Z",
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    found = row(kind("Job", "batch"), job)
    assert (found["Status"], found["Completions"], found["Duration"]) == ("Complete", "1/1", "2m5s")
    assert (found["Containers"], found["Images"]) == ("main", "nginx:1.27")
    assert found["Selector"].startswith("batch.kubernetes.io/controller-uid=")


def test_event_columns_show_age_object_and_message() -> None:
    event = created(
        kind("Event"),
        involvedObject={"kind": "Pod", "name": "web", "namespace": "ns"},
        reason="Pulled",
        message=" done \n",
        lastTimestamp=ago(300),
        source={"component": "kubelet", "host": "n1"},
    )
    found = row(kind("Event"), event)
    assert (found["Last Seen"], found["Object"], found["Message"]) == ("5m", "pod/web", "done")
    assert (found["Source"], found["Count"]) == ("kubelet, n1", 1)


def test_role_binding_and_volume_columns_show_subjects_and_capacity() -> None:
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}, {"kind": "Group", "name": "g"}]
    binding = created(kind("RoleBinding", group), roleRef={"kind": "Role", "name": "r"}, subjects=subjects)
    found = row(kind("RoleBinding", group), binding)
    assert (found["Role"], found["ServiceAccounts"], found["Groups"], found["Users"]) == ("Role/r", "n/s", "g", "")
    spec = {
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "n", "name": "c"},
    }
    volume = row(kind("PersistentVolume"), created(kind("PersistentVolume"), spec=spec))
    assert (volume["Capacity"], volume["Access Modes"], volume["Claim"]) == ("1Gi", "RWO,RWX", "n/c")


def test_kinds_without_printer_columns_show_created_at() -> None:
    role = created(kind("Role", "rbac.authorization.k8s.io"), metadata={"creationTimestamp": "2026-01-02T03:04:05Z"})
    columns = kind("Role", "rbac.authorization.k8s.io").columns
    assert [(c.name, c.type) for c in columns] == [("Name", "string"), ("Created At", "date")]
    assert row(kind("Role", "rbac.authorization.k8s.io"), role)["Created At"] == "2026-01-02T03:04:05Z"
