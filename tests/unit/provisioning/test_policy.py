"""inPlaceOnly at the door: what would replace machines is refused with their names, whichever object it comes by."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from remuda.kube.admission import Unseen
from remuda.provisioning.admission.policy import admit_config
from remuda.provisioning.generate import generate
from remuda.provisioning.machine_templates import Material, known_options
from remuda.provisioning.types import CLUSTER
from tests.unit.provisioning.judging import NAMESPACE, Json, World, cluster, pool, refused, review, verdict

OPTIONS = {"size": {"type": "string", "default": "small"}, "zone": {"type": "string"}}


def config(name: str = "all", **options: Any) -> Json:
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "SimConfig",
        "metadata": {"name": name, "namespace": NAMESPACE},
        **({"size": "small"} | options),
    }


def definition(options: Mapping[str, Any] = OPTIONS) -> Json:
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"metadata": {}, **options}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "simconfigs.rke-machine-config.cattle.io"},
        "spec": {"versions": [version]},
    }


def world(obj: Json, *configs: Json, machines: int = 2, options: Mapping[str, Any] = OPTIONS) -> World:
    """As it is once the controllers have made everything of a Cluster."""
    typed = CLUSTER.decode(msgspec.json.encode(obj))
    known = known_options(definition(options))
    by_name = {one["metadata"]["name"]: one for one in configs}
    assert typed.spec.rke_config is not None
    materials = {
        each.name: Material(config=by_name[each.machine_config_ref.name], options=known)
        for each in typed.spec.rke_config.machine_pools
        if each.machine_config_ref is not None
    }
    found = World(("customresourcedefinitions", definition(options)), ("clusters", obj))
    for one in configs:
        found.add("simconfigs", one)
    for each in generate(obj, typed, materials, "c-m-1").pools:
        assert each.template is not None
        for plural, made in (("machinedeployments", each.deployment), ("simmachinetemplates", each.template)):
            found.add(plural, {**made, "metadata": {**made["metadata"], "namespace": NAMESPACE}})
        for number in range(machines):
            labels = {"cluster.x-k8s.io/deployment-name": each.deployment_name}
            metadata = {"name": f"{each.deployment_name}-{number}", "namespace": NAMESPACE, "labels": labels}
            found.add("machines", {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata})
    return found


def kept() -> Json:
    return cluster(pool(replacement="inPlaceOnly"))


def said(new: Json, old: Json, seen: World) -> list[str]:
    return [str(error) for error in verdict(new, old, seen, function=admit_config).errors]


def test_config_edit_that_replaces_machines_is_rejected_with_names() -> None:
    (complaint,) = said(config(size="large"), config(), world(kept(), config()))
    assert complaint.startswith("size: ")
    assert "Cluster fleet-default/prairie: machine pool all would replace Machines prairie-all-0, prairie-all-1" in (
        complaint
    )
    assert "because of size" in complaint
    assert "set replacement to replace" in complaint


def test_pool_without_in_place_only_may_be_replaced() -> None:
    assert said(config(size="large"), config(), world(cluster(), config())) == []


def test_config_metadata_change_is_admitted() -> None:
    edited = config()
    edited["metadata"]["labels"] = {"a": "b"}
    assert said(edited, config(), world(kept(), config())) == []


def test_unused_config_may_be_changed() -> None:
    assert said(config("spare", size="large"), config("spare"), world(kept(), config(), config("spare"))) == []
    assert said(config(size="large"), config(), world(kept(), config(), machines=0)) == []


def test_reverting_config_to_machine_options_is_admitted() -> None:
    """The Config was changed while nobody watched."""
    seen = World(*[each for each in world(kept(), config())._objects if each[0] != "simconfigs"])
    seen.add("simconfigs", config(size="large"))
    assert said(config(), config(size="large"), seen) == []
    assert said(config(size="huge"), config(size="large"), seen) != []


def test_switch_to_config_with_other_options_is_rejected() -> None:
    old = kept()
    new = deepcopy(old)
    new["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"]["name"] = "large"
    seen = world(old, config())
    seen.add("simconfigs", config("large", size="large"))
    (complaint,) = refused(new, old, seen)
    assert complaint.startswith("spec.rkeConfig.machinePools[0].replacement: ")
    assert "Machines prairie-all-0, prairie-all-1, because of size" in complaint


def test_switch_to_config_with_same_options_is_admitted() -> None:
    old = kept()
    new = deepcopy(old)
    new["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"]["name"] = "twin"
    seen = world(old, config())
    seen.add("simconfigs", config("twin"))
    assert refused(new, old, seen) == []


def test_already_held_pool_does_not_block_other_changes() -> None:
    seen = World(*[each for each in world(cluster(), config())._objects if each[0] != "simconfigs"])
    seen.add("simconfigs", config(size="large"))
    turned_on = kept()
    assert refused(turned_on, cluster(), seen) == []
    scaled = deepcopy(turned_on)
    scaled["spec"]["rkeConfig"]["machinePools"][0]["quantity"] = 3
    assert refused(scaled, turned_on, seen) == []


def test_lifting_policy_allows_replacement() -> None:
    old = kept()
    new = deepcopy(old)
    new["spec"]["rkeConfig"]["machinePools"][0] |= {
        "machineConfigRef": {"kind": "SimConfig", "name": "large"},
        "replacement": "replace",
    }
    seen = world(old, config())
    seen.add("simconfigs", config("large", size="large"))
    assert refused(new, old, seen) == []


def test_in_place_changes_are_admitted() -> None:
    old = kept()
    new = deepcopy(old)
    new["spec"]["kubernetesVersion"] = "v1.36.5+k3s1"
    new["spec"]["rkeConfig"]["machineGlobalConfig"] = {"disable": ["traefik"]}
    new["spec"]["rkeConfig"]["machinePools"][0] |= {
        "labels": {"a": "b"},
        "taints": [{"key": "a", "effect": "NoSchedule"}],
        "quantity": 3,
        "cloudCredentialSecretName": "cattle-global-data:cc-2",
    }
    assert refused(new, old, world(old, config())) == []


def test_new_driver_option_counts_only_when_set() -> None:
    obj = kept()
    seen = world(obj, config())
    newer = {**OPTIONS, "disk": {"type": "string", "default": "10G"}}
    seen = World(*[each for each in seen._objects if each[0] != "customresourcedefinitions"])
    seen.add("customresourcedefinitions", definition(newer))
    assert said(config(disk="10G"), config(), seen) == []
    assert "because of disk" in said(config(disk="99G"), config(disk="10G"), seen)[0]


def test_config_edit_is_rejected_without_definition() -> None:
    seen = World(*[each for each in world(kept(), config())._objects if each[0] != "customresourcedefinitions"])
    assert said(config(size="large"), config(), seen) != []


def test_config_edit_is_admitted_when_objects_are_not_visible() -> None:
    def blind(*which: Any) -> Any:
        raise Unseen("nothing is watched here")

    told = msgspec.structs.replace(review(config(size="large"), config()), lookup=blind, select=blind)
    assert admit_config(told).errors == ()


def test_malformed_cluster_objects_do_not_crash_policy() -> None:
    seen = world(kept(), config())
    seen.add(
        "clusters", {"apiVersion": CLUSTER.api_version, "metadata": {"name": "x", "namespace": NAMESPACE}, "spec": 3}
    )
    assert said({**config(), "size": [{"a": None}]}, config(), seen) != []
