"""The status word of a cluster: each one from the conditions that lead to it, and Ready from nothing that is stale."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi import health
from remuda.provisioning.cluster_summary import ClusterSummary, summarize

Json = dict[str, Any]

MADE, INITIALIZED, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z", "2026-01-02T00:00:00Z"


def said(type: str, status: str, reason: str = "", message: str = "", since: str = LATER) -> Json:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def declared(*conditions: Json, seen: int = 2, **metadata: Any) -> Json:
    pools = [
        {"name": "servers", "quantity": 1, "machineConfigRef": {"kind": "ProcessConfig"}},
        {"name": "workers", "machineConfigRef": {"kind": "NspawnConfig"}},
    ]
    return {
        "kind": "Cluster",
        "metadata": {"name": "prairie", "generation": 2, "creationTimestamp": MADE, **metadata},
        "spec": {"kubernetesVersion": "v1.36.4+k3s1", "rkeConfig": {"machinePools": pools}},
        "status": {"conditions": list(conditions), "observedGeneration": seen, "clusterName": "c-m-1"},
    }


def cluster(*, initialized: bool = True, **spec: Any) -> Json:
    began = said("ControlPlaneInitialized", "True" if initialized else "False", since=INITIALIZED)
    return {"kind": "Cluster", "metadata": {"name": "prairie"}, "spec": spec, "status": {"conditions": [began]}}


def machine(name: str, *, ready: bool = True, created: str = MADE, **metadata: Any) -> Json:
    return {
        "kind": "Machine",
        "metadata": {"name": name, "creationTimestamp": created, **metadata},
        "status": {
            "conditions": [said("Ready", "True" if ready else "False", message="* NodeHealthy: no Node yet")],
            **({"nodeRef": {"name": name}} if ready else {}),
        },
    }


READY = said("Ready", "True")
BOTH = [machine("a"), machine("b")]


def test_cluster_is_ready_when_verdict_is_good_and_machines_are_complete() -> None:
    assert summarize(declared(READY), cluster(), BOTH) == ClusterSummary(
        name="prairie",
        namespace="",
        status="Ready",
        ready_machines=2,
        machines=2,
        version="v1.36.4+k3s1",
        driver="process,nspawn",
        created=MADE,
        id="c-m-1",
    )


@pytest.mark.parametrize(
    ("root", "below", "machines", "word", "reason"),
    [
        pytest.param(declared(), None, [], "Creating", "waiting for the first reconcile", id="new"),
        pytest.param(
            declared(said("Ready", "False", "Waiting", "waiting for machine a", since=MADE)),
            cluster(initialized=False),
            [],
            "Creating",
            "waiting for machine a",
            id="before the control plane",
        ),
        pytest.param(
            declared(said("Ready", "False", "Waiting", "waiting for plans", since=MADE)),
            cluster(),
            BOTH,
            "Creating",
            "waiting for plans",
            id="never ready",
        ),
        pytest.param(
            declared(said("Ready", "False", "Waiting", "waiting for plans")),
            cluster(),
            BOTH,
            "Updating",
            "waiting for plans",
            id="ready before",
        ),
        pytest.param(
            declared(said("Ready", "Unknown", "WaitingForProbes", "Machine c: waiting for probes; it continues")),
            cluster(),
            BOTH,
            "Updating",
            "Machine c: waiting for probes",
            id="a wait that nobody knows the end of",
        ),
        pytest.param(
            declared(READY, seen=1),
            cluster(),
            BOTH,
            "Updating",
            "waiting for its controller to reconcile the last change",
            id="stale verdict",
        ),
        pytest.param(
            declared(READY),
            cluster(),
            [machine("a"), machine("b", ready=False, created=LATER)],
            "Updating",
            "waiting for Machine b: NodeHealthy: no Node yet",
            id="a machine comes",
        ),
        pytest.param(
            declared(READY),
            cluster(),
            [*BOTH, machine("c", deletionTimestamp=LATER)],
            "Updating",
            "Machine c is being deleted",
            id="a machine goes",
        ),
        pytest.param(
            declared(READY), cluster(), [machine("a")], "Updating", "1 of 2 machines are ready", id="machines missing"
        ),
        pytest.param(
            declared(said("Ready", "Unknown", health.API_SILENT, "API has not answered\nmore")),
            cluster(),
            BOTH,
            "Degraded",
            "API has not answered",
            id="silent",
        ),
        pytest.param(
            declared(said("Ready", "False", health.NODE_NOT_READY, "Machine b: Node b is not ready; also c")),
            cluster(),
            BOTH,
            "Degraded",
            "Machine b: Node b is not ready; also c",
            id="a node is lost",
        ),
        pytest.param(
            declared(READY),
            None,
            BOTH,
            "Degraded",
            "the Cluster of cluster.x-k8s.io does not exist",
            id="deleted below",
        ),
        pytest.param(
            declared(said("Ready", "False", "BadOptions", "no such ami"), said("Stalled", "True", "x", "no such ami")),
            cluster(initialized=False),
            [],
            "Stuck",
            "no such ami",
            id="stalled",
        ),
        pytest.param(
            declared(READY, said("Held", "True", "x", "pool workers would be replaced")),
            cluster(),
            BOTH,
            "Stuck",
            "pool workers would be replaced",
            id="held",
        ),
        pytest.param(
            declared(READY),
            cluster(paused=True),
            BOTH,
            "Paused",
            "controllers do not change it, and its state may be out of date",
            id="paused",
        ),
        pytest.param(
            declared(said("Removed", "Unknown", "x", "waiting for 2 machines"), deletionTimestamp=LATER),
            cluster(),
            BOTH,
            "Deleting",
            "waiting for 2 machines",
            id="deleting",
        ),
    ],
)
def test_status_word_follows_conditions(
    root: Json, below: Json | None, machines: list[Json], word: str, reason: str
) -> None:
    found = summarize(root, below, machines)
    assert (found.status, found.reason) == (word, reason)


def test_cluster_without_declaration_is_summarized_from_cluster_api() -> None:
    below = cluster()
    below["status"]["conditions"].append(said("Available", "True"))
    below["status"] |= {"controlPlane": {"desiredReplicas": 1}, "workers": {"desiredReplicas": 2}}
    machines = [{**one, "spec": {"version": "v1.35.2", "infrastructureRef": {"kind": "SimMachine"}}} for one in BOTH]
    found = summarize(None, below, machines)
    assert (found.status, found.ready_machines, found.machines) == ("Updating", 2, 3)
    assert (found.version, found.driver) == ("v1.35.2", "sim")


def test_machines_that_may_not_be_listed_are_unknown() -> None:
    found = summarize(declared(READY), cluster(), None)
    assert (found.status, found.ready_machines, found.machines) == ("Ready", None, 2)


def test_autoscaled_pool_counts_its_existing_machines() -> None:
    root = declared(READY)
    root["spec"]["rkeConfig"]["machinePools"][1] |= {"autoscalingMinSize": 1, "autoscalingMaxSize": 9}
    labels = {"cluster.x-k8s.io/deployment-name": "prairie-workers"}
    found = summarize(root, cluster(), [machine("a"), *(machine(name, labels=labels) for name in "bcd")])
    assert (found.status, found.ready_machines, found.machines) == ("Ready", 4, 4)
