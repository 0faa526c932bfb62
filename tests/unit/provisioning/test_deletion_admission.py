"""Deletion of a declared Cluster's objects: refused with the right command, and everyone who must delete them may."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from remuda.apiserver.cel import types
from remuda.apiserver.cel.check import check
from remuda.apiserver.cel.program import build
from remuda.apiserver.cel.syntax import parse
from remuda.capi.inflection import plural
from remuda.kube.admission import ALLOWED, Review, Unseen
from remuda.provisioning.admission.deletion import COLLECTORS, DELETE_FOR_MOVE, admit, webhooks
from remuda.provisioning.apply import APPLIED
from remuda.provisioning.pools import POOL_NAME
from tests.unit.provisioning.judging import NAMESPACE, Json, World, cluster

CAPI, RKE, MACHINES = "cluster.x-k8s.io/v1beta2", "rke.cattle.io/v1", "rke-machine.cattle.io/v1"
KINDS = (
    (CAPI, "Cluster", "remuda delete cluster prairie -n fleet-default"),
    (CAPI, "MachineDeployment", "remuda scale prairie -n fleet-default --pool all=N"),
    (RKE, "RKEControlPlane", "remuda delete cluster prairie -n fleet-default"),
    (RKE, "RKECluster", "remuda delete cluster prairie -n fleet-default"),
    (RKE, "RKEBootstrapTemplate", "remuda edit prairie -n fleet-default"),
    (MACHINES, "SimMachineTemplate", "remuda edit prairie -n fleet-default"),
)
NOW = "2026-01-01T00:00:00Z"


def owned(api_version: str = CAPI, kind: str = "MachineDeployment", **metadata: Any) -> Json:
    """An object as the controller makes it of the declared Cluster."""
    above = "provisioning.cattle.io/v1" if (api_version, kind) == (CAPI, "Cluster") else CAPI
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "prairie-all" if kind == "MachineDeployment" else "prairie",
            "namespace": NAMESPACE,
            "labels": {"cluster.x-k8s.io/cluster-name": "prairie"},
            "annotations": {APPLIED: "0123"},
            "ownerReferences": [{"apiVersion": above, "kind": "Cluster", "name": "prairie", "uid": "u"}],
            **metadata,
        },
        "spec": {
            "template": {
                "metadata": {"labels": {POOL_NAME: "all"}},
                "spec": {
                    "infrastructureRef": {"kind": "SimMachineTemplate", "name": "prairie"},
                    "bootstrap": {"configRef": {"kind": "RKEBootstrapTemplate", "name": "prairie"}},
                },
            }
        },
    }


def namespace(**metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, **metadata}}


def world(declared: Json | None = None, capi: Json | None = None, place: Json | None = None) -> World:
    found = World(("namespaces", place or namespace()))
    for obj in (declared or cluster(), capi or owned(CAPI, "Cluster")):
        found.add("clusters", obj)
    found.add("machinedeployments", owned())
    return found


def review(old: Json, seen: World, **more: Any) -> Review:
    group, _, version = old["apiVersion"].rpartition("/")
    return Review(
        operation="DELETE",
        group=group,
        version=version,
        kind=old["kind"],
        resource=plural(old["kind"]).lower(),
        namespace=NAMESPACE,
        name=old["metadata"]["name"],
        **{"user": "ann", "lookup": seen.lookup, "select": seen.select, "old": old, **more},
    )


def ending(obj: Json) -> Json:
    made = deepcopy(obj)
    made["metadata"]["deletionTimestamp"] = NOW
    return made


@pytest.mark.parametrize(("api_version", "kind", "command"), KINDS)
def test_deletion_is_refused_with_the_right_command(api_version: str, kind: str, command: str) -> None:
    found = admit(review(owned(api_version, kind), world()))
    assert "belongs to the declared Cluster fleet-default/prairie" in found.denied
    assert command in found.denied


@pytest.mark.parametrize("user", COLLECTORS)
def test_garbage_collection_may_delete(user: str) -> None:
    assert admit(review(owned(), world(), user=user)) == ALLOWED


@pytest.mark.parametrize("kind", [("Cluster"), ("MachineDeployment")])
@pytest.mark.parametrize(
    ("old", "seen", "more"),
    [
        ({}, world(), {"by_manager": True}),
        ({"annotations": {APPLIED: "0", DELETE_FOR_MOVE: ""}}, world(), {}),
        ({"annotations": {}}, world(), {}),
        ({"deletionTimestamp": NOW}, world(), {}),
        ({"ownerReferences": []}, world(), {}),
        ({}, World(), {}),
        ({}, world(declared=ending(cluster())), {}),
        ({}, world(place=namespace(deletionTimestamp=NOW)), {}),
    ],
    ids=["manager", "move", "not-ours", "ending", "no-owner", "no-declaration", "cluster-ending", "namespace-ending"],
)
def test_deletion_that_loses_nothing_unasked_passes(kind: str, old: Json, seen: World, more: Json) -> None:
    assert admit(review(owned(CAPI, kind, **old), seen, **more)) == ALLOWED


def test_pool_that_is_no_longer_declared_is_deletable() -> None:
    """A manager that the server does not know as such can still do its work."""
    assert admit(review(owned(name="prairie-gone"), world())) == ALLOWED


@pytest.mark.parametrize(("api_version", "kind", "_"), KINDS[-2:])
def test_unused_template_is_deletable(api_version: str, kind: str, _: str) -> None:
    assert admit(review(owned(api_version, kind, name="prairie-old"), world())) == ALLOWED
    seen = world()
    earlier = owned(CAPI, "MachineSet", name="prairie-all-1")
    for reference in (("infrastructureRef",), ("bootstrap", "configRef")):
        place = earlier["spec"]["template"]["spec"]
        for name in reference:
            place = place[name]
        place["name"] = "prairie-old"
    seen.add("machinesets", earlier)
    assert admit(review(owned(api_version, kind, name="prairie-old"), seen)).denied


def test_core_may_delete_what_is_below_a_cluster_being_deleted() -> None:
    """The core may be another program, with a user that nobody here knows."""
    seen = world(capi=ending(owned(CAPI, "Cluster")))
    assert admit(review(owned(RKE, "RKEControlPlane"), seen)) == ALLOWED


def test_objects_of_namespaces_that_the_manager_does_not_see_pass() -> None:
    def lookup(*place: str) -> None:
        raise Unseen("not cached")

    assert admit(review(owned(), world(), lookup=lookup)) == ALLOWED


def test_unseen_namespace_does_not_weaken_the_refusal() -> None:
    seen = world()

    def lookup(api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        if plural == "namespaces":
            raise Unseen("not cached")
        return seen.lookup(api_version, plural, namespace, name)

    assert admit(review(owned(), seen, lookup=lookup)).denied


# ---- the API server's own judgement, before it calls -----------------------------------------------------------------


def is_called(old: Json, user: str = "ann") -> bool:
    """Our CEL knows two variables, by other names."""
    (only,) = {one.only for one in webhooks()}
    source = only.replace("request.", "self.").replace("oldObject.", "oldSelf.")
    program = build(check(source, parse(source), {"self": types.DYN, "oldSelf": types.DYN}))
    return bool(program.run({"userInfo": {"username": user}}, old, [0]))


def test_api_server_calls_only_for_deletions_that_may_be_refused() -> None:
    assert is_called(owned())
    assert not any(is_called(owned(), user) for user in COLLECTORS)
    assert not is_called(owned(annotations={APPLIED: "0", DELETE_FOR_MOVE: ""}))
    assert not is_called(owned(annotations={}))
    assert not is_called(ending(owned()))
    bare = owned()
    del bare["metadata"]["annotations"]
    assert not is_called(bare)
