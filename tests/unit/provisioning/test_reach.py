"""A manager on loopback: clusters whose hosts could not call back are refused, all others admitted."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning.admission.reach import registrations
from tests.unit.provisioning.judging import NAMESPACE, Json, World, cluster, pool, verdict

URL = "https://127.0.0.1:6443"
(REGISTRATION,) = registrations(URL)


def refused(kind: str, old: Json | None = None, *, exists: bool = True, **options: Any) -> list[str]:
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": kind, **options}
    config["metadata"] = {"name": "all", "namespace": NAMESPACE}
    world = World((f"{kind.lower()}s", config)) if exists else World()
    new = cluster(pool(machineConfigRef={"kind": kind, "name": "all"}))
    return [str(error) for error in verdict(new, old, world, function=REGISTRATION.function).errors]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ExistingConfig", {"addresses": ["192.0.2.10:2222", "127.0.0.1"]}),
        ("ExistingConfig", {"address": "barn.example.com"}),
        ("NspawnConfig", {}),
        ("Amazonec2Config", {"ami": "ami-1"}),
    ],
)
def test_hosts_elsewhere_are_refused_and_the_flags_named(kind: str, options: Json) -> None:
    (said,) = refused(kind, **options)
    assert said.startswith("spec.rkeConfig.machinePools[0].machineConfigRef: Forbidden: hosts of driver ")
    assert f"cannot reach the manager at {URL}" in said
    assert "--listen and --server-url" in said


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ExistingConfig", {"addresses": ["127.0.0.2:2222", "[::1]:22", "localhost"]}),
        ("Amazonec2Config", {"endpoint": "http://127.0.0.1:5000"}),
        ("ProcessConfig", {}),
        ("DigitaloceanConfig", {}),
    ],
)
def test_hosts_of_this_machine_and_unknown_drivers_are_admitted(kind: str, options: Json) -> None:
    assert refused(kind, **options) == []


def test_pools_that_exist_and_configs_that_are_not_seen_are_admitted() -> None:
    before = cluster(pool(machineConfigRef={"kind": "NspawnConfig", "name": "all"}))
    assert refused("NspawnConfig", before) == []
    assert refused("NspawnConfig", exists=False) == []


def test_manager_that_others_reach_has_no_such_rule() -> None:
    assert registrations("") == ()
