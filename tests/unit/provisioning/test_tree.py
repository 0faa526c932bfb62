"""What an object says of itself, and which object everything waits for. States that need a person: `test_blocker`."""

from __future__ import annotations

from typing import Any

from remuda.provisioning import blocker, tree

Json = dict[str, Any]
THEN = "2026-01-02T03:04:05Z"


def thing(kind: str, name: str, *conditions: tuple[str, str, str], **metadata: object) -> Json:
    said = [
        {"type": type, "status": status, "reason": "Because", "message": message, "lastTransitionTime": THEN}
        for type, status, message in conditions
    ]
    return {"kind": kind, "metadata": {"name": name, **metadata}, "status": {"conditions": said}}


def test_object_is_judged_by_its_summary() -> None:
    obj = thing("Machine", "m", ("InfrastructureReady", "False", "no"), ("Ready", "True", ""))
    assert tree.judge(obj).well


def test_waiting_judgement_has_message_and_since() -> None:
    said = tree.judge(thing("Machine", "m", ("Ready", "False", "the server is being made")))
    assert (said.state, said.message, said.since) == ("waiting", "the server is being made", THEN)


def test_held_condition_precedes_ready() -> None:
    said = tree.judge(thing("Cluster", "c", ("Ready", "True", ""), ("Held", "True", "pool w would be replaced")))
    assert (said.state, said.message) == ("held", "pool w would be replaced")


def test_deletion_without_message_names_finalizers() -> None:
    said = tree.judge(thing("Machine", "m", deletionTimestamp=THEN, finalizers=["machine.cluster.x-k8s.io"]))
    assert (said.state, said.message, said.since) == ("deleting", "waiting for machine.cluster.x-k8s.io", THEN)


def test_object_without_summary_is_judged_by_oldest_complaint() -> None:
    obj = thing("RKECluster", "c", ("X", "False", "new"), ("Y", "False", "old"), ("ScalingUp", "False", ""))
    obj["status"]["conditions"][1]["lastTransitionTime"] = "2025-01-01T00:00:00Z"
    assert tree.judge(obj).message == "old"


def test_object_without_status_is_unknown() -> None:
    assert tree.judge({"kind": "Machine", "metadata": {"name": "m"}}).state == "unknown"
    assert tree.judge({"kind": "NspawnConfig", "metadata": {"name": "m"}}).well


def test_blocking_chain_ends_at_root_cause() -> None:
    server = tree.branch(thing("NspawnMachine", "m-1", ("Ready", "False", "the image is not there")))
    waiting = tree.branch(thing("Machine", "m-1", ("Ready", "False", "waits for its server")), [server])
    fine = tree.branch(thing("Machine", "m-0", ("Ready", "True", "")))
    pool = tree.branch(thing("MachineDeployment", "w", ("Available", "False", "1 of 2")), [fine, waiting])
    plane = tree.branch(thing("RKEControlPlane", "c", ("Ready", "True", "")))
    root = tree.branch(thing("Cluster", "c", ("Ready", "False", "not yet")), [plane, pool])
    assert [str(one) for one in blocker.blocking(root)] == [
        "Cluster c",
        "MachineDeployment w",
        "Machine m-1",
        "NspawnMachine m-1",
    ]


def test_ready_cluster_has_no_blocker() -> None:
    assert blocker.blocking(tree.branch(thing("Cluster", "c", ("Ready", "True", "")))) == []


def test_unready_root_with_ready_children_blocks_itself() -> None:
    plane = tree.branch(thing("RKEControlPlane", "c", ("Ready", "True", "")))
    root = tree.branch(thing("Cluster", "c", ("Ready", "False", "no pool has the role etcd")), [plane])
    assert blocker.blocking(root) == [root]


def test_held_object_is_reported_before_waiting_object() -> None:
    waits = tree.branch(thing("RKECluster", "c", ("Ready", "False", "later")))
    held = tree.branch(thing("RKEControlPlane", "c", ("Held", "True", "no quorum")))
    root = tree.branch(thing("Cluster", "c", ("Ready", "False", "")), [waits, held])
    assert blocker.blocking(root)[-1] is held


def _cluster_whose_control_plane_says(message: str, *, server_ready: str) -> tree.Branch:
    server = tree.branch(thing("NspawnMachine", "c-w-1", ("Ready", server_ready, "the image is not there")))
    machine = tree.branch(thing("Machine", "c-w-1", ("Ready", "False", "waits for its server")), [server])
    pool = tree.branch(thing("MachineDeployment", "c-w", ("Available", "False", "0 of 1")), [machine])
    plane = tree.branch(thing("RKEControlPlane", "c", ("Ready", "False", message)))
    return tree.branch(thing("Cluster", "c", ("Ready", "False", "not yet")), [plane, pool])


def test_blocking_chain_continues_at_machine_named_by_control_plane() -> None:
    root = _cluster_whose_control_plane_says("non-ready etcd machine(s) c-w-1", server_ready="False")
    assert [str(one) for one in blocker.blocking(root)] == [
        "Cluster c",
        "RKEControlPlane c",
        "Machine c-w-1",
        "NspawnMachine c-w-1",
    ]


def test_provisioned_machine_does_not_block_control_plane() -> None:
    root = _cluster_whose_control_plane_says("configuring c-w-1: waiting for probes", server_ready="True")
    assert [str(one) for one in blocker.blocking(root)] == ["Cluster c", "RKEControlPlane c"]


def test_object_with_outdated_observed_generation_is_waiting() -> None:
    obj = thing("Cluster", "c", ("Ready", "True", ""), generation=2)
    obj["status"]["observedGeneration"] = 1
    assert tree.judge(obj).state == "waiting"
    obj["status"]["observedGeneration"] = 2
    assert tree.judge(obj).well


def test_scaling_deployment_is_waiting_although_available() -> None:
    said = tree.judge(thing("MachineDeployment", "w", ("Available", "True", ""), ("ScalingUp", "True", "from 2 to 3")))
    assert (said.state, said.message) == ("waiting", "from 2 to 3")


def test_next_step_comes_from_object_message() -> None:
    text = f"Machine c/m: no server (since {THEN}); another attempt is made in 30s; see remuda machine logs m"
    leaf = tree.branch(thing("Machine", "m", ("Ready", "False", f"not ready: m\n{text}")))
    assert blocker.then([leaf]) == "another attempt is made in 30s; see remuda machine logs m"


def test_next_step_has_default_without_object_message() -> None:
    assert "by itself" in blocker.then([tree.branch(thing("Machine", "m", ("Ready", "False", "no Node yet")))])
    gone = tree.missing("DockerCluster", "m", thing("Cluster", "c"))
    assert gone is not None
    assert blocker.then([gone]).startswith("create DockerCluster m")
