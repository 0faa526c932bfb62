"""Who stays and who is replaced is known beforehand, and said in one sentence."""

from __future__ import annotations

from typing import Any

from remuda.provisioning import consequence
from remuda.provisioning.consequence import Consequence, Standing
from tests.unit.provisioning.clusters import declared, desired, pool

Json = dict[str, Any]


def standing(raw: Json, machines: tuple[str, ...] = ("m-1", "m-2"), **configs: Json) -> dict[str, Standing]:
    return {
        one.deployment_name: Standing(deployment=one.deployment, template=one.template, machines=machines)
        for one in desired(raw, **configs).pools
    }


def said(old: Json, new: Json, before: Json | None = None, after: Json | None = None) -> list[Consequence]:
    present = standing(old, servers=before or {})
    return consequence.consequences(desired(new, servers=after or {}), present)


def test_in_place_edits_keep_machines() -> None:
    old = declared(pool())
    edited = pool(
        labels={"a": "b"}, taints=[{"key": "k", "effect": "NoExecute"}], quantity=5, workerRole=True, etcdRole=True
    )
    new = declared(edited, machineGlobalConfig={"cni": "none"}, spec={"kubernetesVersion": "v1.35.0+k3s1"})
    new["spec"]["rkeConfig"] = {"machinePools": [edited], "machineGlobalConfig": {"cni": "none"}}
    (one,) = said(old, new)
    assert (one.action, one.machines) == ("keep", ("m-1", "m-2"))
    assert str(one) == "machine pool servers keeps Machines m-1, m-2"


def test_driver_option_change_replaces_machines_and_names_option() -> None:
    (one,) = said(declared(pool()), declared(pool()), {"zone": "a"}, {"zone": "b", "size": "large"})
    assert (one.action, one.options, one.held) == ("replace", ("size", "zone"), False)
    assert str(one) == "machine pool servers would replace Machines m-1, m-2, because of size, zone"


def test_in_place_only_pool_holds_replacement_with_advice() -> None:
    (one,) = said(declared(pool()), declared(pool(replacement="inPlaceOnly")), {}, {"zone": "b"})
    assert one.held
    assert "the pool's replacement is inPlaceOnly: revert the change, or set replacement to replace" in str(one)


def test_pool_without_machines_is_not_held() -> None:
    raw = declared(pool(replacement="inPlaceOnly"))
    present = standing(raw, ())
    (one,) = consequence.consequences(desired(raw, servers={"zone": "b"}), present)
    assert (one.action, one.held) == ("replace", False)


def test_added_and_removed_pools_are_reported() -> None:
    new, gone = said(declared(pool()), declared(pool("others")))
    assert (new.pool, new.action) == ("others", "create")
    assert (gone.pool, gone.action, gone.machines) == ("prairie-servers", "remove", ("m-1", "m-2"))


def test_held_pool_keeps_infrastructure_but_applies_labels() -> None:
    raw = declared(pool(replacement="inPlaceOnly", labels={"a": "b"}))
    before = standing(declared(pool()))["prairie-servers"]
    (wanted,) = desired(raw, servers={"zone": "b"}).pools
    held = consequence.hold(wanted, before)
    assert held.infrastructure == before.infrastructure != wanted.infrastructure
    assert held.template is None
    assert held.deployment["metadata"]["labels"]["a"] == "b"


def test_long_machine_list_is_truncated_with_count() -> None:
    many = Consequence(pool="p", action="keep", machines=[f"m-{number}" for number in range(25)])
    assert str(many).endswith("m-9 and 15 more")
