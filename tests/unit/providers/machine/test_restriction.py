"""Drivers that place hosts on the manager's machine are for administrators, unless their NodeDriver says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from remuda.app.controllers import ADMISSION, EVERY, webhooks
from remuda.kube.admission import EVERY_KIND, Operation, Review, Unseen
from remuda.providers.machine import drivers
from remuda.providers.machine.restriction import ALLOW_ALL_USERS
from tests.unit.provisioning import judging

Json = dict[str, Any]
RKE_MACHINE, CONFIG = "rke-machine.cattle.io", "rke-machine-config.cattle.io"
CORE, RKE, PROVISIONING = "cluster.x-k8s.io", "rke.cattle.io", "provisioning.cattle.io"
ACCOUNT = "system:serviceaccount:capi-system:capi-manager"


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


def denial(
    use: tuple[str, str, str, Json],
    *,
    user: str = "rider",
    groups: tuple[str, ...] = ("system:authenticated",),
    old: Json | None = None,
    seen: Seen | None = None,
    operation: Operation = "CREATE",
    annotations: Json | None = None,
    own: str | None = None,
) -> str:
    """What the functions that look for restricted drivers say; with `own`, those behind webhooks."""
    group, plural, kind, obj = use
    seen = seen or Seen()
    new = {"apiVersion": f"{group}/v1", "kind": kind, **deepcopy(obj)}
    new["metadata"] = {"name": "a", "namespace": "fleet", "annotations": annotations or {}}
    review = Review(
        operation="UPDATE" if old is not None else operation,
        group=group,
        version="v1",
        kind=kind,
        resource=plural,
        namespace="fleet",
        name="a",
        user=user,
        groups=groups,
        lookup=seen.lookup,
        select=seen.select,
        old=old,
        new=new,
    )
    if own is None:
        functions = [
            one.function
            for one in ADMISSION
            if one.function.__qualname__.startswith("guard.")
            and one.group == group
            and one.plural in (plural, EVERY_KIND)
        ]
    else:
        functions = [
            one.function
            for one in webhooks(EVERY, own)
            if one.kind.endswith("-driver") and one.target.group == group and one.target.plural in (plural, EVERY_KIND)
        ]
    (function,) = functions
    return function(review).denied


def node_driver(name: str, allowed: str) -> tuple[str, Json]:
    return "nodedrivers", {"metadata": {"name": name, "annotations": {ALLOW_ALL_USERS: allowed}}}


@pytest.mark.parametrize("use", USES, ids=lambda use: use[2])
@pytest.mark.parametrize("own", [None, "system:serviceaccount:remuda-system:remuda"])
def test_user_cannot_use_a_driver_of_the_managers_machine(use: tuple[str, str, str, Json], own: str | None) -> None:
    assert "only administrators (cluster-admin) may use it" in denial(use, own=own)
    assert denial(use, seen=Seen(unseen=True), own=own)


@pytest.mark.parametrize("use", USES, ids=lambda use: use[2])
def test_administrators_and_the_manager_may(use: tuple[str, str, str, Json]) -> None:
    assert denial(use, groups=("system:masters",)) == ""
    assert denial(use, user="me", own="me") == ""
    assert denial(use, user="", own="") != ""


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ({"kind": "User", "name": "rider"}, True),
        ({"kind": "Group", "name": "system:authenticated"}, True),
        ({"kind": "User", "name": "other"}, False),
        ({"kind": "Group", "name": "rider"}, False),
        ({"kind": "ServiceAccount", "namespace": "a", "name": "rider"}, False),
    ],
)
def test_cluster_admins_may(subject: Json, allowed: bool) -> None:
    def binding(role: str) -> tuple[str, Json]:
        return "clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": {"name": role}, "subjects": [subject]}

    assert (denial(USES[0], seen=Seen(binding("cluster-admin"))) == "") == allowed
    assert denial(USES[0], seen=Seen(binding("view"))) != ""


@pytest.mark.parametrize("use", OTHERS, ids=lambda use: use[2])
def test_other_drivers_are_for_everybody(use: tuple[str, str, str, Json]) -> None:
    assert denial(use) == ""


def test_administrator_opens_a_driver_to_all_users() -> None:
    assert denial(USES[0], seen=Seen(node_driver("process", "true"))) == ""
    assert denial(USES[0], seen=Seen(node_driver("process", "yes"))) != ""
    assert denial(USES[1], seen=Seen(node_driver("process", "true"))) != ""


def test_changes_of_metadata_and_replicas_pass() -> None:
    deployment = USES[-1]
    old = {**deepcopy(deployment[3]), "metadata": {"name": "a"}, "status": {"x": 1}}
    assert denial(deployment, old=old) == ""
    old["spec"]["replicas"] = 3
    assert denial(deployment, old=old) == ""
    old["spec"]["paused"] = True
    assert denial(deployment, old=old) != ""


def test_change_away_from_a_restricted_driver_is_one_too() -> None:
    old = {**declared("process"), "metadata": {"name": "a"}}
    assert denial((PROVISIONING, "clusters", "Cluster", declared("amazonec2")), old=old) != ""


def test_controllers_of_others_clone_templates_that_are_there() -> None:
    use = (RKE_MACHINE, "processmachines", "ProcessMachine", {"spec": {"address": "127.0.0.9"}})
    accounts = ("system:serviceaccounts", "system:authenticated")
    cloned = {"cluster.x-k8s.io/cloned-from-name": "t"}
    spec = {"template": {"spec": {"address": "127.0.0.9"}}}
    seen = Seen(("processmachinetemplates", {"metadata": {"name": "t"}, "spec": spec}))
    assert denial(use, user=ACCOUNT, groups=accounts, annotations=cloned, seen=seen) == ""
    assert denial(use, annotations=cloned, seen=seen) != ""
    assert denial(use, user=ACCOUNT, groups=accounts, seen=seen) != ""
    assert denial(use, user=ACCOUNT, groups=accounts, annotations=cloned) != ""
    unseen = Seen(unseen=True)
    assert denial(use, user=ACCOUNT, groups=accounts, annotations=cloned, seen=unseen) == ""
    assert denial(use, user=ACCOUNT, groups=accounts, seen=unseen) != ""
    assert denial(use, annotations=cloned, seen=unseen) != ""
    other = (*use[:3], {"spec": {"address": "127.0.0.1"}})
    assert denial(other, user=ACCOUNT, groups=accounts, annotations=cloned, seen=seen) != ""


@pytest.mark.parametrize("spec", [None, [], "x", {"rkeConfig": []}, {"rkeConfig": {"machinePools": [None, {}, 3]}}])
def test_malformed_clusters_are_left_to_validation(spec: Any) -> None:
    assert denial((PROVISIONING, "clusters", "Cluster", {"spec": spec})) == ""


def test_drivers_that_run_code_on_the_managers_machine_say_so() -> None:
    assert [name for name in drivers.names() if drivers.find(name).on_manager] == ["nspawn", "process"]


def test_least_cluster_of_the_other_tests_uses_no_such_driver() -> None:
    assert denial((PROVISIONING, "clusters", "Cluster", judging.cluster())) == ""
