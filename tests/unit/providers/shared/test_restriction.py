"""Drivers that place hosts on the manager's machine are for administrators, unless their NodeDriver says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from remuda.app.controllers import ADMISSION, EVERY, webhooks
from remuda.kube.admission import EVERY_KIND, Review, Unseen
from remuda.kube.authorization import RequiredAccess, denial
from remuda.providers.shared import drivers
from remuda.providers.shared.restriction import ALLOW_ALL_USERS
from tests.unit.provisioning import judging

Json = dict[str, Any]
RKE_MACHINE, CONFIG = "rke-machine.cattle.io", "rke-machine-config.cattle.io"
CORE, RKE, PROVISIONING = "cluster.x-k8s.io", "rke.cattle.io", "provisioning.cattle.io"


def reference(kind: str) -> Json:
    return {"infrastructureRef": {"apiGroup": RKE_MACHINE, "kind": kind, "name": "t"}}


def declared(driver: str = "", infrastructure: str = "") -> Json:
    config: Json = {}
    if driver:
        kind = f"{driver.capitalize()}Config"
        config["machinePools"] = [{"name": "a", "machineConfigRef": {"kind": kind, "name": "a"}}]
    if infrastructure:
        config["clusterInfrastructure"] = {"driver": infrastructure}
    return {"spec": {"rkeConfig": config}}


USES: list[tuple[str, str, str, Json]] = [
    (CONFIG, "processconfigs", "ProcessConfig", {"address": ""}),
    (CONFIG, "nspawnconfigs", "NspawnConfig", {"image": "x"}),
    (RKE_MACHINE, "processmachinetemplates", "ProcessMachineTemplate", {"spec": {"template": {"spec": {}}}}),
    (RKE_MACHINE, "nspawnmachines", "NspawnMachine", {"spec": {}}),
    (RKE, "rkeclusters", "RKECluster", {"spec": {"infrastructure": {"driver": "nspawn"}}}),
    (PROVISIONING, "clusters", "Cluster", declared("process")),
    (PROVISIONING, "clusters", "Cluster", declared("", "nspawn")),
    (CORE, "machines", "Machine", {"spec": reference("ProcessMachine")}),
    (CORE, "machinesets", "MachineSet", {"spec": {"template": {"spec": reference("ProcessMachineTemplate")}}}),
    (
        CORE,
        "machinedeployments",
        "MachineDeployment",
        {"spec": {"replicas": 1, "template": {"spec": reference("NspawnMachineTemplate")}}},
    ),
]
OTHERS: list[tuple[str, str, str, Json]] = [
    (CONFIG, "amazonec2configs", "Amazonec2Config", {}),
    (CONFIG, "simconfigs", "SimConfig", {}),
    (RKE_MACHINE, "existingmachines", "ExistingMachine", {"spec": {}}),
    (RKE, "rkeclusters", "RKECluster", {"spec": {}}),
    (PROVISIONING, "clusters", "Cluster", declared("amazonec2")),
    (CORE, "machines", "Machine", {"spec": {"infrastructureRef": {"apiGroup": "other.io", "kind": "ProcessMachine"}}}),
]


class Seen:
    """What lookups see."""

    def __init__(self, *objects: tuple[str, Json], unseen: bool = False) -> None:
        self._objects, self._unseen = objects, unseen

    def lookup(self, api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        found = self.select(api_version, plural, namespace, {})
        return next((one for one in found if one["metadata"]["name"] == name), None)

    def select(self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        if self._unseen:
            raise Unseen(plural)
        return [obj for kind, obj in self._objects if kind == plural]


def missing(use: tuple[str, str, str, Json], **how: Any) -> list[str]:
    """The drivers that the writer of an object needs the right to use."""
    return [need.name for need in needed(use, **how)]


def needed(
    use: tuple[str, str, str, Json],
    *,
    groups: tuple[str, ...] = ("system:authenticated",),
    old: Json | None = None,
    seen: Seen | None = None,
    annotations: Json | None = None,
    by_manager: bool = False,
) -> list[RequiredAccess]:
    group, plural, kind, obj = use
    seen = seen or Seen()
    new = {"apiVersion": f"{group}/v1", "kind": kind, **deepcopy(obj)}
    new["metadata"] = {"name": "a", "namespace": "fleet", "annotations": annotations or {}}
    review = Review(
        operation="UPDATE" if old is not None else "CREATE",
        group=group,
        version="v1",
        kind=kind,
        resource=plural,
        namespace="fleet",
        name="a",
        user="rider",
        groups=groups,
        by_manager=by_manager,
        lookup=seen.lookup,
        select=seen.select,
        old=old,
        new=new,
    )
    found = [
        need
        for one in ADMISSION
        if one.needs is not None and one.group == group and one.plural in (plural, EVERY_KIND)
        for need in one.needs(review)
    ]
    return [need for need in found if (need.verb, need.resource) == ("use", "nodedrivers")]


def node_driver(name: str, allowed: str) -> tuple[str, Json]:
    return "nodedrivers", {"metadata": {"name": name, "annotations": {ALLOW_ALL_USERS: allowed}}}


@pytest.mark.parametrize("use", USES, ids=lambda use: use[2])
def test_user_cannot_use_a_driver_of_the_managers_machine(use: tuple[str, str, str, Json]) -> None:
    assert missing(use) in (["process"], ["nspawn"])
    assert missing(use, seen=Seen(unseen=True)) == missing(use)
    assert missing(use, by_manager=True) == []


def test_denial_names_required_right_and_administrators() -> None:
    (need,) = needed(USES[0])
    assert denial(need).startswith("kind: you need the right to use nodedrivers.management.cattle.io process; ")
    assert "only administrators may use it" in denial(need)


def test_every_required_right_has_webhook() -> None:
    checked = {(one.group, one.plural) for one in ADMISSION if one.needs is not None}
    assert checked == {(one.target.group, one.target.plural) for one in webhooks(EVERY) if one.needs is not None}


@pytest.mark.parametrize("use", OTHERS, ids=lambda use: use[2])
def test_unrestricted_drivers_are_open_to_all_users(use: tuple[str, str, str, Json]) -> None:
    assert missing(use) == []


def test_annotation_opens_driver_to_all_users() -> None:
    assert missing(USES[0], seen=Seen(node_driver("process", "true"))) == []
    assert missing(USES[0], seen=Seen(node_driver("process", "yes"))) != []
    assert missing(USES[1], seen=Seen(node_driver("process", "true"))) != []


def test_changes_of_metadata_and_replicas_pass() -> None:
    deployment = USES[-1]
    old = {**deepcopy(deployment[3]), "metadata": {"name": "a"}, "status": {"x": 1}}
    assert missing(deployment, old=old) == []
    old["spec"]["replicas"] = 3
    assert missing(deployment, old=old) == []
    old["spec"]["paused"] = True
    assert missing(deployment, old=old) != []


def test_switch_away_from_restricted_driver_is_restricted() -> None:
    old = {**declared("process"), "metadata": {"name": "a"}}
    assert missing((PROVISIONING, "clusters", "Cluster", declared("amazonec2")), old=old) != []


def test_foreign_controllers_may_clone_existing_templates() -> None:
    use = (RKE_MACHINE, "processmachines", "ProcessMachine", {"spec": {"address": "127.0.0.9"}})
    accounts = ("system:serviceaccounts", "system:authenticated")
    cloned = {"cluster.x-k8s.io/cloned-from-name": "t"}
    spec = {"template": {"spec": {"address": "127.0.0.9"}}}
    seen = Seen(("processmachinetemplates", {"metadata": {"name": "t"}, "spec": spec}))
    assert missing(use, groups=accounts, annotations=cloned, seen=seen) == []
    assert missing(use, annotations=cloned, seen=seen) != []
    assert missing(use, groups=accounts, seen=seen) != []
    assert missing(use, groups=accounts, annotations=cloned) != []
    unseen = Seen(unseen=True)
    assert missing(use, groups=accounts, annotations=cloned, seen=unseen) == []
    assert missing(use, groups=accounts, seen=unseen) != []
    assert missing(use, annotations=cloned, seen=unseen) != []
    other = (*use[:3], {"spec": {"address": "127.0.0.1"}})
    assert missing(other, groups=accounts, annotations=cloned, seen=seen) != []


@pytest.mark.parametrize("spec", [None, [], "x", {"rkeConfig": []}, {"rkeConfig": {"machinePools": [None, {}, 3]}}])
def test_malformed_clusters_are_left_to_validation(spec: Any) -> None:
    assert missing((PROVISIONING, "clusters", "Cluster", {"spec": spec})) == []


def test_drivers_on_manager_machine_are_declared() -> None:
    assert [name for name in drivers.names() if drivers.find(name).on_manager] == ["nspawn", "process"]


def test_minimal_test_cluster_uses_no_restricted_driver() -> None:
    assert missing((PROVISIONING, "clusters", "Cluster", judging.cluster())) == []
