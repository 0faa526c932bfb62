"""What a control plane says: which servers can be asked, whether its cluster is alive, and how many servers it has."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.capi.types import Machine, MachineInitialization, MachineStatus, NodeReference
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Condition, ObjectMeta
from remuda.kube.wait import Wait
from remuda.providers.controlplane import kubeconfig, status
from remuda.providers.controlplane.authorities import Authorities
from remuda.providers.controlplane.planner.decision import Decision, HostStatus
from remuda.providers.controlplane.planner.observation import (
    EtcdMember,
    Observation,
    ObservedHost,
    ObservedNode,
    PlanReport,
    Pool,
    Roles,
)
from remuda.providers.controlplane.status import ControlPlaneStatusInputs
from remuda.runtime.remote import Connection
from tests.unit.providers.controlplane.planner import plans, scene

NAMES = ("one", "two", "three")


def server(
    name: str, *, dead: Sequence[str] = (), members: Sequence[str] = NAMES, well: bool = True, deleting: bool = False
) -> ObservedHost:
    """That calls those dead."""
    view = [EtcdMember(f"{one}-1a2b3c4d", f"10.0.0.{NAMES.index(one) + 1}", healthy=one not in dead) for one in members]
    return ObservedHost(
        name=name, namespace="d", uid=name, created=0, roles=Roles(etcd=True, control_plane=True), node_name=name,
        internal_addresses=[f"10.0.0.{NAMES.index(name) + 1}"], deleting_since=1.0 if deleting else None,
        report=PlanReport(plan=b"p", applied=b"p", probes={"kube-apiserver": well}, members=view),
    )  # fmt: skip


def of(hosts: Sequence[ObservedHost], version: str = plans.VERSION) -> Observation:
    return Observation(cluster=plans.cluster(version=version), hosts=hosts, now=0.0)


def names(hosts: Sequence[ObservedHost]) -> list[str]:
    return [host.name for host in status.serving(of(hosts))]


def test_healthy_servers_serve_and_deleting_ones_come_last() -> None:
    assert names([server("one", deleting=True), server("two", well=False), server("three")]) == ["three", "one"]


def test_server_called_dead_by_all_others_does_not_serve() -> None:
    hosts = [server("one"), server("two", dead=["one"]), server("three", dead=["one"])]
    assert names(hosts) == ["two", "three"]
    where = kubeconfig.endpoint(None, None, status.serving(of(hosts)), 6443, "10.0.0.1:6443")
    assert str(where) == "10.0.0.2:6443"


def test_server_that_calls_all_others_dead_is_not_believed() -> None:
    assert names([server("one", dead=["two", "three"]), server("two"), server("three")]) == ["one", "two", "three"]


def test_server_missing_from_member_list_serves() -> None:
    rest = ("two", "three")
    assert names([server(one, members=rest) for one in NAMES]) == ["one", "two", "three"]


def test_rke2_api_server_serves_while_its_unit_restarts() -> None:
    host = server("one")
    probes = {"kube-apiserver": True, "rke2-server": False}
    host = msgspec.structs.replace(host, report=msgspec.structs.replace(host.report, probes=probes))
    assert status.serving(of([host], "v1.36.4+rke2r1")) == [host]
    assert status.serving(of([host])) == []


# ---- alive, and as declared

NOW = 5000.0
CONNECTED = Connection(connected=True, since=1.0, last_success=NOW - 3, error="")
SILENT = Connection(since=1.0, last_success=NOW - 60, failures=5, error="no route")
WAITS = [Wait(reason="WaitingForProbes", on=f"Machine d/{name}", missing="waiting for probes: etcd") for name in NAMES]


def machine(name: str, node: str = "True", reason: str = "NodeReady", message: str = "") -> Machine:
    said = [condition(type, node == "True", type) for type in ("Ready", "Available")]
    said.append(condition("NodeReady", node, reason, message))
    return Machine(
        metadata=ObjectMeta(name=name, namespace="d"),
        status=MachineStatus(
            conditions=said,
            node_ref=NodeReference(name=name),
            initialization=MachineInitialization(infrastructure_provisioned=True),
        ),
    )


DEAD = machine("two", "Unknown", "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status.")


def judged(
    *waits: Wait,
    connection: Connection = CONNECTED,
    machines: Sequence[Machine] = (machine("one"), machine("two"), machine("three")),
    before: Sequence[Condition] = (),
    lost: Wait | None = None,
    pools: Sequence[Pool] = (),
) -> ControlPlaneStatusInputs:
    hosts = [server(name) for name in NAMES]
    return ControlPlaneStatusInputs(
        observed=Observation(
            cluster=scene.three_servers().cluster, hosts=hosts, pools=pools, now=NOW, initialized=True, reachable=True
        ),
        decision=Decision(
            waits=waits,
            lost=lost,
            stage="configuring etcd node(s) one" if waits else "",
            initialized=True,
            hosts={host.name: HostStatus(phase="ready", up_to_date=True) for host in hosts[:2]},
        ),
        authorities=Authorities(),
        connection=connection,
        machines=machines,
        before=before,
    )


def said(seen: ControlPlaneStatusInputs, type: str = "Ready") -> tuple[str, str, str]:
    found = conditions.find(status.derive(seen).conditions, type)
    assert found is not None
    return found.status, found.reason, found.message


def test_healthy_control_plane_is_ready_and_available() -> None:
    assert said(judged()) == ("True", "Ready", "")
    assert said(judged(), "Available") == ("True", "Available", "")
    assert status.derive(judged()).look_again is None


def test_ready_lists_all_waits_and_reconciled_the_first() -> None:
    seen = judged(*WAITS)
    assert said(seen, "Stalled")[0] == "False"
    state, reason, message = said(seen)
    assert (state, reason) == ("Unknown", "WaitingForProbes")
    assert message.split("\n") == ["configuring etcd node(s) one", *map(str, WAITS)]
    assert said(seen, "Reconciled")[2] == f"{WAITS[0]} (and 2 more)"


def test_dead_node_is_reported_before_waits() -> None:
    state, reason, message = said(judged(*WAITS, machines=[machine("one"), DEAD]))
    assert (state, reason) == ("False", "NodeNotReady")
    assert message.split("\n")[0] == "Machine two: Node two is not ready: Kubelet stopped posting node status."
    assert len(message.split("\n")) == 5


def test_silent_api_makes_ready_and_available_unknown() -> None:
    for type in ("Ready", "Available"):
        state, reason, message = said(judged(machines=[DEAD], connection=SILENT), type)
        assert (state, reason) == ("Unknown", "APISilent")
        assert message.endswith(": no route")


def test_lost_quorum_is_reported_once_in_each_condition() -> None:
    lost = Wait(reason="QuorumLost", on="etcd of d/c", missing="quorum is lost", then="start two again")
    seen = judged(lost, *WAITS, lost=lost, connection=SILENT)
    for type in ("Available", "Stable"):
        assert said(seen, type) == ("False", "QuorumLost", str(lost))
    assert said(seen, "Stalled") == ("True", "QuorumLost", str(lost))
    state, reason, message = said(seen)
    assert (state, reason) == ("False", "QuorumLost")
    assert message.count("quorum is lost") == 1


def test_rejected_spec_stalls_control_plane() -> None:
    refused = Wait(reason="InvalidSpec", on="RKEControlPlane d/c", missing="spec.kubernetesVersion: no such version")
    found = {one.type: one for one in status.undecided((), refused)}
    for type, expected in (("Ready", "False"), ("Stalled", "True")):
        assert (found[type].status, found[type].reason, found[type].message) == (expected, "InvalidSpec", str(refused))
    waiting = {one.type: one.status for one in status.undecided((), WAITS[0])}
    assert (waiting["Ready"], waiting["Stalled"]) == ("Unknown", "False")


def test_restart_keeps_previous_conditions_unless_waiting() -> None:
    before = [condition("Ready", True, "Ready"), condition("Available", True, "Available")]
    unasked = Connection(since=NOW - 10, failures=1, error="not yet")
    assert said(judged(before=before, connection=unasked)) == ("True", "Ready", "")
    assert said(judged(before=before, connection=unasked), "Available") == ("True", "Available", "")
    assert said(judged(*WAITS, before=before, connection=unasked))[0] == "Unknown"
    dead = [condition("Ready", False, "NodeNotReady", "Machine two: dead\nand more"), before[1]]
    assert said(judged(*WAITS, before=dead, connection=unasked)) == (
        "False",
        "NodeNotReady",
        "Machine two: dead\nand more",
    )


def test_uninitialized_conditions_are_not_kept_after_restart() -> None:
    before = [condition("Available", False, "NotInitialized", "no server"), condition("Ready", "Unknown", "Waiting")]
    unasked = Connection(since=NOW - 1)
    assert said(judged(before=before, connection=unasked)) == (
        "Unknown",
        "WaitingForAPI",
        "the API server has not answered this manager yet",
    )
    assert said(judged(*WAITS, before=before, connection=unasked))[1] == "WaitingForProbes"


def test_ready_waits_for_pool_machines_and_their_nodes() -> None:
    pools = [Pool(name="workers", roles=Roles(worker=True), replicas=2)]
    assert said(judged(pools=pools))[:2] == ("Unknown", "WaitingForMachines")
    joining = machine("two", "Unknown", "InspectionFailed", "Waiting for a Node with spec.providerID x to exist")
    state, reason, message = said(judged(machines=[joining]))
    assert (state, reason) == ("Unknown", "WaitingForNode")
    assert "Machine d/two: Waiting for a Node with spec.providerID x" in message


def test_status_counts_server_replicas() -> None:
    seen = judged(machines=[machine("one"), DEAD, machine("worker")])
    assert status.counts(seen) == {
        "replicas": 2,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "upToDateReplicas": 2,
    }


def test_status_lists_node_versions_lowest_first() -> None:
    seen = judged()
    running = ("v1.36.4+k3s1", "v1.36.10+k3s1", "v1.36.10+k3s1")
    hosts = [
        msgspec.structs.replace(host, node=ObservedNode(name=host.name, kubelet_version=version))
        for host, version in zip(seen.observed.hosts, running, strict=True)
    ]
    seen = msgspec.structs.replace(seen, observed=msgspec.structs.replace(seen.observed, hosts=hosts))
    found = status.counts(seen)
    assert found["version"] == "v1.36.4+k3s1"
    assert found["versions"] == [
        {"version": "v1.36.4+k3s1", "replicas": 1},
        {"version": "v1.36.10+k3s1", "replicas": 2},
    ]
