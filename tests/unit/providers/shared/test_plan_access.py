"""What stands on a plan Secret, and who may open it."""

from __future__ import annotations

from remuda.capi import names as capi_names
from remuda.capi.types import Machine, MachineSpec
from remuda.kube.objects import Object, ObjectMeta
from remuda.providers.shared import names, plan_access
from remuda.providers.shared.plan_access import Owner
from remuda.providers.shared.types.bootstrap import RKEBootstrap


def owner(name: str = "b", labels: dict[str, str] | None = None, machine: dict[str, str] | None = None) -> Owner:
    return Owner(
        RKEBootstrap(metadata=ObjectMeta(name=name, namespace="ns", uid="u", labels=labels or {})),
        Machine(
            metadata=ObjectMeta(
                name="m", namespace="ns", labels=machine or {}, annotations={names.ADDRESS: "a", "x": "y"}
            ),
            spec=MachineSpec(cluster_name="c"),
        ),
    )


def test_plan_labels_combine_bootstrap_and_machine_labels() -> None:
    found = plan_access.plan_labels(
        owner(
            labels={"pool": "a", names.ETCD_ROLE: "true", capi_names.CLUSTER_NAME: "c"},
            machine={"team": "x", names.WORKER_ROLE: "true", names.MACHINE_ID: "h"},
        )
    )
    assert found == {
        "pool": "a",
        names.ETCD_ROLE: "true",
        names.WORKER_ROLE: "true",
        names.CLUSTER_NAME: "c",
        names.MACHINE_NAME: "m",
    }
    assert plan_access.plan_annotations(owner()) == {names.ADDRESS: "a"}


def test_long_names_are_shortened_for_labels_and_objects() -> None:
    long = owner("b" * 200)
    for obj in (plan_access.plan_secret(long), plan_access.account(long), plan_access.token(long, Object())):
        assert len(obj["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in obj["metadata"]["labels"].values())
    assert plan_access.role(long)["rules"][0]["resourceNames"] == [plan_access.plan_secret(long)["metadata"]["name"]]


def test_role_allows_one_secret_without_delete() -> None:
    (rule,) = plan_access.role(owner())["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["b-machine-plan"],
        "verbs": ["get", "list", "watch", "update", "patch"],
    }
