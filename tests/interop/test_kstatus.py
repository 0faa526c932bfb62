"""Flux judges our objects rightly: the status that its kstatus library computes of clusters and machines in each state.

The states are made by the functions that the controllers write statuses with. Flux waits while an object is InProgress,
gives up when it is Failed, and goes on when it is Current.

Not among them, because kstatus cannot know better from what Cluster API defines: a MachineDeployment that scales, which
has no Ready, and a Machine whose server cannot be created, whose infrastructure object is Failed instead.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from remuda.capi.machine.deletion import MachineDeletionStage
from remuda.capi.machine.node_health import Link, NodeView
from remuda.capi.machine.status import Deleting
from remuda.capi.machine.status import publish as publish_machine
from remuda.capi.types import MACHINE, MachineDeployment, MachineDeploymentStatus
from remuda.kube import conditions
from remuda.kube.clock import rfc3339
from remuda.kube.objects import Condition, Key, ObjectMeta
from remuda.kube.wait import Wait
from remuda.providers.controlplane import status as control_plane_status
from remuda.providers.controlplane.planner.quorum import QUORUM_LOST
from remuda.providers.machine import status as driver_status
from remuda.providers.shared.jobs.budget import Rules, Stall
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane, RKEControlPlaneStatus
from remuda.providers.shared.types.machine import DriverMachineStatus
from remuda.provisioning import status as cluster_status
from remuda.provisioning.status import ClusterStatusInputs, Problem
from tests.lab.peers import require_peer
from tests.unit.capi.machine import test_status as machines
from tests.unit.capi.machine.objects import NOW, deleting
from tests.unit.providers.controlplane import test_status as planes
from tests.unit.provisioning.clusters import declared, pool, read

Json = dict[str, Any]

DELETED = {"deletionTimestamp": rfc3339(NOW)}


class State(NamedTuple):
    expected: str
    object: Json


# ---- declared Clusters


def plane_says(status: str, reason: str, message: str = "") -> RKEControlPlane:
    return plane([Condition(type="Ready", status=status, reason=reason, message=message)])


def plane(said: list[Condition]) -> RKEControlPlane:
    return RKEControlPlane(
        metadata=ObjectMeta(generation=1), status=RKEControlPlaneStatus(conditions=said, observed_generation=1)
    )


READY = ClusterStatusInputs(control_plane=plane_says("True", "Ready"))


def cluster(
    facts: ClusterStatusInputs,
    *,
    before: ClusterStatusInputs | None = None,
    changed: bool = False,
    metadata: Json | None = None,
) -> Json:
    """`before`: facts of an earlier run. `changed`: by a user, whom no controller has noticed yet."""
    raw = declared(pool(), metadata=metadata)
    status: Json = {}
    if before is not None:
        cluster_status.write(status, read({**raw, "metadata": {**raw["metadata"], "generation": 2}}), before)
    cluster_status.write(status, read(raw), facts)
    generation = raw["metadata"]["generation"] + changed
    return {**raw, "metadata": {**raw["metadata"], "generation": generation}, "status": status}


def removed_cluster() -> Json:
    raw = cluster(READY, metadata=DELETED)
    cluster_status.write_removal(raw["status"], read(raw), "WaitingForMachines", "2 machines are left")
    return raw


def full_quota() -> MachineDeployment:
    why = "Scaling up is blocked because:\n* exceeded quota: small, requested: a=1, used: a=1, limited: a=1"
    growing = Condition(type="ScalingUp", status="True", reason="ScalingUpBlocked", message=why)
    return MachineDeployment(
        metadata=ObjectMeta(name="prairie-workers", namespace="team"),
        status=MachineDeploymentStatus(conditions=(growing,)),
    )


# ---- RKEControlPlanes


def control_plane(conditions_: list[Condition], *, changed: bool = False, **metadata: Any) -> Json:
    status: Json = {"observedGeneration": 3}
    conditions.put(status, conditions_, generation=3)
    return {
        "apiVersion": RKE_CONTROL_PLANE.api_version,
        "kind": RKE_CONTROL_PLANE.name,
        "metadata": {"name": "prairie", "namespace": "fleet-default", "generation": 3 + changed, **metadata},
        "status": status,
    }


def derived(*waits: Wait, **known: Any) -> list[Condition]:
    return list(control_plane_status.derive(planes.judged(*waits, **known)).conditions)


# ---- Machines


def capi_machine(seen: Any, *, changed: bool = False) -> Json:
    raw: Json = msgspec.json.decode(msgspec.json.encode(seen.machine))
    status: Json = {}
    publish_machine(status, seen)
    raw["metadata"]["generation"] = seen.generation + changed
    return {**raw, "apiVersion": MACHINE.api_version, "kind": MACHINE.name, "status": status}


def driver_machine(*acts: Callable[[Json], None], **metadata: Any) -> Json:
    status: Json = {}
    for act in acts:
        act(status)
    return {
        "apiVersion": "rke-machine.cattle.io/v1",
        "kind": "Amazonec2Machine",
        "metadata": {"name": "m-1", "namespace": "fleet-default", "generation": 1, **metadata},
        "status": status,
    }


def creating(status: Json) -> None:
    machine = Key("fleet-default", "m-1")
    driver_status.creating(status, DriverMachineStatus(), "Amazonec2Machine", machine, "m-1-provision", Rules())


def failed(status: Json) -> None:
    driver_status.create_failed(
        status, DriverMachineStatus(), "m-1-provision", "quota exceeded", False, rfc3339(NOW), Rules()
    )


def given_up(status: Json) -> None:
    before = DriverMachineStatus(failures=5, failure_message="quota exceeded")
    driver_status.stalled(status, before, Stall("CreateError", "5 attempts to create the server failed"))


def cannot_go(status: Json) -> None:
    driver_status.cannot_remove(status, "attempt 3 to remove the server failed: 403", "Mend the credential")


def states() -> Mapping[str, State]:
    lost = Wait(reason=QUORUM_LOST, on="etcd", missing="2 of 3 members are dead")
    refused = Wait(reason="InvalidSpec", on="spec.kubernetesVersion", missing="no such version")
    return {
        "a Cluster just made": State("InProgress", cluster(ClusterStatusInputs())),
        "a Cluster that waits for machines": State(
            "InProgress",
            cluster(ClusterStatusInputs(control_plane=plane_says("Unknown", "WaitingForMachines", "m-1 is created"))),
        ),
        "a Cluster that is ready": State("Current", cluster(READY)),
        "a Cluster that was changed a moment ago": State("InProgress", cluster(READY, changed=True)),
        "a Cluster whose change is refused": State(
            "Failed", cluster(ClusterStatusInputs(not_made=Problem("InvalidSpec", "no SimConfig x")), before=READY)
        ),
        "a Cluster that cannot be made right now": State(
            "InProgress",
            cluster(ClusterStatusInputs(not_made=Problem("Failed", "the server is away", lasting=False)), before=READY),
        ),
        "a Cluster whose quota is used up": State(
            "Failed", cluster(ClusterStatusInputs(deployments=(full_quota(),)), before=READY)
        ),
        "a Cluster that has lost its quorum": State(
            "Failed", cluster(ClusterStatusInputs(control_plane=plane(derived(lost=lost))), before=READY)
        ),
        "a Cluster whose API is silent": State(
            "InProgress",
            cluster(ClusterStatusInputs(control_plane=plane_says("Unknown", "APISilent", "no answer")), before=READY),
        ),
        "a Cluster that is deleted": State("Terminating", removed_cluster()),
        "a control plane that is ready": State("Current", control_plane(derived())),
        "a control plane that waits": State("InProgress", control_plane(derived(*planes.WAITS))),
        "a control plane whose API is silent": State("InProgress", control_plane(derived(connection=planes.SILENT))),
        "a control plane that has lost its quorum": State("Failed", control_plane(derived(lost, lost=lost))),
        "a control plane whose spec is refused": State(
            "Failed", control_plane(control_plane_status.undecided((), refused))
        ),
        "a control plane that was changed a moment ago": State("InProgress", control_plane(derived(), changed=True)),
        "a control plane that is deleted": State("Terminating", control_plane(derived(lost=lost), **DELETED)),
        "a Machine without a server": State("InProgress", capi_machine(machines.observed())),
        "a Machine that runs": State("Current", capi_machine(machines.running())),
        "a Machine whose cluster is silent": State(
            "InProgress",
            capi_machine(machines.running(node=NodeView(Link(connected=False, last_success=NOW - 600), None))),
        ),
        "a Machine that was changed a moment ago": State("InProgress", capi_machine(machines.running(), changed=True)),
        "a Machine that is deleted": State(
            "Terminating",
            capi_machine(
                machines.running(
                    deleting(status=machines.RUNNING), deleting=Deleting(MachineDeletionStage.DRAIN, "a Pod stays")
                )
            ),
        ),
        "a server that is created": State("InProgress", driver_machine(creating)),
        "a server whose creation failed and is tried again": State("InProgress", driver_machine(creating, failed)),
        "a server that is tried no more": State("Failed", driver_machine(creating, failed, given_up)),
        "a server that exists": State("Current", driver_machine(creating, driver_status.provisioned)),
        "a server that cannot be removed": State("Terminating", driver_machine(cannot_go, **DELETED)),
    }


@pytest.fixture(scope="module")
def judged() -> Mapping[str, Json]:
    (program,) = require_peer("kstatus")
    objects = {name: state.object for name, state in states().items()}
    said = subprocess.run(
        [program], input=b"\n".join(map(msgspec.json.encode, objects.values())), capture_output=True, check=False
    )
    assert said.returncode == 0, said.stderr.decode()
    return dict(zip(objects, map(json.loads, said.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", states())
def test_kstatus_computes_expected_status(judged: Mapping[str, Json], name: str) -> None:
    assert judged[name]["status"] == states()[name].expected, judged[name]["message"]
