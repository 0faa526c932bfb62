"""The object that holds a cluster up, and what comes next, in states that need a person: a table of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from remuda.kube.objects import ObjectMeta
from remuda.kube.wait import Wait
from remuda.providers.controlplane import status as controlplane_status
from remuda.providers.machine import status as machine_status
from remuda.providers.shared.jobs.budget import BAD_OPTIONS, TOO_MANY_FAILURES, Stall
from remuda.providers.shared.types.machine import (
    CREDENTIAL_FORBIDDEN,
    CREDENTIAL_NOT_FOUND,
    NEEDS_JOB_RUNNER,
    OUT_OF_REACH,
    DriverMachineStatus,
)
from remuda.provisioning import blocker, tree
from remuda.provisioning import status as provisioning_status
from remuda.provisioning.status import ClusterStatusInputs, Problem
from remuda.provisioning.tree import Branch
from remuda.provisioning.types import Cluster

Json = dict[str, Any]
Said = tuple[str, str, str, str]  # type, status, reason, message

BEFORE, THEN, LATER = "2026-01-02T03:00:00Z", "2026-01-02T03:04:05Z", "2026-01-02T03:10:00Z"
PLACE = "fleet-default"
MACHINE, SERVER = "prairie-w-1", "NspawnMachine"
GROUPS = {
    "Machine": "cluster.x-k8s.io/v1beta2",
    "MachineSet": "cluster.x-k8s.io/v1beta2",
    "MachineDeployment": "cluster.x-k8s.io/v1beta2",
    SERVER: "rke-machine.cattle.io/v1",
    "RKEControlPlane": "rke.cattle.io/v1",
    "RKECluster": "rke.cattle.io/v1",
    "Secret": "v1",
    "Namespace": "v1",
}
DELETED = {"deletionTimestamp": BEFORE}
OWNED = {"ownerReferences": [{"kind": "MachineSet", "controller": True}]}
HAD_SERVER = {"initialization": {"infrastructureProvisioned": True}}


def obj(kind: str, name: str, *said: Said, group: str = "", status: Json | None = None, **metadata: object) -> Json:
    conditions = [
        {"type": type, "status": value, "reason": reason, "message": message, "lastTransitionTime": THEN}
        for type, value, reason, message in said
    ]
    place = {} if kind == "Namespace" else {"namespace": PLACE}
    return {
        "apiVersion": group or GROUPS[kind],
        "kind": kind,
        "metadata": {"name": name, **place, **metadata},
        "status": {**(status or {}), "conditions": conditions},
    }


def declared(*below: Branch, said: Said = ("Ready", "Unknown", "Waiting", "waits"), **metadata: object) -> Branch:
    return tree.branch(obj("Cluster", "prairie", said, group="provisioning.cattle.io/v1", **metadata), below)


def capi(
    *below: Branch,
    said: Said = ("Available", "False", "NotAvailable", ""),
    paused: bool = False,
    **metadata: object,
) -> Branch:
    made = obj("Cluster", "prairie", said, group="cluster.x-k8s.io/v1beta2", **metadata)
    return tree.branch({**made, "spec": {"paused": paused}}, below)


def plane(said: Said = ("Ready", "Unknown", "Waiting", "non-ready machine(s)"), **metadata: object) -> Branch:
    return tree.branch(obj("RKEControlPlane", "prairie", said, **metadata))


def infrastructure(**metadata: object) -> Branch:
    return tree.branch(obj("RKECluster", "prairie", ("Ready", "True", "Provisioned", ""), **metadata))


def pool(*machines: Branch, said: tuple[Said, ...] = (), **metadata: object) -> Branch:
    low: Said = ("Available", "False", "NotAvailable", "0 available replicas, at least 1 required")
    return tree.branch(obj("MachineDeployment", "prairie-w", low, *said, **metadata), machines)


def machine(*said: Said, part: Branch | None = None, status: Json | None = None, **metadata: object) -> Branch:
    low: Said = ("Ready", "False", "NotReady", "its server is not ready")
    made = obj("Machine", MACHINE, low, *said, status=status, **metadata)
    return tree.branch(made, [] if part is None else [tree.part_of_machine(made, part)])


def server(*said: Said, **metadata: object) -> Branch:
    return tree.branch(obj(SERVER, MACHINE, *said, **metadata))


def gone_server(*, provisioned: bool = True) -> Branch:
    owner = obj("Machine", MACHINE, status=HAD_SERVER if provisioned else {}, **OWNED)
    found = tree.missing(SERVER, MACHINE, owner, declared=True)
    assert found is not None
    return found


class Case(NamedTuple):
    root: Callable[[], Branch]
    leaf: str
    message: str  # part of what is told
    then: str  # part of what comes next
    reason: str = ""


DELETE_FAILED: Said = ("DeleteJob", "False", "DeleteError", "attempt 2 to remove the server failed: no route to host")
FINALIZER = "backup.example.com/hold"
ELEMENTAL = "machineinventoryselectortemplates.elemental.cattle.io"
NO_KIND = (
    f"there is no CustomResourceDefinition {ELEMENTAL}: is the provider of MachineInventorySelectorTemplate installed?"
)


def blocked(why: str, reason: str = "ScalingUpBlocked") -> tuple[Said, ...]:
    return (("ScalingUp", "True", reason, f"Scaling up from 0 to 1 replicas is blocked because:\n* {why}"),)


QUORUM: Said = (
    "Ready",
    "False",
    "QuorumLost",
    f"etcd has lost quorum: server-2, server-3 are dead (since {LATER}); start server-2 or server-3 again, "
    "or restore a snapshot; see remuda machine logs server-2",
)

CASES = {
    "a failed removal in a deletion, while other parts are gone": Case(
        lambda: declared(
            capi(
                plane(("Deleting", "True", "WaitingForMachineDeletion", f"Waiting for Machines: {MACHINE}"), **DELETED),
                pool(
                    machine(
                        ("Deleting", "True", "WaitingForInfrastructureDeletion", "the server is deleted"),
                        part=server(DELETE_FAILED, **DELETED, finalizers=["remuda.dev/machine"]),
                        **DELETED,
                    ),
                    **DELETED,
                ),
                **DELETED,
            ),
            said=("Removed", "Unknown", "Waiting", "still there"),
            **DELETED,
        ),
        f"{SERVER} {MACHINE}",
        "no route to host",
        "provisioning.cattle.io/force-machine-remove=true",
        "DeleteError",
    ),
    "a foreign finalizer on a Machine": Case(
        lambda: declared(
            capi(plane(**DELETED), pool(machine(**DELETED, finalizers=[FINALIZER]), **DELETED), **DELETED), **DELETED
        ),
        f"Machine {MACHINE}",
        FINALIZER,
        f"the program that set {FINALIZER} must remove it",
        "ForeignFinalizer",
    ),
    "a foreign finalizer on a server": Case(
        lambda: declared(
            capi(
                pool(machine(part=server(**DELETED, finalizers=["wrangler.cattle.io/rke-machine"]), **DELETED)),
                **DELETED,
            ),
            **DELETED,
        ),
        f"{SERVER} {MACHINE}",
        "wrangler.cattle.io/rke-machine",
        f"kubectl patch nspawnmachines.rke-machine.cattle.io {MACHINE} -n {PLACE}",
        "ForeignFinalizer",
    ),
    "a foreign finalizer on a MachineSet": Case(
        lambda: declared(
            capi(
                pool(tree.branch(obj("MachineSet", "prairie-w-x", **DELETED, finalizers=[FINALIZER])), **DELETED),
                **DELETED,
            ),
            **DELETED,
        ),
        "MachineSet prairie-w-x",
        FINALIZER,
        "must remove it",
    ),
    "a foreign finalizer on a Secret of a namespace that goes": Case(
        lambda: declared(
            tree.branch(
                obj(
                    "Namespace",
                    PLACE,
                    ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", f"{FINALIZER} in 1 resource"),
                    **DELETED,
                ),
                [tree.branch(obj("Secret", "cloud", **DELETED, finalizers=[FINALIZER]))],
            ),
            **DELETED,
        ),
        "Secret cloud",
        FINALIZER,
        f"kubectl patch secrets cloud -n {PLACE}",
        "ForeignFinalizer",
    ),
    "a foreign finalizer on a namespace": Case(
        lambda: declared(tree.branch(obj("Namespace", "c-m-1", **DELETED, finalizers=[FINALIZER])), **DELETED),
        "Namespace c-m-1",
        FINALIZER,
        "kubectl patch namespaces c-m-1 --type merge",
        "ForeignFinalizer",
    ),
    "an infrastructure template whose kind is not installed": Case(
        lambda: declared(capi(infrastructure(), plane(), pool(said=blocked(NO_KIND)))),
        "MachineDeployment prairie-w",
        NO_KIND,
        f"install the provider that has {ELEMENTAL}",
        "ScalingUpBlocked",
    ),
    "an infrastructure template that does not exist": Case(
        lambda: declared(
            capi(infrastructure(), plane(), pool(said=blocked("NspawnMachineTemplate fleet-default/x does not exist")))
        ),
        "MachineDeployment prairie-w",
        "fleet-default/x does not exist",
        "create NspawnMachineTemplate fleet-default/x",
    ),
    "a quota": Case(
        lambda: declared(
            capi(
                plane(),
                pool(said=blocked("exceeded quota: few, requested: count/m=1, used: count/m=3, limited: count/m=3")),
            ),
            said=("Stalled", "True", "QuotaExceeded", "pool w: cannot create machines"),
        ),
        "MachineDeployment prairie-w",
        "exceeded quota: few",
        f"raise the ResourceQuota few of namespace {PLACE}",
    ),
    "a webhook that refuses": Case(
        lambda: declared(
            capi(
                plane(),
                pool(
                    said=blocked('cannot create Machines: admission webhook "names.example.com" denied the request: no')
                ),
            )
        ),
        "MachineDeployment prairie-w",
        "denied the request",
        "webhook names.example.com denies",
    ),
    "a webhook that does not answer": Case(
        lambda: declared(
            said=(
                "Ready",
                "False",
                "Failed",
                'failed calling webhook "w.example.com": connection refused; the controller retries',
            )
        ),
        "Cluster prairie",
        "connection refused",
        "make webhook w.example.com answer",
    ),
    "a pause of the Cluster": Case(
        lambda: declared(
            capi(
                plane(("Paused", "True", "Paused", "spec.paused of the Cluster is true")),
                pool(said=(("Paused", "True", "Paused", "spec.paused of the Cluster is true"),)),
                said=("Paused", "True", "Paused", "spec.paused of the Cluster is true"),
                paused=True,
            )
        ),
        "Cluster prairie",
        "spec.paused",
        f'kubectl patch clusters.cluster.x-k8s.io prairie -n {PLACE} --type merge -p \'{{"spec":{{"paused":false}}}}\'',
    ),
    "a pause of one Machine, in a deletion": Case(
        lambda: declared(
            capi(
                pool(
                    machine(
                        ("Paused", "True", "Paused", "the object has the annotation cluster.x-k8s.io/paused"),
                        **DELETED,
                        finalizers=["machine.cluster.x-k8s.io"],
                        annotations={"cluster.x-k8s.io/paused": ""},
                    ),
                    **DELETED,
                ),
                **DELETED,
            ),
            **DELETED,
        ),
        f"Machine {MACHINE}",
        "annotation cluster.x-k8s.io/paused",
        f"kubectl annotate machines.cluster.x-k8s.io {MACHINE} -n {PLACE} cluster.x-k8s.io/paused-",
    ),
    "a server object that somebody deleted": Case(
        lambda: declared(
            capi(plane(), pool(tree.branch(obj("Machine", MACHINE, status=HAD_SERVER, **OWNED), [gone_server()])))
        ),
        f"{SERVER} {MACHINE}",
        "does not exist",
        f"delete Machine {MACHINE} (remuda delete machine {MACHINE} -n {PLACE}): its MachineSet creates another",
    ),
    "a server object that somebody is deleting": Case(
        lambda: declared(
            capi(
                plane(),
                pool(
                    machine(
                        part=server(
                            (
                                "DeleteJob",
                                "Unknown",
                                "Removing",
                                "removing the server; its log: remuda machine logs x -n y",
                            ),
                            **DELETED,
                            finalizers=["remuda.dev/machine"],
                        ),
                        status=HAD_SERVER,
                        **OWNED,
                    )
                ),
            )
        ),
        f"{SERVER} {MACHINE}",
        "removing the server",
        f"delete Machine {MACHINE}",
    ),
    "a machine that nobody tries to create any more": Case(
        lambda: declared(
            capi(
                plane(),
                pool(machine(part=server(("Stalled", "True", "TooManyFailures", "5 attempts failed: quota exceeded")))),
            )
        ),
        f"{SERVER} {MACHINE}",
        "quota exceeded",
        f"nspawnmachines.rke-machine.cattle.io {MACHINE} -n {PLACE} --overwrite remuda.dev/retry=$(date +%s)",
        "TooManyFailures",
    ),
    "lost quorum, beside a machine in trouble": Case(
        lambda: declared(
            capi(
                tree.branch(obj("RKECluster", "prairie", ("Stalled", "True", "BadOptions", "no such network"))),
                plane(QUORUM),
                pool(machine(part=server(("Stalled", "True", "TooManyFailures", "5 consecutive attempts failed")))),
                said=QUORUM,
            ),
            said=QUORUM,
        ),
        "RKEControlPlane prairie",
        "server-2, server-3 are dead",
        "start server-2 or server-3 again, or restore a snapshot; see remuda machine logs server-2",
        "QuorumLost",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_blocker_is_object_that_needs_intervention(case: Case) -> None:
    chain = blocker.blocking(case.root())
    leaf = chain[-1]
    assert str(leaf) == case.leaf
    assert case.message in leaf.judgement.message
    assert case.then in blocker.then(chain)
    assert case.reason in ("", leaf.judgement.reason)
    assert leaf.judgement.since or leaf.judgement.reason == tree.NOT_FOUND
    assert "see " in blocker.then(chain) or "its log: " in blocker.then(chain)


def test_lost_quorum_is_never_reported_as_self_healing() -> None:
    for message in (
        "etcd has lost quorum",
        f"quorum lost (since {THEN}); the planner continues by itself when they are healthy",
    ):
        chain = blocker.blocking(declared(capi(plane(("Ready", "False", "QuorumLost", message)))))
        assert chain[-1].judgement.reason == "QuorumLost"
        assert "by itself when" not in blocker.then(chain)
        assert "restore the cluster from a snapshot" in blocker.then(chain)


def test_missing_object_below_deleted_owner_is_ignored() -> None:
    assert tree.missing("RKECluster", "prairie", obj("Cluster", "prairie", group="x/v1", **DELETED)) is None


def test_object_recreated_by_controller_is_no_trouble() -> None:
    gone = tree.missing("RKECluster", "prairie", obj("Cluster", "prairie", group="x/v1"), declared=True)
    assert gone is not None
    assert not gone.judgement.trouble
    assert "recreates it" in blocker.then([gone])


def test_unprovisioned_machine_gets_server_from_machine_set() -> None:
    found = gone_server(provisioned=False)
    assert not found.judgement.trouble
    assert "its MachineSet creates it" in blocker.then([found])


def test_uninstalled_kind_advises_installing_provider() -> None:
    gone = tree.missing("DockerCluster", "c", obj("Cluster", "c", group="x/v1"), installed=False)
    assert gone is not None
    assert "its kind is not installed" in gone.judgement.message
    assert "install the provider of DockerCluster" in blocker.then([gone])


def test_deletion_blocker_prefers_machines_over_control_plane() -> None:
    going: Said = ("Deleting", "True", "DrainingNode", "2 Pods are left")
    root = declared(
        capi(
            tree.branch(obj("RKECluster", "prairie", ("Ready", "False", "Waiting", "no endpoint"))),
            plane(("Deleting", "True", "WaitingForMachineDeletion", "waits"), **DELETED),
            pool(machine(going, **DELETED, finalizers=["machine.cluster.x-k8s.io"]), **DELETED),
            **DELETED,
        ),
        **DELETED,
    )
    assert str(blocker.blocking(root)[-1]) == f"Machine {MACHINE}"


def test_started_deletion_does_not_blame_objects_not_yet_deleted() -> None:
    said: Said = ("Deleting", "True", "WaitingForWorkersDeletion", "* MachineDeployment: prairie-w")
    root = declared(capi(plane(), pool(machine()), said=said, **DELETED), **DELETED)
    assert blocker.blocking(root)[-1].judgement.reason == "WaitingForWorkersDeletion"


def test_finalizer_of_the_kinds_own_controller_is_not_foreign() -> None:
    for kind, finalizer in (
        ("Machine", "machine.cluster.x-k8s.io"),
        (SERVER, "remuda.dev/machine"),
        ("RKEControlPlane", "rke.cattle.io/rkecontrolplane"),
        ("Secret", "foregroundDeletion"),
    ):
        said = tree.judge(obj(kind, "x", **DELETED, finalizers=[finalizer, FINALIZER]))
        assert (said.trouble, said.reason) == (False, ""), finalizer


def test_preflight_check_is_no_trouble() -> None:
    waits = blocked(
        'RKEControlPlane prairie is provisioning ("ControlPlaneIsStable" preflight check failed)', "ScalingUp"
    )
    assert not pool(said=waits).judgement.trouble


def test_control_plane_quoting_pool_rejection_is_not_blamed() -> None:
    refused = 'admission webhook "x.example" denied the request: no'
    quoting = plane(("Ready", "Unknown", "Waiting", f"MachineDeployment {PLACE}/prairie-w: {refused}"))
    root = declared(capi(quoting, pool(said=blocked(f"cannot create Machines: {refused}"))))
    assert str(blocker.blocking(root)[-1]) == "MachineDeployment prairie-w"


def test_since_comes_from_wait_message_not_older_condition() -> None:
    text = f"Machine {PLACE}/{MACHINE}: waiting for probes: kubelet (since {LATER}); see remuda machine logs"
    assert plane(("Ready", "Unknown", "WaitingForProbes", text)).judgement.since == LATER


def test_stall_is_recognised_by_reason_not_message() -> None:
    stalled = tree.judge(obj("MachineDeployment", "w", ("ScalingUp", "True", "ScalingUpBlocked", "in other words")))
    assert (stalled.trouble, stalled.state, stalled.message) == (True, "stalled", "in other words")
    going = tree.judge(obj("MachineDeployment", "w", *blocked("no quota", "ScalingUp")))
    assert (going.trouble, going.state) == (False, "waiting")


# ---- permanent failures ----------------------------------------------------------------------------------------------


def driver_machine(write: Callable[[Json], None]) -> Branch:
    """A server's object with the conditions that the driver machine controller writes."""
    status: Json = {}
    write(status)
    said = [(one["type"], one["status"], one["reason"], one["message"]) for one in status["conditions"]]
    return pool(machine(part=server(*said)))


def control_plane(reason: str) -> Branch:
    """A control plane with the conditions that its controller writes while an input is missing."""
    wait = Wait(reason=reason, on="Secret fleet-default/registry", missing="does not exist", then="create it")
    said = [(one.type, one.status, one.reason, one.message) for one in controlplane_status.undecided((), wait)]
    return tree.branch(obj("RKEControlPlane", "prairie", *said))


def stall(reason: str, message: str) -> Callable[[Json], None]:
    failed = DriverMachineStatus(failures=1, failure_message="AWS rejects the credentials (AuthFailure)")
    return lambda status: machine_status.stalled(status, failed, Stall(reason, message))


QUOTA = 'machines "x" is forbidden: exceeded quota: fleet, requested: count/x=1, used: count/x=2, limited: count/x=2'
PERMANENT: dict[str, Callable[[], Branch]] = {
    "options or credentials that the driver rejects": lambda: driver_machine(stall(BAD_OPTIONS, "rejected")),
    "too many failed attempts": lambda: driver_machine(stall(TOO_MANY_FAILURES, "5 consecutive attempts failed")),
    "a missing credential": lambda: driver_machine(lambda s: machine_status.waits(s, CREDENTIAL_NOT_FOUND, "no")),
    "a credential of others": lambda: driver_machine(lambda s: machine_status.waits(s, CREDENTIAL_FORBIDDEN, "no")),
    "hosts that cannot reach the manager": lambda: driver_machine(
        lambda s: machine_status.waits(s, OUT_OF_REACH, "no")
    ),
    "a driver whose Jobs nobody runs": lambda: driver_machine(
        lambda s: machine_status.waits(s, NEEDS_JOB_RUNNER, "no")
    ),
    "an exhausted quota": lambda: pool(said=blocked(QUOTA)),
    "a kind that is not installed": lambda: pool(said=blocked(NO_KIND)),
    "a missing Secret of the configuration": lambda: control_plane("MissingInput"),
    "a version that the manager does not have": lambda: control_plane("NoArtefacts"),
    "an invalid spec": lambda: control_plane("InvalidSpec"),
    "a lost quorum": lambda: plane(QUORUM),
}


@pytest.mark.parametrize("part", PERMANENT.values(), ids=PERMANENT.keys())
def test_permanent_failure_is_found_and_needs_user(part: Callable[[], Branch]) -> None:
    root = declared(capi(part()))
    leaf = blocker.permanent_failure(root)
    chain = blocker.blocking(root)
    assert leaf is chain[-1]
    assert blocker.actor(chain) == "user"
    assert blocker.next_line(chain).startswith("next: you: ")


def test_declared_cluster_with_invalid_reference_fails_permanently() -> None:
    missing = Problem("Error", "machine pool servers: Secret fleet-default/cloud does not exist")
    status: Json = {}
    cluster = Cluster(metadata=ObjectMeta(name="prairie", namespace=PLACE, generation=2))
    provisioning_status.write(status, cluster, ClusterStatusInputs(not_made=missing))
    made = obj("Cluster", "prairie", group="provisioning.cattle.io/v1", generation=2)
    assert blocker.permanent_failure(tree.branch({**made, "status": status})) is not None
    # The user has changed the Cluster, and the controller has not seen it.
    made["metadata"]["generation"] = 3
    assert blocker.permanent_failure(tree.branch({**made, "status": status})) is None


WAITS: dict[str, Callable[[], Branch]] = {
    "a failed attempt that is repeated": lambda: driver_machine(lambda s: machine_status.waits(s, "CreateError", "no")),
    "a Machine that a rollout replaces": lambda: pool(
        machine(("UpToDate", "False", "NotUpToDate", "template"), part=server(("Stalled", "True", BAD_OPTIONS, "no")))
    ),
    "a webhook that does not answer": lambda: pool(said=blocked('failed calling webhook "quota.example.com": EOF')),
    "a control plane that reports a failed Machine": lambda: plane(("Stalled", "True", "MachineFailed", "no server")),
    "a plan that is retried": lambda: plane(("Ready", "Unknown", "PlanFailed", "attempt 1")),
}


@pytest.mark.parametrize("part", WAITS.values(), ids=WAITS.keys())
def test_failure_that_may_pass_is_not_permanent(part: Callable[[], Branch]) -> None:
    assert blocker.permanent_failure(declared(capi(part()))) is None


def test_deletion_ends_failures_of_objects_that_still_exist() -> None:
    stuck = pool(machine(part=server(("Stalled", "True", BAD_OPTIONS, "no"))))
    assert blocker.permanent_failure(declared(capi(stuck, **DELETED), **DELETED)) is None


def test_removal_with_rejected_credentials_fails_permanently() -> None:
    status: Json = {}
    machine_status.remove_failed(status, DriverMachineStatus(), "job-1", "AuthFailure", True, THEN, "hint")
    said = [(one["type"], one["status"], one["reason"], one["message"]) for one in status["conditions"]]
    part = server(*said, **DELETED, finalizers=["remuda.dev/machine"])
    root = declared(capi(pool(machine(part=part, **DELETED), **DELETED), **DELETED), **DELETED)
    assert blocker.permanent_failure(root) is part


def test_next_names_host_that_applies_its_plan() -> None:
    wait = Wait(reason="WaitingForProbes", on="Machine fleet-default/m", missing="waiting for probes: kubelet")
    chain = blocker.blocking(declared(capi(plane(("Ready", "Unknown", wait.reason, str(wait))))))
    assert blocker.actor(chain) == "host"
    assert blocker.next_line(chain).startswith("next: the host: ")
